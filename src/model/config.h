/* config.h: what a model is, as its config.json says. */
#ifndef PEN_SRC_MODEL_CONFIG_H
#define PEN_SRC_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/file_dtype.h"
#include "src/model/family.h"

struct pen_json;

enum pen_rope_type {
  PEN_ROPE_DEFAULT, /* no scaling */
  PEN_ROPE_LINEAR,  /* every inverse frequency / factor */
  PEN_ROPE_DYNAMIC, /* equals DEFAULT up to max_positions; longer sequences are
                       refused by pen_model_config_check_length */
  PEN_ROPE_LLAMA3,  /* low frequencies / factor, smooth in between */
  PEN_ROPE_YARN,    /* ramp between / 1 and / factor over dimensions */
  PEN_ROPE_LONGROPE, /* / a factor of its own for each, long sequences others */
};

/* Greatest number of rotated pairs whose factors are kept. */
#define PEN_ROPE_FACTORS_MAX ((size_t)512)

/* Rotary position embedding of the first `dim` elements of each head, halves
 * rotated ("rotate_half"): inverse frequency i = theta^(-2i / dim), i in
 * [0, dim / 2), then scaled by `type`.  Fields a type does not use are 0
 * (attention_factor: 1); all are where positions are learned. */
struct pen_rope_config {
  enum pen_rope_type type;
  size_t dim; /* even; 0: nothing is rotated */
  double theta;
  double factor;                 /* all but DEFAULT; >= 1 */
  double low_freq_factor;        /* LLAMA3 */
  double high_freq_factor;       /* LLAMA3; > low_freq_factor */
  double beta_fast, beta_slow;   /* YARN: rotations that bound the ramp */
  double attention_factor;       /* cos and sin are multiplied by this */
  size_t original_max_positions; /* LLAMA3, YARN, LONGROPE: of pretraining */
  bool truncate;                 /* YARN: ramp bounds to whole dimensions */
  /* LONGROPE: of sequences up to original_max_positions, and of longer ones */
  double short_factors[PEN_ROPE_FACTORS_MAX];
  double long_factors[PEN_ROPE_FACTORS_MAX];
};

#define PEN_MODEL_LAYERS_MAX ((size_t)1 << 12)

struct pen_model_config {
  const struct pen_model_family *family; /* borrowed for ever */
  size_t hidden_size;       /* D */
  size_t intermediate_size; /* F */
  size_t n_layers;
  size_t n_heads;    /* Hq; a multiple of n_kv_heads */
  size_t n_kv_heads; /* Hkv */
  size_t head_dim;   /* Dh; even; n_heads * head_dim may differ from D */
  size_t vocab_size; /* V: token ids are below this */
  size_t max_positions;
  size_t sliding_window; /* tokens a query sees in layers that slide; 0: in no
                            layer */
  uint64_t slides[PEN_MODEL_LAYERS_MAX / 64]; /* a bit a layer */
  enum pen_activation activation;
  double query_scale;              /* of q k^T */
  double attention_cap, final_cap; /* of scores and of logits; 0: none */
  double norm_eps;
  double init_std; /* initializer_range; 0.02 when absent */
  struct pen_rope_config rope;
  bool qkv_bias, o_bias, mlp_bias;
  size_t n_experts; /* of a layer that has some; 0: none has */
  size_t experts_per_token;
  size_t expert_size;        /* F of each */
  bool normalises_experts;   /* a token's weights sum to 1 */
  double balance_coef;       /* of the loss of balance; 0: there is none */
  uint64_t sparse[PEN_MODEL_LAYERS_MAX / 64]; /* a bit a layer: has experts */
  bool tied; /* output head and embedding are one tensor */
  enum pen_file_dtype dtype; /* torch_dtype or dtype; NONE when absent */
};

/* Reads and checks a config.json.  Any model_type outside the family table, an
 * unknown activation or rope scaling, or any other key that asks for arithmetic
 * we do not do is -PEN_EUNSUPPORTED, naming key, value and
 * what is supported; missing or impossible numbers are -PEN_EFORMAT. */
int pen_model_config_load(const char *path, struct pen_model_config *ret_config);

/* The same from a parsed document; `json` is borrowed during the call. */
int pen_model_config_parse(const struct pen_json *json,
                           struct pen_model_config *ret_config);

/* Tokens that a query of this layer sees, itself too; 0: all before it. */
size_t pen_model_config_window(const struct pen_model_config *config,
                               size_t layer);

/* Has this layer experts in place of an MLP? */
bool pen_model_config_is_sparse(const struct pen_model_config *config,
                                size_t layer);

/* Can sequences of `max_length` tokens be trained as the model is meant?
 * -PEN_EUNSUPPORTED where learned positions end, or where dynamic rope scaling
 * would begin. */
int pen_model_config_check_length(const struct pen_model_config *config,
                                  size_t max_length);

/* "llama3" and so on; never NULL. */
const char *pen_rope_type_name(enum pen_rope_type type);

#endif
