/* trainer_state.c: goes on from the newest committed state of a run, in the store
 * it lies in or by moving it to where this start wants it; or from the beginning.
 *
 * A move ends with a commit, or a checkpoint, of the same step in the new place;
 * only then may the old place go.  Main thread, at start.  Disadvantage: a move
 * between two stores needs room for both. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"
#include "io/files.h"
#include "src/train/trainer_source.h"

static bool needs_store(const struct pen_trainer *t)
{
  return t->session.layout.n_store_tiles > 0 ||
         t->session.layout.tier_bytes[PEN_TIER_NVME] > 0;
}

static int create_store(struct pen_trainer *t, uint32_t generation)
{
  const struct pen_layout *l = &t->session.layout;
  char *dirs[PEN_STORE_DIRS_MAX] = {0};
  struct pen_store_options o = {
      .dirs = (const char *const *)dirs,
      .n_dirs = t->set.machine.n_nvme_dirs,
      .engine = t->session.engine,
      .tile_bytes = l->tile_bytes,
      .n_tiles = l->n_store_tiles,
      .n_extents = pen_trainer_extents(t),
      .scratch_bytes = l->tier_bytes[PEN_TIER_NVME],
      .in_place = !t->set.durable};
  memcpy(o.run_id, t->rundir.run_id, sizeof o.run_id);
  int rc = pen_rundir_add_store(&t->rundir, generation, t->set.machine.nvme_dirs,
                                t->set.machine.n_nvme_dirs);
  if (rc == 0)
    rc = pen_rundir_save(&t->rundir);
  if (rc == 0)
    rc = pen_rundir_store_dirs(
        &t->rundir, pen_rundir_find_store(&t->rundir, generation), dirs);
  if (rc == 0)
    rc = pen_store_create(&o, true, &t->store);
  t->generation = generation;
  pen_rundir_free_dirs(dirs);
  return rc;
}

/* Loaders for pen_run_load. */
struct loader {
  struct pen_trainer *t;
  struct pen_saved *saved;
  bool in_place;
};

static int load_saved(void *ctx, uint32_t number, size_t begin, size_t n,
                      float *p, float *m, float *v)
{
  struct loader *loader = ctx;
  const struct pen_tile *tile = &loader->t->session.layout.tiles[number];
  int rc = pen_saved_read(loader->saved, tile->block, tile->begin + begin, n, p,
                          m, v);
  if (rc < 0)
    return rc;
  return loader->in_place && tile->store_tile != UINT32_MAX ? PEN_RUN_IN_STORE
                                                            : 0;
}

static int load_model(void *ctx, uint32_t number, size_t begin, size_t n,
                      float *p, float *m, float *v)
{
  struct loader *loader = ctx;
  return pen_session_load_tile(&loader->t->session, number, begin, n, p, m, v);
}

/* A log line is never younger than the state it tells of. */
static int sync_log(void *ctx)
{
  struct pen_trainer *t = ctx;
  return t->log ? pen_runlog_sync(t->log) : 0;
}

static int save_tile(void *ctx, uint32_t tile, const void *state,
                     const void *half)
{
  struct pen_trainer *t = ctx;
  return pen_checkpoint_save_tile(t->saving, tile, state, half);
}

static int save_block(void *ctx, uint32_t block, const void *weights)
{
  struct pen_trainer *t = ctx;
  return pen_checkpoint_save_block(t->saving, block, weights);
}

static int start_session(struct pen_trainer *t)
{
  struct pen_run_hooks hooks = {.ctx = t,
                                .before_commit = sync_log,
                                .save_tile = save_tile,
                                .save_block = save_block,
                                .stop = t->set.stop};
  size_t n = t->session.layout.n_store_tiles;
  t->places = calloc(n ? n : 1, sizeof *t->places);
  if (!t->places)
    return pen_error_set(PEN_ENOFIT, "no memory for %zu tiles' places", n);
  return pen_session_start(&t->session, t->store, t->trace, &hooks);
}

