/* family.h: the model families penstock trains, one row of one table each. */
#ifndef PEN_SRC_MODEL_FAMILY_H
#define PEN_SRC_MODEL_FAMILY_H

#include <stdbool.h>
#include <stddef.h>

/* When a linear layer of the family has a bias. */
enum pen_family_bias {
  PEN_BIAS_NEVER,
  PEN_BIAS_ALWAYS,
  PEN_BIAS_BY_CONFIG, /* the config's attention_bias or mlp_bias */
};

/* How a family uses its sliding_window key. */
enum pen_family_window {
  PEN_WINDOW_NEVER,
  PEN_WINDOW_ALL_LAYERS, /* wherever sliding_window is a number */
  PEN_WINDOW_OPT_IN,     /* only with use_sliding_window, from layer
                            max_window_layers on, or by layer_types */
};

/* What config.json's model_type stands for.  Defaults are those the published
 * implementation takes when the key is absent (transformers 5,
 * configuration_<model_type>.py). */
struct pen_model_family {
  const char *model_type;
  enum pen_family_bias qkv_bias;
  enum pen_family_bias o_bias;
  enum pen_family_bias mlp_bias;
  bool qk_norm; /* RMS norm over each head's q and k before rotation */
  enum pen_family_window window;
  size_t default_window;      /* sliding_window when absent; 0: none */
  size_t default_kv_heads;    /* 0: as many as heads */
  size_t default_head_dim;    /* 0: hidden size / heads */
  size_t default_positions;   /* max_position_embeddings when absent */
  bool default_tied;
  double default_norm_eps;
  double default_rope_theta;
};

/* The row for a model_type, borrowed for ever; NULL when not supported. */
const struct pen_model_family *pen_family_find(const char *model_type);

/* Row i, for lists in messages and tests; NULL past the last. */
const struct pen_model_family *pen_family_at(size_t i);

#endif
