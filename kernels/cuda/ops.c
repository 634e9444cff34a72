/* ops.c: the table of operations (ops.h) over the kernels of launch.h; compiled
 * once per precision (PEN_CUDA_BF16).
 *
 * Every row queues work on the compute queue and returns; a failure to queue
 * sticks to the stream.  Disadvantage: a function per operation that only passes
 * on, since kernels know neither streams' errors nor tables. */
#include "base/error.h"
#include "kernels/cuda/state.h"

#if PEN_CUDA_BF16
#define PEN_CUDA_ELEM PEN_ELEM_BF16
#define PEN_CUDA_TABLE pen_cuda_ops_bf16
#else
#define PEN_CUDA_ELEM PEN_ELEM_F32
#define PEN_CUDA_TABLE pen_cuda_ops_f32
#endif

static pen_cuda_stream queue(const struct pen_stream *s)
{
  const struct pen_cuda *cuda = s->device;
  return cuda->queues[PEN_DEVICE_COMPUTE];
}

static void check(struct pen_stream *s, int cuda_error, const char *what)
{
  if (cuda_error)
    pen_cuda_stream_fail(s, what, pen_cuda_error_text(cuda_error));
}

static int check_shape(size_t heads, size_t kv_heads, size_t dim)
{
  if (!dim || dim % 2 || dim > PEN_CUDA_ATTENTION_DIM_MAX)
    return pen_cuda_error_set(PEN_EUNSUPPORTED,
                              "head_dim %zu: attention on CUDA takes even sizes "
                              "up to %zu; use --backend host",
                              dim, PEN_CUDA_ATTENTION_DIM_MAX);
  if (!kv_heads || heads % kv_heads)
    return pen_cuda_error_set(PEN_EUNSUPPORTED,
                              "%zu heads are not a multiple of %zu key heads",
                              heads, kv_heads);
  return 0;
}

static void rmsnorm(struct pen_stream *s, const struct pen_heads *shape,
                    const void *x, size_t ldx, const void *w, float w_plus,
                    float eps, void *y, size_t ldy, float *rstd)
{
  check(s, pen_cuda_rmsnorm(queue(s), PEN_CUDA_ELEM, shape, x, ldx, w, w_plus,
                            eps, y, ldy, rstd), "rmsnorm");
}

static void rmsnorm_backward(struct pen_stream *s,
                             const struct pen_heads *shape, const void *dy,
                             size_t lddy, enum pen_elem dy_elem, const void *x,
                             size_t ldx, const void *w, float w_plus,
                             const float *rstd, void *dx, size_t lddx,
                             bool accumulate, float *dw, float *partials)
{
  check(s, pen_cuda_rmsnorm_backward(queue(s), PEN_CUDA_ELEM, shape, dy, lddy,
                                     dy_elem, x, ldx, w, w_plus, rstd, dx, lddx,
                                     accumulate, dw, partials),
        "rmsnorm_backward");
}

static void layernorm(struct pen_stream *s, size_t rows, size_t dim,
                      const void *x, const void *w, const void *b, float eps,
                      void *y, float *mean, float *rstd)
{
  check(s, pen_cuda_layernorm(queue(s), PEN_CUDA_ELEM, rows, dim, x, w, b, eps,
                              y, mean, rstd), "layernorm");
}

static void layernorm_backward(struct pen_stream *s, size_t rows, size_t dim,
                               const void *dy, enum pen_elem dy_elem,
                               const void *x, const void *w, const float *mean,
                               const float *rstd, void *dx, bool accumulate,
                               float *dw, float *db, float *partials)
{
  check(s, pen_cuda_layernorm_backward(queue(s), PEN_CUDA_ELEM, rows, dim, dy,
                                       dy_elem, x, w, mean, rstd, dx,
                                       accumulate, dw, db, partials),
        "layernorm_backward");
}

static void rope(struct pen_stream *s, const struct pen_heads *shape,
                 size_t rotary, void *x, size_t ldx, const uint32_t *positions,
                 const float *cosines, const float *sines, bool inverse)
{
  check(s, pen_cuda_rope(queue(s), PEN_CUDA_ELEM, shape, rotary, x, ldx,
                         positions, cosines, sines, inverse), "rope");
}

static void attention(struct pen_stream *s, const struct pen_attention *a,
                      const void *q, const void *k, const void *v, void *o,
                      float *lse)
{
  check(s, pen_cuda_attention(queue(s), PEN_CUDA_ELEM, a, q, k, v, o, lse),
        "attention");
}

