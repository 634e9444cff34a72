/* cpu.h: names of the host operations.  Every file of this folder is compiled
 * once per instruction set (PEN_CPU_ISA) and element type (PEN_CPU_BF16). */
#ifndef PEN_KERNELS_CPU_CPU_H
#define PEN_KERNELS_CPU_CPU_H

#include "kernels/cpu/v16.h"
#include "kernels/ops.h"

#define PEN_CPU_JOIN_(a, b, c) a##_##b##_##c
#define PEN_CPU_JOIN(a, b, c) PEN_CPU_JOIN_(a, b, c)

#if PEN_CPU_BF16
#define PEN_CPU_NAME(name) PEN_CPU_JOIN(name, PEN_CPU_ISA, bf16)
#define PEN_CPU_ELEM PEN_ELEM_BF16
typedef uint16_t elem_t;
#define elem_load v16_load_bf16
#define elem_load_n v16_load_bf16_n
#define elem_store v16_store_bf16
#define elem_store_n v16_store_bf16_n
#else
#define PEN_CPU_NAME(name) PEN_CPU_JOIN(name, PEN_CPU_ISA, f32)
#define PEN_CPU_ELEM PEN_ELEM_F32
typedef float elem_t;
#define elem_load v16_load
#define elem_load_n v16_load_n
#define elem_store v16_store
#define elem_store_n v16_store_n
#endif

/* Lanes that remain from i on. */
#define PEN_LEFT(n, i) ((n) - (i) < 16 ? (n) - (i) : 16)

#define PEN_MIN(a, b) ((a) < (b) ? (a) : (b))

#define pen_cpu_rmsnorm PEN_CPU_NAME(pen_cpu_rmsnorm)
#define pen_cpu_rmsnorm_backward PEN_CPU_NAME(pen_cpu_rmsnorm_backward)
#define pen_cpu_layernorm PEN_CPU_NAME(pen_cpu_layernorm)
#define pen_cpu_layernorm_backward PEN_CPU_NAME(pen_cpu_layernorm_backward)
#define pen_cpu_rope PEN_CPU_NAME(pen_cpu_rope)
#define pen_cpu_attention PEN_CPU_NAME(pen_cpu_attention)
#define pen_cpu_attention_backward PEN_CPU_NAME(pen_cpu_attention_backward)
#define pen_cpu_attention_cached PEN_CPU_NAME(pen_cpu_attention_cached)
#define pen_cpu_glu PEN_CPU_NAME(pen_cpu_glu)
#define pen_cpu_glu_backward PEN_CPU_NAME(pen_cpu_glu_backward)
#define pen_cpu_softcap PEN_CPU_NAME(pen_cpu_softcap)
#define pen_cpu_softcap_backward PEN_CPU_NAME(pen_cpu_softcap_backward)
#define pen_cpu_embed PEN_CPU_NAME(pen_cpu_embed)
#define pen_cpu_embed_backward PEN_CPU_NAME(pen_cpu_embed_backward)
#define pen_cpu_bias PEN_CPU_NAME(pen_cpu_bias)
#define pen_cpu_bias_backward PEN_CPU_NAME(pen_cpu_bias_backward)
#define pen_cpu_add PEN_CPU_NAME(pen_cpu_add)
#define pen_cpu_add_f32 PEN_CPU_NAME(pen_cpu_add_f32)
#define pen_cpu_xent_begin PEN_CPU_NAME(pen_cpu_xent_begin)
#define pen_cpu_xent_add PEN_CPU_NAME(pen_cpu_xent_add)
#define pen_cpu_xent_loss PEN_CPU_NAME(pen_cpu_xent_loss)
#define pen_cpu_xent_backward PEN_CPU_NAME(pen_cpu_xent_backward)
#define pen_cpu_from_f32 PEN_CPU_NAME(pen_cpu_from_f32)
#define pen_cpu_zero_f32 PEN_CPU_NAME(pen_cpu_zero_f32)
#define pen_cpu_route PEN_CPU_NAME(pen_cpu_route)
#define pen_cpu_route_backward PEN_CPU_NAME(pen_cpu_route_backward)
#define pen_cpu_route_balance PEN_CPU_NAME(pen_cpu_route_balance)
#define pen_cpu_expert_add PEN_CPU_NAME(pen_cpu_expert_add)
#define pen_cpu_expert_weigh PEN_CPU_NAME(pen_cpu_expert_weigh)
#define pen_cpu_gemm_tile PEN_CPU_NAME(pen_cpu_gemm_tile)
#define pen_cpu_sum_partials PEN_CPU_NAME(pen_cpu_sum_partials)

/* See ops.h. */
void pen_cpu_rmsnorm(struct pen_stream *s, const struct pen_heads *shape,
                     const void *x, size_t ldx, const void *w, float w_plus,
                     float eps, void *y, size_t ldy, float *rstd);
