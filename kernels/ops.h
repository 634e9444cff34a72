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

#include "kernels/adamw.h"
#include "kernels/elem.h"
#include "kernels/gemm.h"
#include "kernels/shapes.h"
#include "kernels/state.h"
#include "kernels/stream.h"

struct pen_ops {
  const char *backend;
  enum pen_elem elem;

  /* Can the operations run this shape?  -PEN_EUNSUPPORTED naming the bound. */
  int (*check_shape)(size_t heads, size_t kv_heads, size_t dim);

  /* See gemm.h; with the stream's library. */
  void (*gemm)(struct pen_stream *s, const struct pen_gemm *g);

  /* y = x rstd (w + w_plus), rstd = 1 / sqrt(mean(x^2) + eps) per vector
   * (Zhang and Sennrich 2019).  w [dim]; rstd fp32 [tokens, heads]. */
  void (*rmsnorm)(struct pen_stream *s, const struct pen_heads *shape,
                  const void *x, size_t ldx, const void *w, float w_plus,
                  float eps, void *y, size_t ldy, float *rstd);
  /* dx (+= with accumulate, else =) d; dw [dim] += ...  dy is E or fp32
   * (dy_elem); dx may be dy where dy is E and the strides are equal.
   * partials: pen_ops_partials_elems(tokens * heads, dim). */
  void (*rmsnorm_backward)(struct pen_stream *s, const struct pen_heads *shape,
                           const void *dy, size_t lddy, enum pen_elem dy_elem,
                           const void *x, size_t ldx, const void *w,
                           float w_plus, const float *rstd, void *dx,
                           size_t lddx, bool accumulate, float *dw,
                           float *partials);

  /* y = (x - mean) rstd w + b, rstd = 1 / sqrt(variance + eps), of rows of
   * dim elements without gaps (Ba et al. 2016).  w, b [dim]; mean, rstd fp32
   * [rows]. */
  void (*layernorm)(struct pen_stream *s, size_t rows, size_t dim,
                    const void *x, const void *w, const void *b, float eps,
                    void *y, float *mean, float *rstd);
  /* As rmsnorm_backward.  partials: pen_ops_partials_elems(rows, 2 dim). */
  void (*layernorm_backward)(struct pen_stream *s, size_t rows, size_t dim,
                             const void *dy, enum pen_elem dy_elem,
                             const void *x, const void *w, const float *mean,
                             const float *rstd, void *dx, bool accumulate,
                             float *dw, float *db, float *partials);

  /* Rotates (x[i], x[i + rotary/2]) of each vector's first `rotary` (even)
   * elements by angle(position, i), in place (Su et al. 2021, halves as in
   * transformers); the others are left alone.  cosines, sines: fp32
   * [positions, rotary/2].  inverse: by the negative angle, which is the
   * backward pass. */
  void (*rope)(struct pen_stream *s, const struct pen_heads *shape,
               size_t rotary, void *x, size_t ldx, const uint32_t *positions,
               const float *cosines, const float *sines, bool inverse);

  /* o = softmax(scale q k^T) v; lse fp32 [heads, tokens] = log of the sum of
   * exponentials (Dao et al. 2022). */
  void (*attention)(struct pen_stream *s, const struct pen_attention *a,
                    const void *q, const void *k, const void *v, void *o,
                    float *lse);
  /* work: fp32 [tokens, pen_attention_work_per_token]. */
  void (*attention_backward)(struct pen_stream *s,
                             const struct pen_attention *a, const void *q,
                             const void *k, const void *v, const void *o,
                             const float *lse, const void *d_o, float *work,
                             void *dq, void *dk, void *dv);

  /* Puts k and v of the new tokens into the cache and attends over all of it;
   * o has the bits that `attention` gives these tokens in the whole document. */
  void (*attention_cached)(struct pen_stream *s,
                           const struct pen_attention_cache *a, const void *q,
                           const void *k, const void *v, void *keys,
                           void *values, void *o);

  /* y [rows, cols] = f(gate) up (Shazeer 2020), or f(gate) where up is NULL;
   * gate and up at row stride ld. */
  void (*glu)(struct pen_stream *s, enum pen_activation f, size_t rows,
              size_t cols, const void *gate, const void *up, size_t ld,
              void *y);
  /* dgate, dup at row stride ld; dup is NULL where up is.  dy [rows, cols]. */
  void (*glu_backward)(struct pen_stream *s, enum pen_activation f,
                       size_t rows, size_t cols, const void *dy,
                       const void *gate, const void *up, size_t ld,
                       void *dgate, void *dup);

