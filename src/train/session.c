/* session.c: what a run that can step is asked, and does.
 *
 * Main thread.  Disadvantage: one struct has all that a model, a machine and a
 * placement come to, whoever needs which part of it. */
#include "src/train/session.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"

int pen_session_config_path(const char *model, char *ret_path, size_t bytes,
                            bool *ret_is_config)
{
  struct stat st;
  *ret_is_config = stat(model, &st) == 0 && S_ISREG(st.st_mode);
  int n = snprintf(ret_path, bytes, "%s%s", model,
                   *ret_is_config ? "" : "/config.json");
  if (n < 0 || (size_t)n >= bytes)
    return pen_error_set(PEN_EUSAGE, "the path of %.64s... is too long", model);
  return 0;
}

int pen_session_load_config(const struct pen_model_settings *model,
                            struct pen_model_config *ret_config,
                            bool *ret_without_weights)
{
  char path[4096];
  *ret_without_weights = true;
  if (model->config) {
    *ret_config = *model->config;
    return 0;
  }
  int rc = pen_session_config_path(model->dir, path, sizeof path,
                                   ret_without_weights);
  return rc < 0 ? rc : pen_model_config_load(path, ret_config);
}

/* What options say; else what the search chose, which is 0 where it did not. */
static size_t first_of(size_t asked, size_t found, size_t otherwise)
{
  return asked ? asked : found ? found : otherwise;
}

size_t pen_session_threads(const struct pen_session *session, size_t otherwise)
{
  return first_of(session->machine.threads, session->found.threads, otherwise);
}

size_t pen_session_update_threads(const struct pen_session *session,
                                  size_t otherwise)
{
  return first_of(session->machine.update_threads,
                  session->found.update_threads, otherwise);
}

struct pen_simulate_options
pen_session_simulate_options(const struct pen_session *s,
                             const struct pen_machine *machine)
{
  size_t threads = pen_session_threads(s, machine->cores);
  return (struct pen_simulate_options){
      .demand = {.machine = machine,
                 .elem_bytes = pen_elem_bytes(s->elem),
                 .state = pen_state_number(s->state),
                 .threads = threads,
                 .update_threads = pen_session_update_threads(s, threads)},
      .io_depth = s->io_depth,
      .apply = true};
}

int pen_session_start(struct pen_session *session, struct pen_store *store,
                      struct pen_trace *trace,
                      const struct pen_run_hooks *hooks)
{
  struct pen_run_options options = {
      .workload = pen_model_workload(session->model),
      .compute = pen_model_compute(session->model),
      .layout = &session->layout,
      .device = session->backend ? session->backend->device
                : session->layout.placement.unified
                    ? &pen_device_host_unified
                    : &pen_device_host_discrete,
      .store = store,
      .update_pool = session->update_pool,
      .division = &session->division,
      .trace = trace,
      .isa = session->isa,
      .io_depth = session->io_depth};
  if (hooks)
    options.hooks = *hooks;
  int rc = pen_run_create(&options, &session->plan, &session->run);
  if (rc == 0) /* last: what this thread starts would inherit it */
    pen_division_enter(&session->division, PEN_LANE_COMPUTE);
  return rc;
}

int pen_session_load_tile(struct pen_session *session, uint32_t tile,
                          size_t begin, size_t n, float *p, float *m, float *v)
{
  const struct pen_tile *t = &session->layout.tiles[tile];
  memset(m, 0, n * sizeof *m);
  memset(v, 0, n * sizeof *v);
  return pen_params_load_elems(session->params, session->dir, t->block,
                               t->begin + begin, n, p);
}

static int load_tile(void *ctx, uint32_t tile, size_t begin, size_t n,
                     float *p, float *m, float *v)
{
  return pen_session_load_tile(ctx, tile, begin, n, p, m, v);
}

int pen_session_load(struct pen_session *session)
{
  return pen_run_load(session->run, load_tile, session);
}

int pen_session_set_micro(struct pen_session *session, size_t micro,
                          const struct pen_batch *batch,
                          enum pen_model_logits logits)
{
  struct pen_model_micro view = {.n_tokens = batch->n_tokens,
                                 .ids = batch->ids,
                                 .positions = batch->positions,
                                 .targets = batch->targets,
                                 .n_docs = batch->n_docs,
                                 .doc_begin = batch->doc_begin};
  return pen_model_set_micro(session->model, micro, &view, logits);
}

void pen_session_close_compute(struct pen_session *s)
{
  pen_model_free(&s->model);
  pen_pool_free(&s->update_pool);
  pen_pool_free(&s->pool);
  pen_division_done(&s->division);
  pen_topology_done(&s->topology);
}

void pen_session_close(struct pen_session *session)
{
  pen_run_free(&session->run);
  pen_layout_done(&session->layout);
  pen_division_enter(&session->division, PEN_LANE_READ); /* anywhere again */
  pen_session_close_compute(session);
  pen_backend_close(&session->backend);
  pen_params_free(&session->params);
  pen_hfdir_close(&session->dir);
}
