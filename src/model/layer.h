/* layer.h: forward and backward of one decoder layer of the llama family,
 * written once against pen_ops. */
#ifndef PEN_SRC_MODEL_LAYER_H
#define PEN_SRC_MODEL_LAYER_H

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
};

/* What a micro-batch keeps of a layer for backward; [T, ...] each, see layer.c
 * for shapes.  A buffer the model does not need has no bytes. */
enum {
  PEN_SAVED_QKV,
  PEN_SAVED_QK,
  PEN_SAVED_QK_RSTD,
  PEN_SAVED_O,
  PEN_SAVED_LSE,
  PEN_SAVED_H,
  PEN_SAVED_GATE_UP,
  PEN_N_SAVED
};

/* Workspace buffers. */
enum {
  PEN_WORK_NORM,
  PEN_WORK_RSTD,
  PEN_WORK_PRODUCT,
  PEN_WORK_PARTIALS,
  PEN_WORK_ACT,
  PEN_WORK_DACT,
  PEN_WORK_DGATE_UP,
  PEN_WORK_DO,
  PEN_WORK_DQKV,
  PEN_WORK_DELTA,
  PEN_N_WORK
};

struct pen_buffer {
  const char *name;
  size_t bytes_per_token;
  size_t offset; /* bytes, from the sizes at max_tokens; 64-aligned */
};

/* Shapes and layouts that all layers of a model share. */
struct pen_layer {
  enum pen_elem elem;
  size_t hidden, ffn;                /* C, F */
  size_t heads, kv_heads, head_dim; /* Hq, Hkv, Dh */
  size_t qk_width, qkv_width; /* (Hq + Hkv) Dh, (Hq + 2 Hkv) Dh */
  bool qk_norm;
  float eps;
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
  const uint32_t *positions, *first_key; /* [T] */
  const float *cosines, *sines;          /* rope.h */
  struct pen_layer_cache cache;          /* forward only */
  const void *w;                         /* the block's weights */
  void *work;                            /* work_bytes */
};

/* Fills `layer`; nothing to free. */
void pen_layer_init(struct pen_layer *layer, const struct pen_params *params,
                    enum pen_elem elem, size_t max_tokens);

/* y [T, C] = layer(x).  saved: saved_bytes, or NULL. */
void pen_layer_forward(const struct pen_layer_call *c, const void *x, void *y,
                       void *saved);

/* d [T, C]: in dL/dy, out dL/dx.  grad += dL/dw (fp32, laid out as the block).
 * saved NULL: recomputed, giving the same bits. */
void pen_layer_backward(const struct pen_layer_call *c, const void *x,
                        const void *saved, void *d, float *grad);

#endif
