/* trainer_loop.c: the training step, and what happens between steps.
 *
 * A step's update is decided here and applied under the next step's forward; so
 * "after step N" its numbers are known but its weights are pending, and whoever
 * needs them (evaluation, save, end) carries or drains the update.  Main thread;
 * allocates nothing while steps go on.  Disadvantage: the log names a step
 * before its update is committed; resume cuts the log back. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "kernels/gradient.h"
#include "src/train/trainer.h"

static double epoch_at(const struct pen_trainer *t, uint64_t step)
{
  return (double)step / (double)pen_order_epoch_steps(&t->train.order);
}

static double gradient_scale(const struct pen_trainer *t)
{
  return t->step_targets ? 1.0 / (double)t->step_targets : 0;
}

/* AdamW's constants of a step that is the `applied`-th applied. */
static int make_params(const struct pen_trainer *t, uint64_t step,
                       uint64_t applied, float factor,
                       struct pen_adamw_params *ret_params)
{
  const struct pen_train_settings *s = &t->set;
  struct pen_adamw_hyper hyper = {pen_lr_at(&t->lr, step), s->beta1, s->beta2,
                                  s->eps, s->weight_decay};
  return pen_adamw_params_init(&hyper, applied, factor, ret_params);
}

/* What the coming step's update will be if its gradient is finite and not
 * clipped: all but its norm is known. */
static int guess(struct pen_trainer *t, uint64_t step)
{
  double norm;
  float factor = pen_gradient_factor(0, gradient_scale(t), 0, &norm);
  t->update.seed = t->set.seed;
  t->update.guess_number = t->cursor.applied + 1;
  return make_params(t, step, t->update.guess_number, factor, &t->update.guess);
}

static void note_outcome(struct pen_trainer *t)
{
  bool stands = pen_run_stands(t->session.run, &t->update);
  t->outcome = !pen_run_is_speculated(t->session.run) ? PEN_SPECULATION_WAITED
               : stands                               ? PEN_SPECULATION_STOOD
               : t->update.apply                      ? PEN_SPECULATION_REDONE
                                                      : PEN_SPECULATION_DISCARDED;
  pen_speculation_note(&t->speculation, t->outcome, !stands);
}

/* The one decision of a step: apply with which factor, or skip. */
static int decide(struct pen_trainer *t, uint64_t step)
{
  const struct pen_train_settings *s = &t->set;
  double scale = gradient_scale(t);
  float factor = pen_gradient_factor(t->result.sumsq, scale, s->max_grad_norm,
                                     &t->step_norm);
  t->step_loss = t->result.loss_sum * scale;
  t->step_lr = pen_lr_at(&t->lr, step);
  t->step_skipped = t->result.nonfinite > 0 || t->step_targets == 0;
  t->cursor.step = step + 1;
  t->cursor.n_targets += t->step_targets;
  if (t->step_skipped) {
    t->cursor.skipped++;
    t->cursor.skipped_in_row++;
  } else {
    t->cursor.applied++;
    t->cursor.skipped_in_row = 0;
  }
  t->update.apply = !t->step_skipped;
  t->update.number = t->cursor.applied;
  t->update.step = t->cursor.step;
  t->update.meta = &t->cursor;
  t->update.meta_bytes = sizeof t->cursor;
  t->update.commit = t->whole_in_store && s->durable &&
                     (t->cursor.step % s->commit_interval == 0 ||
                      t->cursor.step == t->n_steps);
  int rc = t->step_skipped ? 0
                           : make_params(t, step, t->cursor.applied, factor,
                                         &t->update.params);
  if (rc == 0)
    note_outcome(t);
  return rc;
}

static const char *block_name(const struct pen_trainer *t)
{
  uint32_t block = t->result.nonfinite_block;
  return block == UINT32_MAX
             ? NULL
             : pen_model_workload(t->session.model)->blocks[block].name;
}

static int after_skip(struct pen_trainer *t, uint64_t step)
{
  const char *block = block_name(t);
  if (!t->step_skipped)
    return 0;
  pen_log_warn("step %llu is skipped: %llu non-finite gradient elements, first "
               "in block %s (%llu skipped so far)",
               (unsigned long long)step + 1,
               (unsigned long long)t->result.nonfinite, block ? block : "-",
               (unsigned long long)t->cursor.skipped);
  if (t->cursor.skipped_in_row < t->set.max_skips)
    return 0;
  return pen_error_set(PEN_ENONFINITE,
                       "%llu steps in a row had non-finite gradients, the last "
                       "one, step %llu, first in block %s; lower "
                       "--learning-rate or look at the data (--max-skips)",
                       (unsigned long long)t->cursor.skipped_in_row,
                       (unsigned long long)step + 1, block ? block : "-");
}

