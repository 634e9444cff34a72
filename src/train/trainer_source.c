/* trainer_source.c: finds the newest committed state of a run: in its stores that
 * hold every tile, or in its checkpoints.
 *
 * Main thread, at start.  Disadvantage: every store is opened, though one alone
 * has the newest state. */
#include "src/train/trainer_source.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"

static const struct pen_engine *engine_of(const struct pen_trainer *t)
{
  return t->session.engine ? t->session.engine : pen_engine_find("threads");
}

static int open_store(struct pen_trainer *t, size_t number,
                      struct pen_store **ret_store)
{
  const struct pen_rundir_store *entry = &t->rundir.stores[number];
  char *dirs[PEN_STORE_DIRS_MAX] = {0};
  struct pen_store_options o = {.dirs = (const char *const *)dirs,
                                .n_dirs = entry->n_dirs,
                                .engine = engine_of(t)};
  memcpy(o.run_id, t->rundir.run_id, sizeof o.run_id);
  int rc = pen_rundir_store_dirs(&t->rundir, entry, dirs);
  if (rc == 0)
    rc = pen_store_open(&o, ret_store);
  pen_rundir_free_dirs(dirs);
  return rc;
}

int pen_trainer_open_stores(struct pen_trainer *t,
                            struct pen_trainer_stores *opened)
{
  for (size_t i = 0; i < t->rundir.n_stores; i++) {
    int rc = open_store(t, i, &opened->stores[i]);
    if (rc == -EBUSY)
      return rc;
    if (rc < 0) {
      if (rc != -ENOENT)
        pen_log_warn("store %u is not used: %s",
                     t->rundir.stores[i].generation, pen_error_text());
      pen_error_take(&opened->why);
    }
  }
  return 0;
}

/* The newest commit of a store that holds the whole state. */
static void look_in_stores(struct pen_trainer *t, const struct pen_trainer_stores *opened,
                           struct pen_trainer_source *best)
{
  for (size_t i = 0; i < t->rundir.n_stores; i++) {
    struct pen_store_commit_info info = {0};
    struct pen_cursor cursor;
    struct pen_saved *saved = NULL;
    if (!opened->stores[i])
      continue;
    pen_store_committed(opened->stores[i], &info);
    if (!info.committed ||
        pen_cursor_read(info.meta, info.meta_bytes, &cursor) < 0 ||
        !cursor.whole ||
        (best->saved && pen_saved_cursor(best->saved)->step > cursor.step) ||
        pen_saved_from_store(pen_model_workload(t->session.model),
                             opened->stores[i], &saved) < 0) {
      pen_error_clear();
      continue;
    }
    pen_saved_close(&best->saved);
    *best = (struct pen_trainer_source){saved, false, i};
  }
}

static size_t store_number(const struct pen_trainer *t,
                           const struct pen_trainer_stores *opened, uint32_t generation)
{
  for (size_t i = 0; i < t->rundir.n_stores; i++)
    if (t->rundir.stores[i].generation == generation && opened->stores[i])
      return i;
  return SIZE_MAX;
}

/* A checkpoint newer than what the stores have. */
static void look_in_checkpoints(struct pen_trainer *t,
                                const struct pen_trainer_stores *opened,
                                struct pen_trainer_source *best)
{
  uint64_t steps[1024];
  size_t n = pen_rundir_checkpoints(&t->rundir, steps, 1024), n_places;
  while (n-- > 0) {
    struct pen_saved *saved = NULL;
    if (best->saved && pen_saved_cursor(best->saved)->step >= steps[n])
      return;
    if (pen_trainer_open_checkpoint(t, steps[n], &saved) < 0) {
      pen_log_warn("checkpoint-%llu is not used: %s",
                   (unsigned long long)steps[n], pen_error_text());
      pen_error_clear();
      continue;
    }
    size_t store = SIZE_MAX;
    if (pen_saved_places(saved, &n_places)) {
      store = store_number(t, opened, pen_saved_generation(saved));
      if (store == SIZE_MAX) {
        pen_log_warn("checkpoint-%llu is not used: its store is gone",
                     (unsigned long long)steps[n]);
        pen_saved_close(&saved);
        continue;
      }
    }
    pen_saved_close(&best->saved);
    *best = (struct pen_trainer_source){saved, true, store};
    return;
  }
}

void pen_trainer_find_source(struct pen_trainer *t,
                             const struct pen_trainer_stores *opened,
                             struct pen_trainer_source *ret_source)
{
  *ret_source = (struct pen_trainer_source){.store = SIZE_MAX};
  look_in_stores(t, opened, ret_source);
  look_in_checkpoints(t, opened, ret_source);
}

void pen_trainer_close_stores(struct pen_trainer_stores *opened)
{
  for (size_t i = 0; i < PEN_RUNDIR_STORES_MAX; i++)
    pen_store_close(&opened->stores[i]);
}
