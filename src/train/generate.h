/* generate.h: token after token from a model. */
#ifndef PEN_SRC_TRAIN_GENERATE_H
#define PEN_SRC_TRAIN_GENERATE_H

#include "src/train/settings.h"

struct pen_generate_settings {
  struct pen_model_settings model;
  struct pen_machine_settings machine;
  const uint32_t *prompt; /* [n_prompt], at least one */
  size_t n_prompt;
  size_t max_new_tokens;
  bool greedy;            /* the most likely token; the first of equals */
  double temperature;     /* else drawn from softmax(logits / temperature) */
  uint64_t seed;
};

/* Adds up to max_new_tokens ids behind the prompt and stops after the model's
 * end token (generation_config.json, else config.json).  *ret_ids are prompt
 * and new tokens; the caller frees. */
int pen_generate(const struct pen_generate_settings *settings,
                 uint32_t **ret_ids, size_t *ret_n);

/* A model's begin token by its generation_config.json, else config.json; -1
 * where neither has one. */
int pen_generate_begin_token(const char *model_dir, int64_t *ret_id);

#endif
