/* ops.h: the arithmetic of a transformer on raw pointers, one table of
 * operations per backend and precision.
 *
 * E is the table's element type (bf16 or fp32).  All sums are fp32; a result
 * stored as bf16 is rounded once, to nearest even.  Strides and counts are in
 * elements, size_t throughout.  Outputs need not be initialised unless they
 * are accumulated to ("+=").  Results do not depend on the number of threads,
 * nor on the instruction set.  Inputs and outputs do not overlap unless said.
 * Failures stick to the stream (stream.h). */
#ifndef PEN_KERNELS_OPS_H
#define PEN_KERNELS_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/elem.h"
#include "kernels/gemm.h"
#include "kernels/shapes.h"
#include "kernels/stream.h"

struct pen_ops {
  const char *backend;
  enum pen_elem elem;

  /* See gemm.h; with the stream's library. */
  void (*gemm)(struct pen_stream *s, const struct pen_gemm *g);

  /* y = x rstd w, rstd = 1 / sqrt(mean(x^2) + eps) per vector (Zhang and
   * Sennrich 2019).  w [dim]; rstd fp32 [tokens, heads]. */
  void (*rmsnorm)(struct pen_stream *s, const struct pen_heads *shape,
                  const void *x, size_t ldx, const void *w, float eps, void *y,
                  size_t ldy, float *rstd);
  /* dx (+= with accumulate, else =) d; dw [dim] += ...  dy is E or fp32
   * (dy_elem); dx may be dy where dy is E and the strides are equal.
   * partials: pen_ops_partials_elems(tokens * heads, dim). */
  void (*rmsnorm_backward)(struct pen_stream *s, const struct pen_heads *shape,
                           const void *dy, size_t lddy, enum pen_elem dy_elem,
                           const void *x, size_t ldx, const void *w,
                           const float *rstd, void *dx, size_t lddx,
                           bool accumulate, float *dw, float *partials);

  /* Rotates (x[i], x[i + dim/2]) by angle(position, i), in place (Su et al.
   * 2021, halves as in transformers).  cosines, sines: fp32 [positions,
   * dim/2].  inverse: by the negative angle, which is the backward pass. */
  void (*rope)(struct pen_stream *s, const struct pen_heads *shape, void *x,
               size_t ldx, const uint32_t *positions, const float *cosines,
               const float *sines, bool inverse);

  /* o = softmax(scale q k^T) v; lse fp32 [heads, tokens] = log of the sum of
   * exponentials (Dao et al. 2022). */
  void (*attention)(struct pen_stream *s, const struct pen_attention *a,
                    const void *q, const void *k, const void *v, void *o,
                    float *lse);
  /* delta: workspace, fp32 [heads, tokens]. */
  void (*attention_backward)(struct pen_stream *s,
                             const struct pen_attention *a, const void *q,
                             const void *k, const void *v, const void *o,
                             const float *lse, const void *d_o, float *delta,
                             void *dq, void *dk, void *dv);

  /* Puts k and v of the new tokens into the cache and attends over all of it;
   * o has the bits that `attention` gives these tokens in the whole document. */
  void (*attention_cached)(struct pen_stream *s,
                           const struct pen_attention_cache *a, const void *q,
                           const void *k, const void *v, void *keys,
                           void *values, void *o);

  /* y [rows, cols] = silu(gate) up; gate and up at row stride ld. */
  void (*swiglu)(struct pen_stream *s, size_t rows, size_t cols,
                 const void *gate, const void *up, size_t ld, void *y);
  /* dgate, dup at row stride ld; dy [rows, cols]. */
  void (*swiglu_backward)(struct pen_stream *s, size_t rows, size_t cols,
                          const void *dy, const void *gate, const void *up,
                          size_t ld, void *dgate, void *dup);

  /* x[t] = table[ids[t] - first_row] for tokens whose id lies in [first_row,
   * first_row + rows); the others are left alone.  table [rows, dim]. */
  void (*embed)(struct pen_stream *s, const uint32_t *ids, size_t tokens,
                size_t first_row, size_t rows, size_t dim, const void *table,
                void *x);
  /* grad [rows, dim] fp32 += d, in token order. */
  void (*embed_backward)(struct pen_stream *s, const uint32_t *ids,
                         size_t tokens, size_t first_row, size_t rows,
                         size_t dim, const void *d, float *grad);

  /* x[t] += b [cols], in place. */
  void (*bias)(struct pen_stream *s, size_t rows, size_t cols, void *x,
               size_t ld, const void *b);
  /* db [cols] fp32 += the sum of the rows of dy. */
  void (*bias_backward)(struct pen_stream *s, size_t rows, size_t cols,
                        const void *dy, size_t ld, float *db, float *partials);

  /* y = a + b, n elements; y may be a or b. */
  void (*add)(struct pen_stream *s, size_t n, const void *a, const void *b,
              void *y);

  /* Empty statistics. */
  void (*xent_begin)(struct pen_stream *s, size_t tokens, float *stats);
  /* Adds logits to the statistics of their tokens. */
  void (*xent_add)(struct pen_stream *s, const struct pen_logits *shape,
                   const float *logits, float *stats);
  /* *ret_loss = sum over tokens with a target of log(sum e^logit) - logit of
   * the target, in double, in token order. */
  void (*xent_loss)(struct pen_stream *s, size_t tokens,
                    const int32_t *targets, const float *stats,
                    double *ret_loss);
  /* g [rows, cols] E = softmax - one-hot of the target; 0 without target. */
  void (*xent_backward)(struct pen_stream *s, const struct pen_logits *shape,
                        const float *logits, const float *stats, void *g);

  /* y = x rounded to E. */
  void (*from_f32)(struct pen_stream *s, size_t n, const float *x, void *y);
  /* x = 0, n fp32. */
  void (*zero_f32)(struct pen_stream *s, size_t n, float *x);
};

/* The host's table for a level this machine has (isa.h) and a precision; a
 * level without a table of its own gets plain C.  Never NULL. */
const struct pen_ops *pen_ops_host(enum pen_isa isa, enum pen_elem elem);

/* Can the operations run this shape in PEN_STREAM_SCRATCH_BYTES?
 * -PEN_EUNSUPPORTED naming the bound: dim of attention even and at most 1,024. */
int pen_ops_check_shape(size_t heads, size_t kv_heads, size_t dim);

#endif
