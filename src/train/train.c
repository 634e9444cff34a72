/* train.c: a training run from its settings to its last file.
 *
 * Nothing is written before the plan fits; what the plan lists is then taken at
 * once.  Main thread.  Disadvantage: token files are opened before the model's
 * fit is known, which for very many sequences takes their table's memory. */
#include "src/train/train.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "io/files.h"
#include "src/train/trainer.h"

int pen_train_check_output(const struct pen_train_settings *s)
{
  return s->resume || s->overwrite ? 0 : pen_rundir_check_free(s->output_dir);
}

/* Opens the run directory of a resume, and lets its numerics rule. */
static int open_rundir(struct pen_trainer *t)
{
  struct pen_train_settings *s = &t->set;
  bool exists = pen_rundir_exists(s->output_dir);
  int rc = pen_train_check_output(s);
  if (rc < 0)
    return rc;
  if (s->resume && !exists)
    pen_log_info("nothing to resume in %s: starting from the beginning",
                 s->output_dir);
  if (!exists || !s->resume)
    return 0;
  rc = pen_rundir_open(s->output_dir, &t->rundir);
  if (rc < 0)
    return rc;
  struct pen_numerics *n = &t->numerics;
  *n = t->rundir.numerics;
  n->state = pen_rundir_state(&t->rundir);
  rc = pen_numerics_check(n, s);
  if (rc < 0)
    return rc;
  t->resumes = true;
  s->max_length = n->max_length;
  s->batch_sequences = n->batch_sequences;
  s->accumulation = n->accumulation;
  s->packing = n->packing;
  s->seed = n->seed;
  s->machine.tile_elems = t->rundir.tile_elems;
  if (s->model.state)
    n->state = s->model.state;
  s->model.state = n->state;
  s->model.any_elem = false;
  s->model.elem = n->elem;
  s->model.gemm = n->gemm;
  s->model.tf32 = n->tf32;
  return 0;
}

/* Fixes the numerics of a new run, or holds a resumed one's against what this
 * machine and these data give. */
static int settle_numerics(struct pen_trainer *t)
{
  const char *gemm = pen_session_products(&t->session);
  const char *variant = pen_session_products_variant(&t->session);
  struct pen_numerics now = {
      .version = PEN_NUMERICS_VERSION,
      .elem = t->session.elem,
      .state = t->session.state,
      .tf32 = t->set.model.tf32,
      .max_length = t->set.max_length,
      .batch_sequences = t->set.batch_sequences,
      .accumulation = t->set.accumulation,
      .packing = t->set.packing,
      .head_rows = t->session.params->head_rows,
      .seed = t->set.seed,
      .data_fingerprint = pen_sequences_fingerprint(t->train.set.sequences)};
  snprintf(now.gemm, sizeof now.gemm, "%s", gemm);
  snprintf(now.gemm_variant, sizeof now.gemm_variant, "%s", variant);
  if (!t->resumes) {
    t->numerics = now;
    return 0;
  }
  if (now.data_fingerprint != t->numerics.data_fingerprint)
    return pen_error_set(PEN_EMISMATCH,
                         "--data %s is not the data this run was started with",
                         t->set.data_name);
  if (pen_numerics_hash(&now) != pen_numerics_hash(&t->numerics))
    return pen_error_set(PEN_EMISMATCH,
                         "this machine's %s is %s, the run was started with %s "
                         "and would change its numbers here",
                         gemm, variant, t->numerics.gemm_variant);
  return 0;
}

/* The run directory, written only now that everything fits.  It says that state is
 * being changed before any is. */
