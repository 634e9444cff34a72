/* trainer_session.c: what a training run asks of its session.
 *
 * Main thread.  Disadvantage: sizes are those of the largest micro-batch there can
 * be, though most data have few as large. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "src/train/trainer.h"

static void shape_data(const struct pen_trainer *t,
                       struct pen_sequences_limits row,
                       struct pen_session_shape *shape)
{
  const struct pen_sequences *s = t->train.set.sequences;
  const struct pen_sequences_counts *c = pen_sequences_counts(s);
  shape->other_bytes += pen_sequences_bytes(s);
  shape->document_tokens = (double)c->n_inputs / (double)c->n_sequences;
  shape->sizes_vary =
      t->eval.set.sequences ||
      c->n_inputs != t->train.order.n_sequences * row.n_inputs;
}

int pen_trainer_open_session(struct pen_trainer *t, bool tries)
{
  uint64_t n = t->train.order.n_sequences;
  if (t->eval.set.sequences && t->eval.order.n_sequences > n)
    n = t->eval.order.n_sequences;
  uint64_t micros = (n + t->train.order.batch_sequences - 1) /
                    t->train.order.batch_sequences;
  struct pen_sequences_limits row = pen_trainer_limits(t);
  struct pen_session_shape shape = {
      .max_tokens = t->train.order.batch_sequences * row.n_inputs,
      .max_micros = micros < t->set.accumulation ? micros : t->set.accumulation,
      .head_rows = t->resumes ? t->numerics.head_rows : 0,
      .tries_gemm = !t->resumes && !t->set.plan_only && !tries,
      .config_only = t->set.plan_only,
      .commits = t->set.durable && t->set.commit_interval == 1,
      .unproved = tries || t->set.what_if,
      .whether = tries || t->set.whether,
      .known = !tries && t->known.n_simulated ? &t->known : NULL,
      .other_bytes =
          pen_batch_bytes(t->train.order.batch_sequences, row),
      .trace_bytes = t->set.trace
                         ? (size_t)PEN_LANES * PEN_TRAINER_TRACE_EVENTS *
                               sizeof(struct pen_trace_event)
                         : 0,
      .document_tokens = t->set.max_length};
  if (t->train.set.sequences)
    shape_data(t, row, &shape);
  if (t->eval.set.sequences)
    shape.other_bytes += pen_sequences_bytes(t->eval.set.sequences);
  int rc = pen_trainer_shape_samples(t, &shape);
  if (rc == 0)
    rc = pen_session_open(&t->session, &t->set.model, &t->set.machine, &shape,
                          t->set.max_length);
  if (rc < 0) {
    if (rc == -PEN_ENOFIT && !t->set.plan_only && !tries) /* plan prints it */
      pen_memory_print(&t->session.memory, stderr);
    return rc;
  }
  t->ids = calloc(t->train.order.batch_sequences, sizeof *t->ids);
  if (!t->ids)
    return pen_error_set(PEN_ENOFIT, "no memory for a batch");
  return pen_batch_create(t->train.order.batch_sequences, row, &t->batch);
}

int pen_trainer_plan_steps(struct pen_trainer *t)
{
  double per_epoch = (double)pen_order_epoch_steps(&t->train.order);
  t->n_steps = t->set.max_steps
                   ? t->set.max_steps
                   : (uint64_t)ceil(t->set.epochs * per_epoch);
  return pen_lr_init(t->set.lr_shape, t->set.lr, t->set.min_lr, t->n_steps,
                     t->set.warmup, t->set.decay_steps, &t->lr);
}

void pen_trainer_close(struct pen_trainer *t)
{
  pen_checkpoint_abandon(&t->saving);
  pen_runlog_close(&t->log);
  pen_generator_done(&t->sampler);
  pen_session_close(&t->session);
  pen_store_close(&t->store);
  pen_engine_release(&t->session.engine);
  pen_trace_free(&t->trace);
  pen_trainer_close_data(t);
  free(t->places);
  pen_rundir_close(&t->rundir);
}
