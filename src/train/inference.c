/* inference.c: a session and, where weights lie on drives, a store of scratch
 * alone.
 *
 * The store's folder has one name per drive and is locked: a second program
 * there is refused, and what a killed one left is written over.  Main thread.
 * Disadvantage: weights are copied to the drive first, though the model's files
 * may lie there already. */
#include "src/train/inference.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

int pen_inference_open(struct pen_inference *inference,
                       const struct pen_model_settings *model,
                       const struct pen_machine_settings *machine,
                       const struct pen_session_shape *shape,
                       size_t max_length)
{
  struct pen_session_shape forward = *shape;
  forward.inference = true;
  *inference = (struct pen_inference){.store = NULL};
  return pen_session_open(&inference->session, model, machine, &forward,
                          max_length);
}

static int create_store(struct pen_inference *inference)
{
  const struct pen_session *s = &inference->session;
  size_t n = s->machine.n_nvme_dirs;
  for (size_t d = 0; d < n; d++)
    if (asprintf(&inference->dirs[d], "%s/penstock-forward",
                 s->machine.nvme_dirs[d]) < 0) {
      inference->dirs[d] = NULL;
      return pen_error_set(PEN_ENOFIT, "no memory for a path");
    }
  struct pen_store_options o = {
      .dirs = (const char *const *)inference->dirs,
      .n_dirs = n,
      .engine = s->engine,
      .tile_bytes = s->layout.tile_bytes,
      .scratch_bytes = s->layout.tier_bytes[PEN_TIER_NVME]};
  return pen_store_create(&o, true, &inference->store);
}

int pen_inference_start(struct pen_inference *inference,
                        const volatile sig_atomic_t *stop, bool ends_steps)
{
  struct pen_session *s = &inference->session;
  struct pen_run_hooks hooks = {.stop = stop, .ends_steps = stop && ends_steps};
  int rc = 0;
  if (s->layout.tier_bytes[PEN_TIER_NVME])
    rc = create_store(inference);
  if (rc == 0)
    rc = pen_session_start(s, inference->store, NULL, &hooks);
  return rc < 0 ? rc : pen_session_load(s);
}

void pen_inference_close(struct pen_inference *inference)
{
  struct pen_session *s = &inference->session;
  struct pen_error kept;
  bool had_store = inference->store != NULL;
  size_t n = s->machine.n_nvme_dirs;
  pen_run_free(&s->run);
  pen_store_close(&inference->store);
  pen_error_take(&kept);
  if (had_store)
    pen_store_remove(s->engine, (const char *const *)inference->dirs, n);
  pen_error_put(&kept);
  for (size_t d = 0; d < PEN_STORE_DIRS_MAX; d++) {
    if (inference->dirs[d])
      remove(inference->dirs[d]); /* the folder itself, now empty */
    free(inference->dirs[d]);
    inference->dirs[d] = NULL;
  }
  pen_session_close(s);
  pen_engine_release(&s->engine);
}