static void attention_backward(struct pen_stream *s,
                               const struct pen_attention *a, const void *q,
                               const void *k, const void *v, const void *o,
                               const float *lse, const void *d_o, float *delta,
                               void *dq, void *dk, void *dv)
{
  check(s, pen_cuda_attention_backward(queue(s), PEN_CUDA_ELEM, a, q, k, v, o,
                                       lse, d_o, delta, dq, dk, dv),
        "attention_backward");
}

static void attention_cached(struct pen_stream *s,
                             const struct pen_attention_cache *a, const void *q,
                             const void *k, const void *v, void *keys,
                             void *values, void *o)
{
  check(s, pen_cuda_attention_cached(queue(s), PEN_CUDA_ELEM, a, q, k, v, keys,
                                     values, o), "attention_cached");
}

static void glu(struct pen_stream *s, enum pen_activation f, size_t rows,
                size_t cols, const void *gate, const void *up, size_t ld,
                void *y)
{
  check(s, pen_cuda_glu(queue(s), PEN_CUDA_ELEM, f, rows, cols, gate, up, ld,
                        y), "glu");
}

static void glu_backward(struct pen_stream *s, enum pen_activation f,
                         size_t rows, size_t cols, const void *dy,
                         const void *gate, const void *up, size_t ld,
                         void *dgate, void *dup)
{
  check(s, pen_cuda_glu_backward(queue(s), PEN_CUDA_ELEM, f, rows, cols, dy,
                                 gate, up, ld, dgate, dup), "glu_backward");
}

static void softcap(struct pen_stream *s, size_t rows, size_t cols, float cap,
                    float *x, size_t ld)
{
  check(s, pen_cuda_softcap(queue(s), rows, cols, cap, x, ld), "softcap");
}

static void softcap_backward(struct pen_stream *s, size_t rows, size_t cols,
                             float cap, const float *y, size_t ld, void *d)
{
  check(s, pen_cuda_softcap_backward(queue(s), PEN_CUDA_ELEM, rows, cols, cap,
                                     y, ld, d), "softcap_backward");
}

static void embed(struct pen_stream *s, const uint32_t *ids, size_t tokens,
                  size_t first_row, size_t rows, size_t dim, float scale,
                  const void *table, void *x)
{
  check(s, pen_cuda_embed(queue(s), PEN_CUDA_ELEM, ids, tokens, first_row, rows,
                          dim, scale, table, x), "embed");
}

static void embed_backward(struct pen_stream *s, const uint32_t *ids,
                           size_t tokens, size_t first_row, size_t rows,
                           size_t dim, float scale, const void *d, float *grad)
{
  check(s, pen_cuda_embed_backward(queue(s), PEN_CUDA_ELEM, ids, tokens,
                                   first_row, rows, dim, scale, d, grad),
        "embed_backward");
}

static void bias(struct pen_stream *s, size_t rows, size_t cols, void *x,
                 size_t ld, const void *b)
{
  check(s, pen_cuda_bias(queue(s), PEN_CUDA_ELEM, rows, cols, x, ld, b),
        "bias");
}

static void bias_backward(struct pen_stream *s, size_t rows, size_t cols,
                          const void *dy, size_t ld, float *db, float *partials)
{
  check(s, pen_cuda_bias_backward(queue(s), PEN_CUDA_ELEM, rows, cols, dy, ld,
                                  db, partials), "bias_backward");
}

static void add(struct pen_stream *s, size_t n, const void *a, const void *b,
                void *y)
{
  check(s, pen_cuda_add(queue(s), PEN_CUDA_ELEM, n, a, b, y), "add");
}

static void add_f32(struct pen_stream *s, size_t n, const float *x, void *y)
{
  check(s, pen_cuda_add_f32(queue(s), PEN_CUDA_ELEM, n, x, y), "add_f32");
}

static void xent_begin(struct pen_stream *s, size_t tokens, float *stats)
{
  check(s, pen_cuda_xent_begin(queue(s), tokens, stats), "xent_begin");
}

static void xent_add(struct pen_stream *s, const struct pen_logits *shape,
                     const float *logits, float *stats)
{
  check(s, pen_cuda_xent_add(queue(s), shape, logits, stats), "xent_add");
}

static void xent_loss(struct pen_stream *s, size_t tokens,
                      const int32_t *targets, const float *stats,
                      double *ret_loss)
{
  check(s, pen_cuda_xent_loss(queue(s), tokens, targets, stats, ret_loss),
        "xent_loss");
}

