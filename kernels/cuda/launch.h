/* launch.h: the CUDA kernels as plain C functions, one per operation of
 * kernels/ops.h (gemm aside), of kernels/gradient.h and of kernels/adamw.h.
 *
 * Each queues its kernels on the stream and returns: 0, or the cudaError_t of
 * the launch.  None allocates, waits or keeps anything; work space is the
 * caller's.  Every pointer is the device's (also inside shapes: first_key,
 * targets), and aligned to its elements; rows and pointers that are multiples
 * of 16 bytes are faster and give the same bits.  Shapes themselves are read
 * before the return.  Meaning, shapes and aliasing are those of ops.h: E is
 * `elem`.
 *
 * Results are the host's bit for bit where marked [bits]; elsewhere sums have
 * an order of their own, fixed, so that a result never changes from run to
 * run (docs/NUMERICS.md, "On the GPU").  Empty shapes are no launch. */
#ifndef PEN_KERNELS_CUDA_LAUNCH_H
#define PEN_KERNELS_CUDA_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/adamw.h"
#include "kernels/elem.h"
#include "kernels/shapes.h"
#include "kernels/state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cudaStream_t, without CUDA's headers. */
typedef struct CUstream_st *pen_cuda_stream;

/* Head dimensions that attention takes: even, up to this. */
#define PEN_CUDA_ATTENTION_DIM_MAX ((size_t)256)

int pen_cuda_rmsnorm(pen_cuda_stream s, enum pen_elem elem,
                     const struct pen_heads *shape, const void *x, size_t ldx,
                     const void *w, float w_plus, float eps, void *y,
                     size_t ldy, float *rstd);
int pen_cuda_rmsnorm_backward(pen_cuda_stream s, enum pen_elem elem,
                              const struct pen_heads *shape, const void *dy,
                              size_t lddy, enum pen_elem dy_elem,
                              const void *x, size_t ldx, const void *w,
                              float w_plus, const float *rstd, void *dx,
                              size_t lddx, bool accumulate, float *dw,
                              float *partials);

int pen_cuda_layernorm(pen_cuda_stream s, enum pen_elem elem, size_t rows,
                       size_t dim, const void *x, const void *w, const void *b,
                       float eps, void *y, float *mean, float *rstd);
int pen_cuda_layernorm_backward(pen_cuda_stream s, enum pen_elem elem,
                                size_t rows, size_t dim, const void *dy,
                                enum pen_elem dy_elem, const void *x,
                                const void *w, const float *mean,
                                const float *rstd, void *dx, bool accumulate,
                                float *dw, float *db, float *partials);

/* [bits] */
int pen_cuda_rope(pen_cuda_stream s, enum pen_elem elem,
                  const struct pen_heads *shape, size_t rotary, void *x,
                  size_t ldx, const uint32_t *positions, const float *cosines,
                  const float *sines, bool inverse);

/* bf16: scores and probabilities pass through bf16 tensor cores. */
int pen_cuda_attention(pen_cuda_stream s, enum pen_elem elem,
                       const struct pen_attention *a, const void *q,
                       const void *k, const void *v, void *o, float *lse);
/* The cache: [capacity, kv_heads, dim].  o has pen_cuda_attention's bits. */
int pen_cuda_attention_cached(pen_cuda_stream s, enum pen_elem elem,
                              const struct pen_attention_cache *c,
                              const void *q, const void *k, const void *v,
                              void *keys, void *values, void *o);
/* delta: work space, fp32 [heads, tokens]. */
int pen_cuda_attention_backward(pen_cuda_stream s, enum pen_elem elem,
                                const struct pen_attention *a, const void *q,
                                const void *k, const void *v, const void *o,
                                const float *lse, const void *d_o,
                                float *delta, void *dq, void *dk, void *dv);

/* [bits] both */
int pen_cuda_glu(pen_cuda_stream s, enum pen_elem elem, enum pen_activation f,
                 size_t rows, size_t cols, const void *gate, const void *up,
                 size_t ld, void *y);
int pen_cuda_glu_backward(pen_cuda_stream s, enum pen_elem elem,
                          enum pen_activation f, size_t rows, size_t cols,
                          const void *dy, const void *gate, const void *up,
                          size_t ld, void *dgate, void *dup);

/* [bits] both */
int pen_cuda_softcap(pen_cuda_stream s, size_t rows, size_t cols, float cap,
                     float *x, size_t ld);
