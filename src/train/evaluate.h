/* evaluate.h: the loss of a model on token data, and its logits. */
#ifndef PEN_SRC_TRAIN_EVALUATE_H
#define PEN_SRC_TRAIN_EVALUATE_H

#include <signal.h>

#include "src/train/settings.h"

/* A document's part of the whole. */
struct pen_evaluate_document {
  uint64_t number; /* in the file, from 0 */
  double loss_sum; /* over its target tokens */
  uint64_t n_targets, n_inputs;
};

struct pen_evaluate_settings {
  struct pen_model_settings model;
  struct pen_machine_settings machine;
  const char *data;        /* token file */
  const char *data_name;   /* what the user named and it came from; NULL: itself */
  uint32_t max_length;     /* 0: 1,024, or what the model can at most */
  bool refuse_truncation;  /* of records longer than that */
  uint64_t batch_sequences;
  /* Called for every document that has targets, in the order of the file; not 0
   * ends the evaluation with that code.  NULL: nobody asks. */
  int (*each_document)(void *ctx, const struct pen_evaluate_document *document);
  void *ctx;
  const volatile sig_atomic_t *stop; /* not 0: -PEN_ESTOPPED behind the tile
                                        that is loaded, or the batch; NULL: never */
  const char *dump_logits; /* safetensors file of ids, doc_begin, logits; NULL */
};

struct pen_evaluate_result {
  double loss; /* mean over target tokens, in nats */
  uint64_t n_targets, n_inputs, n_sequences;
};

/* Every target token once, in the order of the file, however it is batched;
 * -PEN_ENONFINITE at the first batch whose loss is no finite number. */
int pen_evaluate(const struct pen_evaluate_settings *settings,
                 struct pen_evaluate_result *ret_result);

#endif