static void xent_backward(struct pen_stream *s, const struct pen_logits *shape,
                          const float *logits, const float *stats, void *g)
{
  check(s, pen_cuda_xent_backward(queue(s), PEN_CUDA_ELEM, shape, logits, stats,
                                  g), "xent_backward");
}

static void from_f32(struct pen_stream *s, size_t n, const float *x, void *y)
{
  check(s, pen_cuda_from_f32(queue(s), PEN_CUDA_ELEM, n, x, y), "from_f32");
}

static void adamw(struct pen_stream *s, const struct pen_adamw_params *params,
                  bool decays, size_t n, float *p, float *m, float *v,
                  const void *grad, void *weight)
{
  check(s, pen_cuda_adamw(queue(s), params, decays, n, p, m, v, PEN_CUDA_ELEM,
                          grad, PEN_CUDA_ELEM, weight), "adamw");
}

static void state_update(struct pen_stream *s,
                         const struct pen_state_format *format,
                         const struct pen_state_update *update, void *weight)
{
  void *arrays[PEN_STATE_ARRAYS_MAX];
  pen_state_find_arrays(format, &update->part, arrays);
  check(s, pen_cuda_state_update(queue(s), format->kind, update, arrays,
                                 weight), "state_update");
}

static void gradient_finish(struct pen_stream *s, size_t n, size_t chunk_elems,
                            const float *grad, void *stored, double *chunk_sumsq,
                            uint64_t *nonfinite)
{
  check(s, pen_cuda_gradient_finish(queue(s), PEN_CUDA_ELEM, n, chunk_elems,
                                    grad, stored, chunk_sumsq, nonfinite),
        "gradient_finish");
}

static void zero_f32(struct pen_stream *s, size_t n, float *x)
{
  check(s, pen_cuda_zero_f32(queue(s), n, x), "zero_f32");
}

static void route(struct pen_stream *s, const struct pen_routing *r,
                  const float *logits, float *balance)
{
  check(s, pen_cuda_route(queue(s), r, logits, balance),
        "route");
}

static void route_backward(struct pen_stream *s, const struct pen_routing *r,
                           const float *dweights, const float *balance,
                           float scale, void *dlogits)
{
  check(s, pen_cuda_route_backward(queue(s), PEN_CUDA_ELEM, r, dweights,
                                   balance, scale, dlogits),
        "route_backward");
}

static void route_balance(struct pen_stream *s, size_t experts,
                          const float *balance, float scale, double *loss)
{
  check(s, pen_cuda_route_balance(queue(s), experts, balance, scale, loss),
        "route_balance");
}

static void expert_add(struct pen_stream *s, const struct pen_expert_rows *e,
                       const float *x, float *y)
{
  check(s, pen_cuda_expert_add(queue(s), e, x, y), "expert_add");
}

static void expert_weigh(struct pen_stream *s, const struct pen_expert_rows *e,
                         const float *d, void *act, void *dact, float *dweights)
{
  check(s, pen_cuda_expert_weigh(queue(s), PEN_CUDA_ELEM, e, d, act, dact,
                                 dweights), "expert_weigh");
}

const struct pen_ops PEN_CUDA_TABLE = {
    .backend = "cuda",
    .elem = PEN_CUDA_ELEM,
    .check_shape = check_shape,
    .gemm = pen_cuda_gemm,
    .rmsnorm = rmsnorm,
    .rmsnorm_backward = rmsnorm_backward,
    .layernorm = layernorm,
    .layernorm_backward = layernorm_backward,
    .rope = rope,
    .attention = attention,
    .attention_backward = attention_backward,
    .attention_cached = attention_cached,
    .glu = glu,
    .glu_backward = glu_backward,
    .softcap = softcap,
    .softcap_backward = softcap_backward,
    .embed = embed,
    .embed_backward = embed_backward,
    .bias = bias,
    .bias_backward = bias_backward,
    .add = add,
    .add_f32 = add_f32,
    .xent_begin = xent_begin,
    .xent_add = xent_add,
    .xent_loss = xent_loss,
    .xent_backward = xent_backward,
    .from_f32 = from_f32,
    .gradient_finish = gradient_finish,
    .adamw = adamw,
    .state_update = state_update,
    .zero_f32 = zero_f32,
    .route = route,
    .route_backward = route_backward,
    .route_balance = route_balance,
    .expert_add = expert_add,
    .expert_weigh = expert_weigh,
};