/* The first commit of state that was just put in a new store. */
static int first_commit(struct pen_trainer *t)
{
  t->cursor.tile_elems = t->session.layout.placement.tile_elems;
  t->cursor.whole = t->whole_in_store;
  t->cursor.state = (uint32_t)pen_state_number(t->session.layout.state);
  if (!t->whole_in_store || !t->set.durable)
    return 0;
  return pen_store_commit(t->store, t->cursor.step, &t->cursor,
                          sizeof t->cursor);
}

static int start_fresh(struct pen_trainer *t)
{
  uint32_t generation =
      t->rundir.n_stores
          ? t->rundir.stores[t->rundir.n_stores - 1].generation + 1
          : 0;
  struct loader loader = {.t = t};
  int rc = needs_store(t) ? create_store(t, generation) : 0;
  if (rc == 0)
    rc = start_session(t);
  if (rc == 0)
    rc = pen_run_load(t->session.run, load_model, &loader);
  return rc < 0 ? rc : first_commit(t);
}

/* Can the run go on in the very store the state lies in? */
static bool fits_in_place(struct pen_trainer *t, const struct pen_trainer_source *source,
                          const struct pen_store *store)
{
  const struct pen_layout *l = &t->session.layout;
  const struct pen_rundir_store *entry = &t->rundir.stores[source->store];
  if (!pen_saved_matches(source->saved, l) ||
      entry->n_dirs != t->set.machine.n_nvme_dirs ||
      pen_store_tile_bytes(store) != l->tile_bytes ||
      pen_store_scratch_bytes(store) != l->tier_bytes[PEN_TIER_NVME] ||
      pen_store_n_extents(store) < pen_trainer_extents(t) ||
      (!t->set.durable && pen_store_n_extents(store) != l->n_store_tiles))
    return false;
  for (size_t d = 0; d < entry->n_dirs; d++) {
    char *asked = realpath(t->set.machine.nvme_dirs[d], NULL);
    char *there = realpath(entry->dirs[d], NULL);
    bool same = asked && there && strcmp(asked, there) == 0;
    free(asked);
    free(there);
    if (!same)
      return false;
  }
  return true;
}

/* A checkpoint older than its store's newest commit: take the store back. */
static int rewind_store(struct pen_trainer_source *source, struct pen_store *store)
{
  size_t n;
  const struct pen_store_place *places = pen_saved_places(source->saved, &n);
  if (!source->is_checkpoint || !places)
    return 0;
  int rc = pen_store_rewind(store, places, n);
  return rc < 0 ? rc : pen_saved_use_store(source->saved, store);
}

static int move_state(struct pen_trainer *t, struct pen_trainer_source *source)
{
  uint32_t newest = 0;
  for (size_t i = 0; i < t->rundir.n_stores; i++)
    newest = t->rundir.stores[i].generation + 1;
  struct loader loader = {t, source->saved, false};
  int rc = needs_store(t) ? create_store(t, newest) : 0;
  if (rc == 0)
    rc = start_session(t);
  if (rc == 0)
    rc = pen_run_load(t->session.run, load_saved, &loader);
  if (rc == 0)
    rc = first_commit(t);
  if (rc == 0 && !t->whole_in_store && !source->is_checkpoint)
    rc = pen_trainer_checkpoint(t);
  return rc;
}

static int stay_in_place(struct pen_trainer *t, struct pen_trainer_source *source,
                         struct pen_trainer_stores *opened)
{
  struct loader loader = {t, source->saved, true};
  t->store = opened->stores[source->store];
  opened->stores[source->store] = NULL;
  t->generation = t->rundir.stores[source->store].generation;
  int rc = start_session(t);
  if (rc == 0)
    rc = pen_trainer_pin_checkpoints(t);
  if (rc == 0)
    rc = pen_run_load(t->session.run, load_saved, &loader);
  return rc;
}

/* Formats that keep all of fp32's state give the same numbers. */
static void tell_of_conversion(const struct pen_trainer *t,
                               const struct pen_state_format *from)
{
  const struct pen_state_format *to = t->numerics.state;
  if (from == to || (from->exact && to->exact))
    return;
  if (to->rounds)
    pen_log_warn("state in %s becomes %s: that rounds %s, to nearest; from here "
                 "on the numbers are those of %s", from->name, to->name,
                 to->rounds, to->name);
  else
    pen_log_info("state in %s becomes %s, exactly; from here on the numbers are "
                 "those of %s", from->name, to->name, to->name);
}