/* The lane that was busy longest, and how much of the step. */
static enum pen_lane binding_lane(const struct pen_run_result *r)
{
  int most = 0;
  for (int lane = 1; lane < PEN_LANES; lane++)
    if (r->busy_ns[lane] > r->busy_ns[most])
      most = lane;
  return most;
}

static int log_step(struct pen_trainer *t, uint64_t step)
{
  const struct pen_run_result *r = &t->result;
  enum pen_lane lane = binding_lane(r);
  double seconds = (double)r->wall_ns * 1e-9;
  double tokens_per_second = (double)t->step_inputs / seconds;
  char bound[48];
  snprintf(bound, sizeof bound, "%s %.0f%%", pen_lane_name(lane),
           100.0 * (double)r->busy_ns[lane] / (double)r->wall_ns);
  struct pen_progress_state shown = {.step = step + 1,
                                     .loss = t->step_loss,
                                     .grad_norm = t->step_norm,
                                     .learning_rate = t->step_lr,
                                     .tokens_per_second = tokens_per_second,
                                     .n_skipped = t->cursor.skipped,
                                     .bound = bound};
  pen_progress_step(&t->progress, &shown);
  if (!t->set.logging_steps || (step + 1) % t->set.logging_steps != 0)
    return 0;
  struct pen_runlog_step line = {
      .step = step + 1,
      .epoch = epoch_at(t, step + 1),
      .loss = t->step_skipped ? NAN : t->step_loss,
      .grad_norm = t->step_skipped ? NAN : t->step_norm,
      .learning_rate = t->step_lr,
      .tokens_per_second = tokens_per_second,
      .step_seconds = seconds,
      .n_tokens = t->step_targets,
      .n_skipped = t->cursor.skipped,
      .skipped_block = t->step_skipped ? block_name(t) : NULL,
      .bound = bound,
      .nvme_written = pen_trainer_written(t),
      .speculation = t->session.layout.n_speculative
                         ? pen_speculation_name(t->outcome)
                         : NULL,
      .n_redone = t->speculation.n[PEN_SPECULATION_REDONE],
      .n_discarded = t->speculation.n[PEN_SPECULATION_DISCARDED]};
  return pen_runlog_append_step(t->log, &line);
}

/* What is pending, as a part of the step that made it. */
static int apply_now(struct pen_trainer *t)
{
  struct pen_shape drain = {.kind = PEN_STEP_DRAIN};
  struct pen_run_result more;
  int rc = pen_run_step(t->session.run, &drain, &t->update, &more);
  if (rc < 0)
    return rc;
  t->result.wall_ns += more.wall_ns;
  for (int lane = 0; lane < PEN_LANES; lane++)
    t->result.busy_ns[lane] += more.busy_ns[lane];
  return 0;
}

static int train_step(struct pen_trainer *t, uint64_t step)
{
  struct pen_order_step order;
  int rc = pen_trainer_fill(t, &t->train, step, &order, &t->step_inputs,
                            &t->step_targets);
  struct pen_shape shape = {.kind = PEN_STEP_TRAIN,
                            .n_micros = order.n_micro,
                            .n_tokens = (double)t->step_inputs,
                            .speculates =
                                t->step_targets > 0 &&
                                pen_speculation_may(&t->speculation)};
  if (rc == 0)
    rc = guess(t, step);
  if (rc == 0)
    rc = pen_run_step(t->session.run, &shape, &t->update, &t->result);
  if (rc == 0)
    rc = pen_trainer_keep_products(t);
  if (rc == 0)
    rc = decide(t, step);
  if (rc == 0 && t->set.machine.updates_after_backward)
    rc = apply_now(t);
  if (rc == 0)
    rc = log_step(t, step);
  return rc < 0 ? rc : after_skip(t, step);
}