int pen_cuda_softcap_backward(pen_cuda_stream s, enum pen_elem elem,
                              size_t rows, size_t cols, float cap,
                              const float *y, size_t ld, void *d);

/* [bits] both */
int pen_cuda_embed(pen_cuda_stream s, enum pen_elem elem, const uint32_t *ids,
                   size_t tokens, size_t first_row, size_t rows, size_t dim,
                   float scale, const void *table, void *x);
int pen_cuda_embed_backward(pen_cuda_stream s, enum pen_elem elem,
                            const uint32_t *ids, size_t tokens,
                            size_t first_row, size_t rows, size_t dim,
                            float scale, const void *d, float *grad);

/* [bits] */
int pen_cuda_bias(pen_cuda_stream s, enum pen_elem elem, size_t rows,
                  size_t cols, void *x, size_t ld, const void *b);
int pen_cuda_bias_backward(pen_cuda_stream s, enum pen_elem elem, size_t rows,
                           size_t cols, const void *dy, size_t ld, float *db,
                           float *partials);

/* [bits] both */
int pen_cuda_add(pen_cuda_stream s, enum pen_elem elem, size_t n,
                 const void *a, const void *b, void *y);
int pen_cuda_add_f32(pen_cuda_stream s, enum pen_elem elem, size_t n,
                     const float *x, void *y);

int pen_cuda_xent_begin(pen_cuda_stream s, size_t tokens, float *stats);
int pen_cuda_xent_add(pen_cuda_stream s, const struct pen_logits *shape,
                      const float *logits, float *stats);
/* *loss: on the device, or host memory it can write. */
int pen_cuda_xent_loss(pen_cuda_stream s, size_t tokens,
                       const int32_t *targets, const float *stats,
                       double *loss);
/* [bits], given the statistics. */
int pen_cuda_xent_backward(pen_cuda_stream s, enum pen_elem elem,
                           const struct pen_logits *shape, const float *logits,
                           const float *stats, void *g);

/* [bits] */
int pen_cuda_from_f32(pen_cuda_stream s, enum pen_elem elem, size_t n,
                      const float *x, void *y);
int pen_cuda_zero_f32(pen_cuda_stream s, size_t n, float *x);

/* [bits] all of route; rows and places are the host's too.  Arrays inside the
 * shapes are the device's. */
int pen_cuda_route(pen_cuda_stream s, const struct pen_routing *r,
                   const float *logits, float *balance);
int pen_cuda_route_backward(pen_cuda_stream s, enum pen_elem elem,
                            const struct pen_routing *r, const float *dweights,
                            const float *balance, float scale, void *dlogits);
int pen_cuda_route_balance(pen_cuda_stream s, size_t experts,
                           const float *balance, float scale, double *loss);
/* [bits] */
int pen_cuda_expert_add(pen_cuda_stream s, const struct pen_expert_rows *e,
                        const float *x, float *y);
int pen_cuda_expert_weigh(pen_cuda_stream s, enum pen_elem elem,
                          const struct pen_expert_rows *e, const float *d,
                          void *act, void *dact, float *dweights);

/* [bits] pen_gradient_finish_bf16 or _f32 with chunks of chunk_elems (a
 * multiple of 16), grad may be NULL: stored [n] E, chunk_sumsq [chunks] and
 * *nonfinite are written, all on the device. */
int pen_cuda_gradient_finish(pen_cuda_stream s, enum pen_elem elem, size_t n,
                             size_t chunk_elems, const float *grad,
                             void *stored, double *chunk_sumsq,
                             uint64_t *nonfinite);

/* [bits] pen_adamw_update_bf16, _bf16_f32grad or _f32: by the elements of
 * grad and weight; a bf16 grad with an fp32 weight does not exist. */
int pen_cuda_adamw(pen_cuda_stream s, const struct pen_adamw_params *params,
                   bool decays, size_t n, float *p, float *m, float *v,
                   enum pen_elem grad_elem, const void *grad,
                   enum pen_elem weight_elem, void *weight);

/* [bits] pen_state_update of a compact format, all of whose elements decay or
 * none: arrays at their first element, u->weight is the half, weight its copy;
 * u's arrays are the device's. */
int pen_cuda_state_update(pen_cuda_stream s, enum pen_state_kind kind,
                          const struct pen_state_update *u, void *const *arrays,
                          void *weight);

#ifdef __cplusplus
}
#endif

#endif