static int make_rundir(struct pen_trainer *t)
{
  char path[4096];
  int rc = 0;
  if (!t->resumes)
    rc = pen_rundir_create(t->set.output_dir, t->set.overwrite, &t->numerics,
                           &t->rundir);
  if (rc == 0 && !t->resumes)
    rc = pen_trainer_begin_products(t);
  size_t tile_elems = t->session.layout.placement.tile_elems;
  bool changes = pen_rundir_state(&t->rundir) != t->numerics.state;
  if (rc == 0 && (changes || t->rundir.tile_elems != tile_elems)) {
    if (changes)
      t->rundir.becomes = t->numerics.state;
    t->rundir.tile_elems = tile_elems;
    rc = pen_rundir_save(&t->rundir);
  }
  if (rc == 0 && t->set.config_text) {
    pen_rundir_file(&t->rundir, "config.yaml", path);
    rc = pen_files_write_whole(path, t->set.config_text,
                               strlen(t->set.config_text));
  }
  if (rc == 0 && t->set.trace)
    rc = pen_trace_create(PEN_LANES, PEN_TRAINER_TRACE_EVENTS, &t->trace);
  for (int lane = 0; rc == 0 && t->trace && lane < PEN_LANES; lane++)
    pen_trace_name_lane(t->trace, (size_t)lane, pen_lane_name(lane));
  return rc;
}

/* What was committed has the format that this start wanted. */
static int end_change(struct pen_trainer *t)
{
  if (!t->rundir.becomes)
    return 0;
  t->rundir.numerics.state = t->rundir.becomes;
  t->rundir.becomes = NULL;
  return pen_rundir_save(&t->rundir);
}

static int run(struct pen_trainer *t)
{
  char path[4096];
  int rc = pen_trainer_attach(t);
  if (rc < 0 && !t->resumes) {
    pen_run_free(&t->session.run);
    pen_store_close(&t->store);
    pen_rundir_undo(&t->rundir);
    return rc;
  }
  if (rc == 0)
    rc = end_change(t);
  if (rc == 0)
    rc = pen_trainer_check_products(t);
  if (rc == 0)
    pen_trainer_tell_memory(&t->session);
  pen_rundir_file(&t->rundir, "log.jsonl", path);
  if (rc == 0)
    rc = pen_runlog_open(path, t->cursor.step, &t->log);
  if (rc == 0)
    rc = pen_trainer_open_samples(t);
  if (rc == 0)
    rc = pen_trainer_loop(t);
  if (t->trace && (rc == 0 || rc == -PEN_ESTOPPED)) {
    struct pen_error kept;
    pen_error_take(&kept);
    int saved = pen_trace_save(t->trace, t->set.trace);
    rc = kept.code ? pen_error_put(&kept) : saved;
  }
  return rc;
}

/* A finished run's state, if it is not wanted. */
static int discard_state(struct pen_trainer *t)
{
  pen_run_free(&t->session.run);
  pen_store_close(&t->store);
  return pen_rundir_remove_stores(&t->rundir, t->session.engine
                                                  ? t->session.engine
                                                  : pen_engine_find("threads"));
}

int pen_train(const struct pen_train_settings *settings)
{
  struct pen_trainer t = {.set = *settings, .rundir = {.lock_fd = -1}};
  int rc = open_rundir(&t);
  if (rc == 0)
    rc = pen_trainer_open_data(&t);
  if (rc == 0)
    rc = pen_trainer_plan_steps(&t);
  if (rc == 0)
    rc = pen_trainer_open_cut(&t);
  if (rc == 0)
    rc = settle_numerics(&t);
  if (rc == 0 && t.resumes)
    rc = pen_trainer_load_products(&t);
  if (rc == 0)
    rc = pen_trainer_check_space(&t);
  if (rc == 0)
    pen_trainer_tell_start(&t);
  if (rc == 0 && !settings->dry_run)
    rc = make_rundir(&t);
  if (rc == 0 && !settings->dry_run)
    rc = run(&t);
  if (rc == 0 && !settings->dry_run && settings->discard_state)
    rc = discard_state(&t);
  if (rc == 0 && !settings->dry_run)
    pen_trainer_tell_outcomes(&t);
  if (rc == 0 && !settings->dry_run)
    pen_log_info("finished after %" PRIu64 " steps; the model is in %s/model",
                 t.cursor.step, settings->output_dir);
  pen_trainer_close(&t);
  return rc;
}
