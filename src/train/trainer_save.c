/* trainer_save.c: checkpoints, the final model, and the stores they keep.
 *
 * A save is a step without a forward: it applies what is pending, commits the
 * store, and hands tiles and weights to the folder being written.  Extents of a
 * checkpoint are pinned before the folder gets its name and freed only after it
 * lost it.  Main thread.  Disadvantage: training waits for the save. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "src/train/trainer.h"

size_t pen_trainer_extents(const struct pen_trainer *t)
{
  size_t tiles = t->session.layout.n_store_tiles, aside = 0;
  if (!t->set.durable)
    return tiles;
  uint64_t kept = 1; /* the one a signal asks for, or the next before the last
                        is removed */
  if (t->set.save_steps)
    kept += t->set.save_total_limit ? t->set.save_total_limit
                                    : t->n_steps / t->set.save_steps;
  /* What is written aside has room where a commit has let go of what was there
   * before, which comes first only if every step commits. */
  if (t->set.commit_interval > 1 || tiles < t->session.layout.n_tiles)
    aside = t->session.layout.n_speculative_store_tiles;
  return tiles * (2 + kept) + aside;
}

static int drain(struct pen_trainer *t, bool save)
{
  struct pen_shape shape = {.kind = PEN_STEP_DRAIN, .save = save};
  t->update.commit = t->whole_in_store;
  /* A save commits even where no step came before it, as after a resume. */
  t->update.step = t->cursor.step;
  t->update.meta = &t->cursor;
  t->update.meta_bytes = sizeof t->cursor;
  if (!save && !pen_run_is_pending(t->session.run))
    return 0;
  return pen_run_step(t->session.run, &shape, &t->update, &t->result);
}

int pen_trainer_drain(struct pen_trainer *t) { return drain(t, false); }

int pen_trainer_open_checkpoint(const struct pen_trainer *t, uint64_t step,
                                struct pen_saved **ret_saved)
{
  char path[4096], file[4096 + 32];
  pen_rundir_checkpoint_path(&t->rundir, step, path);
  snprintf(file, sizeof file, "%s/" PEN_SAVED_FILE, path);
  return pen_saved_open(file, ret_saved);
}

/* A checkpoint's state whose tiles lie in the store of that generation; NULL
 * when it has none there (weights only, another store, damaged). */
static struct pen_saved *state_in_store(const struct pen_trainer *t,
                                        uint64_t step, uint32_t generation)
{
  struct pen_saved *saved = NULL;
  size_t n;
  if (pen_trainer_open_checkpoint(t, step, &saved) < 0) {
    pen_error_clear();
    return NULL;
  }
  if (!pen_saved_places(saved, &n) || pen_saved_generation(saved) != generation)
    pen_saved_close(&saved);
  return saved;
}

static int remove_checkpoint(struct pen_trainer *t, uint64_t step)
{
  size_t n;
  struct pen_saved *saved =
      t->store ? state_in_store(t, step, t->generation) : NULL;
  int rc = pen_rundir_remove_checkpoint(&t->rundir, step);
  const struct pen_store_place *places =
      saved ? pen_saved_places(saved, &n) : NULL;
  if (rc == 0 && places)
    rc = pen_store_unpin_places(t->store, places, n);
  pen_saved_close(&saved);
  return rc;
}

static int prune(struct pen_trainer *t)
{
  uint64_t steps[1024];
  size_t n = pen_rundir_checkpoints(&t->rundir, steps, 1024);
  int rc = 0;
  if (!t->set.save_total_limit)
    return 0;
  for (size_t i = 0; rc == 0 && i + t->set.save_total_limit < n; i++)
    rc = remove_checkpoint(t, steps[i]);
  return rc < 0 ? rc : pen_trainer_collect_stores(t);
}

int pen_trainer_checkpoint(struct pen_trainer *t)
{
  char path[4096];
  bool in_store = t->session.layout.n_store_tiles > 0;
  /* In place nothing pins: such a checkpoint holds weights only. */
  bool with_state = !in_store || t->set.durable;
  pen_rundir_checkpoint_path(&t->rundir, t->cursor.step, path);
  int rc = t->log ? pen_runlog_sync(t->log) : 0; /* none yet while moving */
  if (rc == 0)
    rc = pen_checkpoint_begin(&t->session, path, t->set.chat_template,
                              with_state ? &t->cursor : NULL,
                              in_store ? t->generation : PEN_SAVED_NO_STORE,
                              &t->saving);
  if (rc == 0)
    rc = drain(t, true);
  if (rc == 0 && in_store && with_state)
    rc = pen_store_pin(t->store, t->places);
  if (rc < 0) {
    pen_checkpoint_abandon(&t->saving);
    return pen_error_context(rc, "saving %s", path);
  }
  rc = pen_checkpoint_finish(&t->saving,
                             in_store && with_state ? t->places : NULL);
  /* While state is being moved the old stores are still open. */
  return rc < 0 || !t->log ? rc : prune(t);
}

int pen_trainer_export(struct pen_trainer *t)
{
  char path[4096];
  pen_rundir_file(&t->rundir, "model", path);
  int rc = pen_runlog_sync(t->log);
  if (rc == 0)
    rc = pen_checkpoint_begin(&t->session, path, t->set.chat_template, NULL,
                              PEN_SAVED_NO_STORE, &t->saving);
  if (rc == 0)
    rc = drain(t, true);
  if (rc == 0)
    return pen_checkpoint_finish(&t->saving, NULL);
  pen_checkpoint_abandon(&t->saving);
  return pen_error_context(rc, "writing %s", path);
}

static bool is_needed(struct pen_trainer *t, uint32_t generation)
{
  uint64_t steps[1024];
  if (t->store && generation == t->generation)
    return true;
  size_t n = pen_rundir_checkpoints(&t->rundir, steps, 1024);
  for (size_t i = 0; i < n; i++) {
    struct pen_saved *saved = state_in_store(t, steps[i], generation);
    bool refers = saved != NULL;
    pen_saved_close(&saved);
    if (refers)
      return true;
  }
  return false;
}

int pen_trainer_collect_stores(struct pen_trainer *t)
{
  int rc = 0;
  for (size_t i = 0; rc == 0 && i < t->rundir.n_stores;) {
    uint32_t generation = t->rundir.stores[i].generation;
    if (is_needed(t, generation)) {
      i++;
      continue;
    }
    rc = pen_rundir_remove_store(&t->rundir, generation, t->session.engine
                                     ? t->session.engine
                                     : pen_engine_find("threads"));
  }
  return rc;
}

int pen_trainer_pin_checkpoints(struct pen_trainer *t)
{
  uint64_t steps[1024];
  size_t n = pen_rundir_checkpoints(&t->rundir, steps, 1024);
  int rc = 0;
  for (size_t i = 0; rc == 0 && i < n; i++) {
    size_t n_places;
    struct pen_saved *saved = state_in_store(t, steps[i], t->generation);
    const struct pen_store_place *places =
        saved ? pen_saved_places(saved, &n_places) : NULL;
    if (places)
      rc = pen_store_pin_places(t->store, places, n_places);
    pen_saved_close(&saved);
  }
  return rc;
}