/* Token-weighted loss over all evaluation data. */
static int evaluate(struct pen_trainer *t)
{
  uint64_t steps = pen_order_epoch_steps(&t->eval.order);
  double loss = 0;
  uint64_t n_targets = 0;
  for (uint64_t i = 0; i < steps; i++) {
    struct pen_order_step order;
    uint64_t inputs, targets;
    int rc = pen_trainer_fill(t, &t->eval, i, &order, &inputs, &targets);
    struct pen_shape shape = {.kind = PEN_STEP_EVAL,
                              .n_micros = order.n_micro,
                              .n_tokens = (double)inputs};
    if (rc == 0)
      rc = pen_run_step(t->session.run, &shape, &t->update, &t->result);
    if (rc < 0)
      return rc;
    loss += t->result.loss_sum;
    n_targets += targets;
  }
  loss /= (double)n_targets;
  pen_log_info("step %llu: evaluation loss %.4f over %llu tokens",
               (unsigned long long)t->cursor.step, loss,
               (unsigned long long)n_targets);
  return pen_runlog_append_eval(t->log, t->cursor.step,
                                epoch_at(t, t->cursor.step), loss, n_targets);
}

static bool is_due(uint64_t interval, uint64_t step)
{
  return interval && step && step % interval == 0;
}

static bool has_checkpoint(const struct pen_trainer *t)
{
  struct pen_saved *saved = NULL;
  bool has = pen_trainer_open_checkpoint(t, t->cursor.step, &saved) == 0;
  if (!has)
    pen_error_clear();
  pen_saved_close(&saved);
  return has;
}

/* What is due after the newest step and has not been done: also what a run
 * killed in between still owes. */
static int do_due(struct pen_trainer *t)
{
  int rc = 0;
  if (t->eval.set.sequences && is_due(t->set.eval_steps, t->cursor.step) &&
      pen_runlog_last_eval_step(t->log) < t->cursor.step)
    rc = evaluate(t);
  if (rc == 0 && is_due(t->set.samples_every, t->cursor.step) &&
      pen_runlog_last_sample_step(t->log) < t->cursor.step)
    rc = pen_trainer_sample(t, epoch_at(t, t->cursor.step));
  if (rc == 0 && is_due(t->set.save_steps, t->cursor.step) &&
      !has_checkpoint(t))
    rc = pen_trainer_checkpoint(t);
  return rc;
}

/* Leaves nothing undone, and says why and how to go on. */
static int stop(struct pen_trainer *t, const char *why)
{
  bool commits = t->whole_in_store;
  t->update.commit = commits;
  int rc = commits ? pen_trainer_drain(t) : 0;
  if (rc == 0 && !commits && !has_checkpoint(t))
    rc = pen_trainer_checkpoint(t);
  pen_progress_end(&t->progress);
  if (rc < 0)
    return rc;
  return pen_error_set(PEN_ESTOPPED,
                       "stopped after step %llu of %llu, which is saved%s; go "
                       "on with the same command and --resume",
                       (unsigned long long)t->cursor.step,
                       (unsigned long long)t->n_steps, why);
}

/* A run that has changed no weight has made no model. */
static int check_applied(const struct pen_trainer *t)
{
  const char *block = t->result.nonfinite ? block_name(t) : NULL;
  if (t->cursor.applied)
    return 0;
  return pen_error_set(PEN_ENONFINITE,
                       "all %llu steps were skipped%s%s: nothing was trained and "
                       "no model is written; look at the weights (penstock verify "
                       "%s) and the data, or lower --learning-rate",
                       (unsigned long long)t->n_steps,
                       block ? ", the last for non-finite gradients first in "
                               "block " : "",
                       block ? block : "", t->set.model.dir);
}

int pen_trainer_loop(struct pen_trainer *t)
{
  pen_progress_begin(&t->progress, 2, t->cursor.step, t->n_steps);
  int rc = pen_trainer_begin_wear(t);
  if (rc == 0)
    rc = do_due(t);
  while (rc == 0 && t->cursor.step < t->n_steps) {
    rc = train_step(t, t->cursor.step);
    if (rc == 0)
      rc = do_due(t);
    if (rc < 0 || t->cursor.step == t->n_steps)
      continue;
    if (t->set.stop && *t->set.stop)
      return stop(t, "");
    if (!pen_trainer_may_write(t))
      return stop(t, ", since another would write more to drives than "
                     "--max-write; raise it");
  }
  pen_progress_end(&t->progress);
  if (rc == 0)
    rc = check_applied(t);
  return rc < 0 ? rc : pen_trainer_export(t);
}