  /* x = cap tanh(x / cap), in place, at row stride ld. */
  void (*softcap)(struct pen_stream *s, size_t rows, size_t cols, float cap,
                  float *x, size_t ld);
  /* d [rows, cols] E *= 1 - (y / cap)^2, y (row stride ld) being the capped. */
  void (*softcap_backward)(struct pen_stream *s, size_t rows, size_t cols,
                           float cap, const float *y, size_t ld, void *d);

  /* x[t] = scale table[ids[t] - first_row] for tokens whose id lies in
   * [first_row, first_row + rows); the others are left alone.  table
   * [rows, dim]. */
  void (*embed)(struct pen_stream *s, const uint32_t *ids, size_t tokens,
                size_t first_row, size_t rows, size_t dim, float scale,
                const void *table, void *x);
  /* grad [rows, dim] fp32 += scale d, in token order. */
  void (*embed_backward)(struct pen_stream *s, const uint32_t *ids,
                         size_t tokens, size_t first_row, size_t rows,
                         size_t dim, float scale, const void *d, float *grad);

  /* x[t] += b [cols], in place. */
  void (*bias)(struct pen_stream *s, size_t rows, size_t cols, void *x,
               size_t ld, const void *b);
  /* db [cols] fp32 += the sum of the rows of dy. */
  void (*bias_backward)(struct pen_stream *s, size_t rows, size_t cols,
                        const void *dy, size_t ld, float *db, float *partials);

  /* y = a + b, n elements; y may be a or b. */
  void (*add)(struct pen_stream *s, size_t n, const void *a, const void *b,
              void *y);

  /* y += x, n elements, x fp32. */
  void (*add_f32)(struct pen_stream *s, size_t n, const float *x, void *y);

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
  /* pen_gradient_finish_ of gradient.h for the table's E: stored [n] E,
   * chunk_sumsq [ceil(n / chunk_elems)]; *nonfinite counts elements.  grad may
   * be NULL. */
  void (*gradient_finish)(struct pen_stream *s, size_t n, size_t chunk_elems,
                          const float *grad, void *stored, double *chunk_sumsq,
                          uint64_t *nonfinite);
  /* One AdamW step on n elements of fp32 state (adamw.h), grad and weight E;
   * params are read before the return. */
  void (*adamw)(struct pen_stream *s, const struct pen_adamw_params *params,
                bool decays, size_t n, float *p, float *m, float *v,
                const void *grad, void *weight);
  /* One AdamW step on a range of state in a compact format (state.h), all of
   * which decays or none of it; grad, the half (update's weight) and `weight`,
   * which gets a copy of it, are bf16 [part.n].  update is read before the
   * return. */
  void (*state_update)(struct pen_stream *s,
                       const struct pen_state_format *format,
                       const struct pen_state_update *update, void *weight);
  /* x = 0, n fp32. */
  void (*zero_f32)(struct pen_stream *s, size_t n, float *x);

  /* Fills r's arrays from logits [tokens, experts] fp32: softmax, each token's
   * most probable experts (of equals the first) and their weights (Shazeer et
   * al. 2017).  balance, where not NULL, [2, experts] += counts, and sums of
   * probabilities over the tokens. */
  void (*route)(struct pen_stream *s, const struct pen_routing *r,
                const float *logits, float *balance);
  /* dlogits [tokens, experts] E from dweights [tokens, per_token]; and, where
   * balance is not NULL, from route_balance with that scale. */
  void (*route_backward)(struct pen_stream *s, const struct pen_routing *r,
                         const float *dweights, const float *balance,
                         float scale, void *dlogits);
  /* *loss += scale times the sum of count * sum of probabilities, in double
   * (Fedus et al. 2021, equations 4 to 6). */
  void (*route_balance)(struct pen_stream *s, size_t experts,
                        const float *balance, float scale, double *loss);

  /* y[rows[i]] += weights[places[i]] x[i]; x [n, dim], y [tokens, dim] fp32. */
  void (*expert_add)(struct pen_stream *s, const struct pen_expert_rows *e,
                     const float *x, float *y);
  /* Backward of weights that are put in after a product: d [n, dim] fp32 is the
   * gradient of act as if they were 1.  dweights[places[i]] = d[i] act[i];
   * dact [n, dim] E = weight d; act [n, dim] E *= weight. */
  void (*expert_weigh)(struct pen_stream *s, const struct pen_expert_rows *e,
                       const float *d, void *act, void *dact, float *dweights);
};

/* The host's table for a level this machine has (isa.h) and a precision; a
 * level without a table of its own gets plain C.  Never NULL. */
const struct pen_ops *pen_ops_host(enum pen_isa isa, enum pen_elem elem);

/* Can the operations run this shape in PEN_STREAM_SCRATCH_BYTES?
 * -PEN_EUNSUPPORTED naming the bound: dim of attention even and at most 1,024. */
int pen_ops_check_shape(size_t heads, size_t kv_heads, size_t dim);

#endif
