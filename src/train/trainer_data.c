/* trainer_data.c: the data of a run: opened, checked, and read step by step.
 *
 * Reading allocates nothing: one batch, made for the largest micro-batch, is
 * filled again and again and copied into the model.  Main thread.
 * Disadvantage: a step's tokens are read when it begins, not ahead. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "src/train/trainer.h"

/* The order of n training rows, and of the evaluation's. */
static void set_orders(struct pen_trainer *t, uint64_t n)
{
  t->train.order = (struct pen_order){.seed = t->set.seed,
                                      .n_sequences = n,
                                      .batch_sequences = t->set.batch_sequences,
                                      .accumulation = t->set.accumulation,
                                      .shuffle = true};
  if (t->train.order.batch_sequences > n)
    t->train.order.batch_sequences = n;
  t->eval.order = t->train.order;
  t->eval.order.shuffle = false;
  if (t->eval.set.sequences)
    t->eval.order.n_sequences = pen_sequences_n_rows(t->eval.set.sequences);
}

int pen_trainer_open_data(struct pen_trainer *t)
{
  struct pen_sequences_options cut = {
      .max_length = t->set.max_length,
      .refuse_truncation = t->set.refuse_truncation,
      .packing = t->set.packing,
      .name = t->set.data_name};
  int rc = pen_dataset_open(t->set.data, t->set.model.dir, &cut, &t->train.set);
  t->set.max_length = cut.max_length;
  cut.name = t->set.eval_data_name;
  if (rc == 0 && t->set.eval_data)
    rc = pen_dataset_open(t->set.eval_data, t->set.model.dir, &cut,
                          &t->eval.set);
  if (rc < 0)
    return rc;
  set_orders(t, pen_sequences_n_rows(t->train.set.sequences));
  return pen_order_check(&t->train.order);
}

int pen_trainer_assume_data(struct pen_trainer *t)
{
  struct pen_model_config config;
  bool is_config;
  int rc = pen_session_load_config(&t->set.model, &config, &is_config);
  if (rc < 0)
    return rc;
  if (t->set.max_length == 0)
    t->set.max_length = pen_dataset_length(&config);
  uint64_t n;
  if (__builtin_mul_overflow(t->set.batch_sequences, t->set.accumulation, &n))
    return pen_error_set(PEN_EUSAGE, "a step of %" PRIu64 " x %" PRIu64
                         " sequences", t->set.batch_sequences,
                         t->set.accumulation);
  set_orders(t, n);
  return pen_order_check(&t->train.order);
}

void pen_trainer_close_data(struct pen_trainer *t)
{
  pen_dataset_close(&t->train.set);
  pen_dataset_close(&t->eval.set);
  pen_batch_free(&t->batch);
  free(t->ids);
  t->ids = NULL;
}

struct pen_sequences_limits pen_trainer_limits(const struct pen_trainer *t)
{
  if (!t->train.set.sequences)
    return (struct pen_sequences_limits){t->set.max_length, 1};
  struct pen_sequences_limits most = pen_sequences_limits(t->train.set.sequences);
  if (t->eval.set.sequences) {
    struct pen_sequences_limits eval = pen_sequences_limits(t->eval.set.sequences);
    if (eval.n_inputs > most.n_inputs)
      most.n_inputs = eval.n_inputs;
    if (eval.n_sequences > most.n_sequences)
      most.n_sequences = eval.n_sequences;
  }
  return most;
}

int pen_trainer_fill(struct pen_trainer *t, const struct pen_trainer_data *data,
                     uint64_t step, struct pen_order_step *ret_step,
                     uint64_t *ret_inputs, uint64_t *ret_targets)
{
  uint64_t inputs = 0, targets = 0;
  pen_order_step(&data->order, step, ret_step);
  for (uint64_t micro = 0; micro < ret_step->n_micro; micro++) {
    size_t n = pen_order_micro(&data->order, ret_step, micro, t->ids);
    int rc = pen_batch_fill(t->batch, data->set.sequences, t->ids, n);
    if (rc == 0)
      rc = pen_session_set_micro(&t->session, micro, t->batch,
                                 PEN_LOGITS_NONE);
    if (rc < 0)
      return rc;
    inputs += t->batch->n_tokens;
    targets += t->batch->n_targets;
  }
  *ret_inputs = inputs;
  *ret_targets = targets;
  return 0;
}