/* The format is known by the state itself: a run whose format was being changed
 * when it was killed still has the old one. */
static int resume_from(struct pen_trainer *t, struct pen_trainer_source *source,
                       struct pen_trainer_stores *opened)
{
  struct pen_store *store =
      source->store == SIZE_MAX ? NULL : opened->stores[source->store];
  t->cursor = *pen_saved_cursor(source->saved);
  const struct pen_state_format *format = pen_state_numbered(t->cursor.state);
  if (t->cursor.numerics_hash != pen_numerics_hash_in(&t->numerics, format))
    return pen_error_set(PEN_EMISMATCH,
                         "the state of %s was computed with other numerics "
                         "than run.json says; one of the two is not this run's",
                         t->rundir.path);
  int rc = store ? rewind_store(source, store) : 0;
  if (rc < 0)
    return rc;
  pen_log_info("resuming after step %llu, from %s",
               (unsigned long long)t->cursor.step,
               source->is_checkpoint ? "a checkpoint" : "the store's commit");
  tell_of_conversion(t, format);
  t->cursor.numerics_hash = pen_numerics_hash(&t->numerics);
  if (store && fits_in_place(t, source, store))
    return stay_in_place(t, source, opened);
  return move_state(t, source);
}

/* A run that got somewhere, and whose drive is not mounted, is not begun anew. */
static int check_not_lost(const struct pen_trainer *t,
                          const struct pen_trainer_stores *opened)
{
  char path[4096];
  struct stat log;
  pen_rundir_file(&t->rundir, "log.jsonl", path);
  if (!opened->why.code || stat(path, &log) < 0 || log.st_size == 0)
    return 0;
  return pen_error_say(opened->why.code,
                       "%s has logged steps, but their state cannot be read: %s; "
                       "is its drive there? (--overwrite starts over)",
                       t->rundir.path, opened->why.text);
}

/* Did the run export its model? */
static bool is_finished(const struct pen_trainer *t)
{
  char path[4096];
  pen_rundir_file(&t->rundir, "model", path);
  return pen_files_exists(path);
}

int pen_trainer_attach(struct pen_trainer *t)
{
  struct pen_trainer_stores opened = {0};
  struct pen_trainer_source source = {.store = SIZE_MAX};
  t->whole_in_store = t->session.layout.n_store_tiles > 0 &&
                      t->session.layout.n_store_tiles ==
                          t->session.layout.n_tiles;
  t->cursor = (struct pen_cursor){
      .magic = PEN_CURSOR_MAGIC,
      .version = PEN_CURSOR_VERSION,
      .numerics_hash = pen_numerics_hash(&t->numerics),
      .tile_elems = t->session.layout.placement.tile_elems,
      .whole = t->whole_in_store,
      .state = (uint32_t)pen_state_number(t->session.layout.state)};
  if (!t->resumes)
    return start_fresh(t);
  size_t unfinished = pen_rundir_clean(&t->rundir);
  if (unfinished)
    pen_log_info("removed %zu half-written folders of %s", unfinished,
                 t->rundir.path);
  int rc = pen_trainer_open_stores(t, &opened);
  if (rc == 0) {
    pen_trainer_find_source(t, &opened, &source);
    if (source.saved) {
      rc = resume_from(t, &source, &opened);
    } else if ((rc = check_not_lost(t, &opened)) < 0) {
      ; /* as it is: what is not there now may come back */
    } else if (is_finished(t)) {
      rc = pen_error_say(-EEXIST,
                         "%s holds a finished model, whose optimizer state was "
                         "not kept (--save-steps keeps it): there is nothing "
                         "to go on from; start over with --overwrite, or from "
                         "%s/model in another --output-dir",
                         t->rundir.path, t->rundir.path);
    } else {
      pen_log_info("nothing was committed in %s: starting from the beginning",
                   t->rundir.path);
      rc = start_fresh(t);
    }
  }
  pen_saved_close(&source.saved);
  pen_trainer_close_stores(&opened);
  return rc < 0 ? rc : pen_trainer_collect_stores(t);
}
