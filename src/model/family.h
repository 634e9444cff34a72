/* family.h: the model families penstock trains, each a row that says in which
 * features it differs; nothing else knows a family by its name. */
#ifndef PEN_SRC_MODEL_FAMILY_H
#define PEN_SRC_MODEL_FAMILY_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/shapes.h"
#include "src/model/role.h"

/* Sizes of tensors. */
enum pen_family_dim {
  PEN_DIM_ONE,
  PEN_DIM_HIDDEN,       /* D */
  PEN_DIM_FFN,          /* F */
  PEN_DIM_GATE_AND_UP,  /* 2F */
  PEN_DIM_EXPERT_FFN,   /* F of an expert */
  PEN_DIM_EXPERTS,      /* how many there are in a layer */
  PEN_DIM_HEAD,         /* Dh */
  PEN_DIM_Q,            /* Hq*Dh */
  PEN_DIM_KV,           /* Hkv*Dh */
  PEN_DIM_QKV,          /* (Hq + 2 Hkv)*Dh */
};

/* When a tensor is there; biases by the family's and the config's words. */
enum pen_family_presence {
  PEN_ALWAYS,
  PEN_WITH_QKV_BIAS,
  PEN_WITH_O_BIAS,
  PEN_WITH_MLP_BIAS,
  PEN_WITH_QK_NORM,
};

/* A tensor of a decoder layer.  What a family's list lacks the layer goes
 * without: a norm, a bias, gating. */
struct pen_family_tensor {
  enum pen_param_role role;
  const char *name; /* within the layer */
  enum pen_family_dim rows, cols;
  enum pen_family_presence when;
};

/* Experts in place of a layer's MLP, and a router of theirs. */
struct pen_family_mixture {
  const char *names; /* of expert e of a layer: NAMES "." e "." and the tensor's */
  const struct pen_family_tensor *tensors; /* of an expert */
  size_t n_tensors;
  const char *n_key, *n_key_too; /* of config.json: how many; either */
  const char *ffn_key;           /* NULL: F is the layers' own */
  bool some_layers; /* decoder_sparse_step and mlp_only_layers say which */
  bool always_normalises; /* a token's weights; else norm_topk_prob says so */
  size_t default_n, default_per_token, default_ffn;
};

/* Names in the files: of layer i PREFIX LAYERS "." i "." and the tensor's. */
struct pen_family_names {
  const char *prefix;
  bool may_lack_prefix; /* files of the bare model, without a head, do */
  const char *layers;
  const struct pen_family_tensor *tensors; /* in the order of the block; a
                                              router in layers with experts */
  size_t n_tensors;
  const char *embed, *final_norm;
  const char *final_norm_bias, *positions; /* NULL: none */
  const char *const *buffers; /* after the prefix, '#' for digits; to NULL */
};

/* Keys of config.json; NULL where there is none and the usual default holds. */
struct pen_family_keys {
  const char *hidden, *ffn, *layers, *heads, *kv_heads, *head_dim, *positions;
  const char *norm_eps, *activation;
};

/* When a linear layer of the family has a bias. */
enum pen_family_bias {
  PEN_BIAS_NEVER,
  PEN_BIAS_ALWAYS,
  PEN_BIAS_BY_CONFIG, /* the config's attention_bias or mlp_bias */
};

/* Which layers attend in a sliding window, where sliding_window is a number.
 * Of EVEN_LAYERS and OPT_IN, layer_types, where given, says so for each layer instead. */
enum pen_family_window {
  PEN_WINDOW_NEVER,
  PEN_WINDOW_ALL_LAYERS,
  PEN_WINDOW_EVEN_LAYERS,
  PEN_WINDOW_OPT_IN, /* only with use_sliding_window, from max_window_layers */
  PEN_WINDOW_OPT_IN_ALL_LAYERS, /* only with use_sliding_window */
};

enum pen_family_positions {
  PEN_POSITIONS_ROTARY,
  PEN_POSITIONS_PARTLY_ROTARY, /* partial_rotary_factor of each head is */
  PEN_POSITIONS_LEARNED,       /* a table, added to the embedding */
};

/* What config.json's model_type stands for.  Defaults are those the published
 * implementation takes when the key is absent (transformers 5,
 * configuration_<model_type>.py). */
struct pen_model_family {
  const char *model_type;
  const struct pen_family_names *names;
  const struct pen_family_keys *keys;
  const struct pen_family_mixture *mixture; /* NULL: no experts */

  bool layernorm;    /* with mean and bias; else RMS norm */
  float norm_w_plus; /* added to the weights of norms */
  bool qk_norm;      /* RMS norm of q and k before rotation */
  enum pen_family_bias qkv_bias, o_bias, mlp_bias;
  bool transposed;   /* matrices of layers are stored [in, out] */
  enum pen_family_positions positions;
  enum pen_family_window window;
  bool scales_embedding; /* by sqrt(D) */
  bool softcaps; /* attn_logit_softcapping, final_logit_softcapping are read */
  bool scales_residual_init; /* new o and down are 1 / sqrt(2 layers) as large */
  bool passes_over_dropout;  /* published configs ask for it; none is done */

  enum pen_activation default_activation;
  size_t default_window;      /* sliding_window when absent; 0: none */
  size_t default_kv_heads;    /* 0: as many as heads */
  size_t default_head_dim;    /* 0: hidden size / heads */
  size_t default_ffn_factor;  /* times hidden size; 0: must be given */
  size_t default_positions;   /* 0: must be given */
  size_t default_original_positions; /* of longrope; 0: all positions */
  size_t default_query_scalar; /* query_pre_attn_scalar; 0: Dh, no such key */
  bool default_tied;
  double default_norm_eps;
  double default_rope_theta;
  double default_attention_cap, default_final_cap;
};

/* The row for a model_type, borrowed for ever; NULL when not supported. */
const struct pen_model_family *pen_family_find(const char *model_type);

/* Row i, for lists in messages and tests; NULL past the last. */
const struct pen_model_family *pen_family_at(size_t i);

/* What most families call keys of config.json. */
extern const struct pen_family_keys pen_family_usual_keys;

/* One file each. */
extern const struct pen_model_family pen_family_llama, pen_family_mistral,
    pen_family_qwen2, pen_family_qwen3, pen_family_gpt2, pen_family_phi3,
    pen_family_olmo2, pen_family_gemma2, pen_family_mixtral,
    pen_family_qwen3_moe;

#endif
