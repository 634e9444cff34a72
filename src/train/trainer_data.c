/* trainer_data.c: the data of a run: opened, checked, and read step by step.
 *
 * Reading allocates nothing: one batch, made for the largest micro-batch, is
 * filled again and again and copied into the model.  Main thread.
 * Disadvantage: a step's tokens are read when it begins, not ahead. */
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "src/train/trainer.h"

#define MAX_LENGTH_AUTO 1024 /* as TRL's SFTTrainer */

static int open_one(struct pen_trainer *t, const char *path,
                    struct pen_trainer_data *data)
{
  uint8_t hash[PEN_SHA256_BYTES];
  bool has_hash = false;
  struct pen_model_config config = {0};
  char file[4096], note[256];
  snprintf(file, sizeof file, "%s/config.json", t->set.model.dir);
  int rc = pen_model_config_load(file, &config);
  if (rc == 0)
    rc = pen_tokens_hash_tokenizer(t->set.model.dir, hash, &has_hash);
  struct pen_tokens_options options = {
      .vocab_size = (uint32_t)config.vocab_size,
      .tokenizer_sha256 = has_hash ? hash : NULL};
  if (rc == 0 && t->set.max_length == 0)
    t->set.max_length = config.max_positions < MAX_LENGTH_AUTO
                            ? (uint32_t)config.max_positions
                            : MAX_LENGTH_AUTO;
  struct pen_sequences_options cut = {.max_length = t->set.max_length};
  if (rc == 0)
    rc = pen_tokens_open(path, &options, &data->tokens);
  if (rc == 0)
    rc = pen_sequences_create(data->tokens, &cut, &data->sequences);
  if (rc < 0)
    return rc;
  if (pen_sequences_note(data->sequences, note, sizeof note))
    pen_log_warn("%s: %s", path, note);
  return 0;
}

int pen_trainer_open_data(struct pen_trainer *t)
{
  int rc = open_one(t, t->set.data, &t->train);
  if (rc == 0 && t->set.eval_data)
    rc = open_one(t, t->set.eval_data, &t->eval);
  if (rc < 0)
    return rc;
  uint64_t n = pen_sequences_counts(t->train.sequences)->n_sequences;
  t->train.order = (struct pen_order){.seed = t->set.seed,
                                      .n_sequences = n,
                                      .batch_sequences = t->set.batch_sequences,
                                      .accumulation = t->set.accumulation,
                                      .shuffle = true};
  if (t->train.order.batch_sequences > n)
    t->train.order.batch_sequences = n;
  t->eval.order = t->train.order;
  t->eval.order.shuffle = false;
  if (t->eval.sequences)
    t->eval.order.n_sequences =
        pen_sequences_counts(t->eval.sequences)->n_sequences;
  return pen_order_check(&t->train.order);
}

void pen_trainer_close_data(struct pen_trainer *t)
{
  struct pen_trainer_data *both[] = {&t->train, &t->eval};
  for (int i = 0; i < 2; i++) {
    pen_sequences_free(&both[i]->sequences);
    pen_tokens_close(&both[i]->tokens);
  }
  pen_batch_free(&t->batch);
  free(t->ids);
  t->ids = NULL;
}

uint32_t pen_trainer_longest_inputs(const struct pen_trainer *t)
{
  uint32_t longest = pen_sequences_longest_inputs(t->train.sequences);
  if (t->eval.sequences &&
      pen_sequences_longest_inputs(t->eval.sequences) > longest)
    longest = pen_sequences_longest_inputs(t->eval.sequences);
  return longest;
}

int pen_trainer_fill(struct pen_trainer *t, const struct pen_trainer_data *data,
                     uint64_t step, struct pen_order_step *ret_step,
                     uint64_t *ret_inputs, uint64_t *ret_targets)
{
  uint64_t inputs = 0, targets = 0;
  pen_order_step(&data->order, step, ret_step);
  for (uint64_t micro = 0; micro < ret_step->n_micro; micro++) {
    size_t n = pen_order_micro(&data->order, ret_step, micro, t->ids);
    int rc = pen_batch_fill(t->batch, data->sequences, t->ids, n);
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