void pen_cpu_rmsnorm_backward(struct pen_stream *s,
                              const struct pen_heads *shape, const void *dy,
                              size_t lddy, enum pen_elem dy_elem,
                              const void *x, size_t ldx, const void *w,
                              float w_plus, const float *rstd, void *dx,
                              size_t lddx, bool accumulate, float *dw,
                              float *partials);
void pen_cpu_layernorm(struct pen_stream *s, size_t rows, size_t dim,
                       const void *x, const void *w, const void *b, float eps,
                       void *y, float *mean, float *rstd);
void pen_cpu_layernorm_backward(struct pen_stream *s, size_t rows, size_t dim,
                                const void *dy, enum pen_elem dy_elem,
                                const void *x, const void *w,
                                const float *mean, const float *rstd, void *dx,
                                bool accumulate, float *dw, float *db,
                                float *partials);
void pen_cpu_rope(struct pen_stream *s, const struct pen_heads *shape,
                  size_t rotary, void *x, size_t ldx,
                  const uint32_t *positions, const float *cosines,
                  const float *sines, bool inverse);
void pen_cpu_attention(struct pen_stream *s, const struct pen_attention *a,
                       const void *q, const void *k, const void *v, void *o,
                       float *lse);
void pen_cpu_attention_backward(struct pen_stream *s,
                                const struct pen_attention *a, const void *q,
                                const void *k, const void *v, const void *o,
                                const float *lse, const void *d_o,
                                float *work, void *dq, void *dk, void *dv);
void pen_cpu_attention_cached(struct pen_stream *s,
                              const struct pen_attention_cache *a,
                              const void *q, const void *k, const void *v,
                              void *keys, void *values, void *o);
void pen_cpu_glu(struct pen_stream *s, enum pen_activation f, size_t rows,
                 size_t cols, const void *gate, const void *up, size_t ld,
                 void *y);
void pen_cpu_glu_backward(struct pen_stream *s, enum pen_activation f,
                          size_t rows, size_t cols, const void *dy,
                          const void *gate, const void *up, size_t ld,
                          void *dgate, void *dup);
void pen_cpu_softcap(struct pen_stream *s, size_t rows, size_t cols, float cap,
                     float *x, size_t ld);
void pen_cpu_softcap_backward(struct pen_stream *s, size_t rows, size_t cols,
                              float cap, const float *y, size_t ld, void *d);
void pen_cpu_embed(struct pen_stream *s, const uint32_t *ids, size_t tokens,
                   size_t first_row, size_t rows, size_t dim, float scale,
                   const void *table, void *x);
void pen_cpu_embed_backward(struct pen_stream *s, const uint32_t *ids,
                            size_t tokens, size_t first_row, size_t rows,
                            size_t dim, float scale, const void *d,
                            float *grad);
void pen_cpu_bias(struct pen_stream *s, size_t rows, size_t cols, void *x,
                  size_t ld, const void *b);
void pen_cpu_bias_backward(struct pen_stream *s, size_t rows, size_t cols,
                           const void *dy, size_t ld, float *db,
                           float *partials);
void pen_cpu_add(struct pen_stream *s, size_t n, const void *a, const void *b,
                 void *y);
void pen_cpu_add_f32(struct pen_stream *s, size_t n, const float *x, void *y);
void pen_cpu_xent_begin(struct pen_stream *s, size_t tokens, float *stats);
void pen_cpu_xent_add(struct pen_stream *s, const struct pen_logits *shape,
                      const float *logits, float *stats);
void pen_cpu_xent_loss(struct pen_stream *s, size_t tokens,
                       const int32_t *targets, const float *stats,
                       double *ret_loss);
void pen_cpu_xent_backward(struct pen_stream *s,
                           const struct pen_logits *shape, const float *logits,
                           const float *stats, void *g);
void pen_cpu_from_f32(struct pen_stream *s, size_t n, const float *x, void *y);
void pen_cpu_zero_f32(struct pen_stream *s, size_t n, float *x);
void pen_cpu_route(struct pen_stream *s, const struct pen_routing *r,
                   const float *logits, float *balance);
void pen_cpu_route_backward(struct pen_stream *s, const struct pen_routing *r,
                            const float *dweights, const float *balance,
                            float scale, void *dlogits);
void pen_cpu_route_balance(struct pen_stream *s, size_t experts,
                           const float *balance, float scale, double *loss);
void pen_cpu_expert_add(struct pen_stream *s, const struct pen_expert_rows *e,
                        const float *x, float *y);
void pen_cpu_expert_weigh(struct pen_stream *s,
                          const struct pen_expert_rows *e, const float *d,
                          void *act, void *dact, float *dweights);

/* out [cols] += partials [chunks, cols], in the order of the chunks. */
void pen_cpu_sum_partials(struct pen_stream *s, size_t chunks, size_t cols,
                          const float *partials, float *out);

/* The reference product's tile (see gemm.h), for operands of elem_t. */
int pen_cpu_gemm_tile(const struct pen_gemm *g, void *scratch);

#endif
