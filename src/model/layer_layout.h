/* layer_layout.h: what a decoder layer of any family is made of: its maps and
 * norms, what a micro-batch keeps of it, its workspace, and one call of it. */
#ifndef PEN_SRC_MODEL_LAYER_LAYOUT_H
#define PEN_SRC_MODEL_LAYER_LAYOUT_H

#include <stddef.h>

#include "kernels/ops.h"
#include "src/model/params.h"

/* One matrix of a linear map: its rows are columns [col, col + out) of the
 * result.  bias is PEN_N_ROLES where there is none. */
struct pen_linear_part {
  enum pen_param_role weight, bias;
  size_t out, col;
};

/* y [T, out] = x [T, in] W^T + b, W in one part or several. */
struct pen_linear {
  struct pen_linear_part parts[3];
  size_t n_parts;
  size_t in, out;
  bool transposed; /* W is stored as [in, out]; then it has one part */
};

/* A norm of each token's `heads` vectors of `dim` elements.  weight is
 * PEN_N_ROLES where the family has no norm at this place, bias where the norm
 * is RMS. */
struct pen_norm {
  enum pen_param_role weight, bias;
  size_t heads, dim;
};

static inline bool pen_norm_exists(const struct pen_norm *n)
{
  return n->weight != PEN_N_ROLES;
}

/* What a micro-batch keeps of a layer for backward; [T, ...] each, see
 * layer_layout.c for shapes.  A buffer the model does not need has no bytes. */
enum {
  PEN_SAVED_QKV,
  PEN_SAVED_QK,
  PEN_SAVED_QK_RSTD,
  PEN_SAVED_O,
  PEN_SAVED_LSE,
  PEN_SAVED_ATTN_OUT,
  PEN_SAVED_H,
  PEN_SAVED_GATE_UP,
  PEN_SAVED_MLP_OUT,
  PEN_N_SAVED
};

/* Workspace buffers. */
enum {
  PEN_WORK_NORM,
  PEN_WORK_STATS,
  PEN_WORK_PRODUCT,
  PEN_WORK_PARTIALS,
  PEN_WORK_DOUT,
  PEN_WORK_ACT,
  PEN_WORK_DACT,
  PEN_WORK_DGATE_UP,
  PEN_WORK_DACT_F32,
  PEN_WORK_DO,
  PEN_WORK_DQKV,
  PEN_WORK_DQ_SUMS,
  PEN_WORK_LOGITS,
  PEN_WORK_DLOGITS,
  PEN_N_WORK
};

struct pen_buffer {
  const char *name;
  size_t bytes_per_token;
  size_t offset; /* bytes, from the sizes at max_tokens; 64-aligned */
};

/* Shapes and layouts that all of a model's blocks of one kind share.  What the
 * kind does not have is 0. */
struct pen_layer {
  enum pen_elem elem;
  size_t hidden, ffn;               /* C, F */
  size_t experts;                   /* that its router chooses from */
  size_t heads, kv_heads, head_dim; /* Hq, Hkv, Dh */
  size_t qk_width, qkv_width; /* (Hq + Hkv) Dh, (Hq + 2 Hkv) Dh */
  size_t gate_up_width;       /* 2 F, or F without gating */
  size_t rotary;              /* elements of each head that are rotated */
  size_t positions;           /* the model's; rows of a learned table */
  float query_scale;          /* of q k^T */
  float softcap;              /* of the scaled scores; 0: none */
  float norm_eps, norm_w_plus;
  enum pen_activation activation;
  struct pen_norm attn_norm, q_norm, k_norm, attn_post_norm;
  struct pen_norm mlp_norm, mlp_post_norm, final_norm;
  struct pen_linear qkv, o, gate_up, down;
  struct pen_buffer saved[PEN_N_SAVED], work[PEN_N_WORK];
  size_t saved_bytes; /* of one micro-batch of max_tokens */
  size_t work_bytes;  /* the saved buffers too, for recompute */
};

/* A layer's cache of one document's keys and values; keys NULL: none. */
struct pen_layer_cache {
  void *keys, *values;
  size_t first, capacity; /* as in struct pen_attention_cache */
};

/* One call: whose weights, which tokens, where. */
struct pen_layer_call {
  const struct pen_layer *layer;
  const struct pen_ops *ops;
  struct pen_stream *stream;
  const size_t *role_offset; /* elements; of the block (params.h) */
  size_t tokens;             /* T <= max_tokens */
  const uint32_t *positions; /* [T]: rows of the tables below */
  const uint32_t *first_key; /* [T]: of the document, or of the window */
  size_t window;             /* tokens; 0: none */
  const float *cosines, *sines; /* rope.h */
  struct pen_layer_cache cache; /* forward only */
  const void *w;                /* the block's weights */
  void *work;                   /* work_bytes */
};

/* Fills `layer` from the first block of a kind; all 0 where there is none.
 * Nothing to free. */
void pen_layer_init(struct pen_layer *layer, const struct pen_params *params,
                    enum pen_param_block_kind kind, enum pen_elem elem,
                    size_t max_tokens);

#endif
