/* head.h: output head and cross-entropy, a block of the vocabulary at a time,
 * in chunks of tokens times chunks of ids; logits are kept where there is
 * room. */
#ifndef PEN_SRC_MODEL_HEAD_H
#define PEN_SRC_MODEL_HEAD_H

#include <stddef.h>

#include "kernels/ops.h"

/* Logits of the workspace; part of a run's numerics. */
#define PEN_HEAD_CHUNK_TOKENS ((size_t)1024)
#define PEN_HEAD_CHUNK_IDS ((size_t)2048)

/* One call: a block of the vocabulary against a micro-batch. */
struct pen_head_call {
  const struct pen_ops *ops;
  struct pen_stream *stream;
  size_t hidden;            /* C */
  size_t first_id, n_ids;   /* of the block; without padded rows */
  bool is_first;            /* of the head's blocks */
  float softcap;            /* logits are capped at this; 0: they are not */
  size_t tokens;            /* T */
  const int32_t *targets;   /* [T] */
  const void *w;            /* [n_ids, C] E */
  const void *x;            /* [T, C] E: the final norm's output */
  void *work;               /* pen_head_work_bytes */
};

size_t pen_head_work_bytes(enum pen_elem elem, size_t hidden,
                           size_t max_tokens);

/* Of the logits of a block: fp32, chunk after chunk. */
size_t pen_head_saved_bytes(size_t n_ids, size_t max_tokens);

/* Adds the block's logits to stats (ops.h, [PEN_XENT_ROWS, T]).  saved:
 * pen_head_saved_bytes to keep them in, or NULL. */
void pen_head_forward(const struct pen_head_call *c, float *stats,
                      float *saved);

/* dx [T, C] (+)= g W; grad [n_ids, C] += g^T x; g = softmax - one-hot.
 * saved: what forward kept; NULL: computed again, the same bits. */
void pen_head_backward(const struct pen_head_call *c, const float *stats,
                       const float *saved, float *dx, float *grad);

/* Column first_id on of logits [n_rows, ld] = x[rows] W^T. */
void pen_head_logits(const struct pen_head_call *c, const uint32_t *rows,
                     size_t n_rows, float *logits, size_t ld);

#endif
