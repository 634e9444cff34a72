/* table.c: see table.h.  Disadvantage: the precision is a variable of the
 * process. */
#include "tests/gpu/table.h"

#include "kernels/cuda/launch.h"
#include "tests/gpu/simt/race.h"
#include "tests/gpu/simt/simt.h"
#include "tests/test.h"

static enum pen_elem elem;

static void check(int r)
{
  if (r)
    fail_msg("a launch failed with CUDA's error %d", r);
}

static void rmsnorm(struct pen_stream *s, const struct pen_heads *shape,
                    const void *x, size_t ldx, const void *w, float w_plus,
                    float eps, void *y, size_t ldy, float *rstd)
{
  check(pen_cuda_rmsnorm(NULL, elem, shape, x, ldx, w, w_plus, eps, y, ldy,
                         rstd));
}

static void rmsnorm_backward(struct pen_stream *s,
                             const struct pen_heads *shape, const void *dy,
                             size_t lddy, enum pen_elem dy_elem, const void *x,
                             size_t ldx, const void *w, float w_plus,
                             const float *rstd, void *dx, size_t lddx,
                             bool accumulate, float *dw, float *partials)
{
  check(pen_cuda_rmsnorm_backward(NULL, elem, shape, dy, lddy, dy_elem, x, ldx,
                                  w, w_plus, rstd, dx, lddx, accumulate, dw,
                                  partials));
}

static void layernorm(struct pen_stream *s, size_t rows, size_t dim,
                      const void *x, const void *w, const void *b, float eps,
                      void *y, float *mean, float *rstd)
{
  check(pen_cuda_layernorm(NULL, elem, rows, dim, x, w, b, eps, y, mean, rstd));
}

static void layernorm_backward(struct pen_stream *s, size_t rows, size_t dim,
                               const void *dy, enum pen_elem dy_elem,
                               const void *x, const void *w, const float *mean,
                               const float *rstd, void *dx, bool accumulate,
                               float *dw, float *db, float *partials)
{
  check(pen_cuda_layernorm_backward(NULL, elem, rows, dim, dy, dy_elem, x, w,
                                    mean, rstd, dx, accumulate, dw, db,
                                    partials));
}

static void rope(struct pen_stream *s, const struct pen_heads *shape,
                 size_t rotary, void *x, size_t ldx, const uint32_t *positions,
                 const float *cosines, const float *sines, bool inverse)
{
  check(pen_cuda_rope(NULL, elem, shape, rotary, x, ldx, positions, cosines,
                      sines, inverse));
}

static void attention(struct pen_stream *s, const struct pen_attention *a,
                      const void *q, const void *k, const void *v, void *o,
                      float *lse)
{
  check(pen_cuda_attention(NULL, elem, a, q, k, v, o, lse));
}

static void attention_backward(struct pen_stream *s,
                               const struct pen_attention *a, const void *q,
                               const void *k, const void *v, const void *o,
                               const float *lse, const void *d_o, float *delta,
                               void *dq, void *dk, void *dv)
{
  check(pen_cuda_attention_backward(NULL, elem, a, q, k, v, o, lse, d_o, delta,
                                    dq, dk, dv));
}

static void attention_cached(struct pen_stream *s,
                             const struct pen_attention_cache *a,
                             const void *q, const void *k, const void *v,
                             void *keys, void *values, void *o)
{
  check(pen_cuda_attention_cached(NULL, elem, a, q, k, v, keys, values, o));
}

static void glu(struct pen_stream *s, enum pen_activation f, size_t rows,
                size_t cols, const void *gate, const void *up, size_t ld,
                void *y)
{
  check(pen_cuda_glu(NULL, elem, f, rows, cols, gate, up, ld, y));
}

static void glu_backward(struct pen_stream *s, enum pen_activation f,
                         size_t rows, size_t cols, const void *dy,
                         const void *gate, const void *up, size_t ld,
                         void *dgate, void *dup)
{
  check(pen_cuda_glu_backward(NULL, elem, f, rows, cols, dy, gate, up, ld,
                              dgate, dup));
}

static void softcap(struct pen_stream *s, size_t rows, size_t cols, float cap,
                    float *x, size_t ld)
{
  check(pen_cuda_softcap(NULL, rows, cols, cap, x, ld));
}

static void softcap_backward(struct pen_stream *s, size_t rows, size_t cols,
                             float cap, const float *y, size_t ld, void *d)
{
  check(pen_cuda_softcap_backward(NULL, elem, rows, cols, cap, y, ld, d));
}

static void embed(struct pen_stream *s, const uint32_t *ids, size_t tokens,
                  size_t first_row, size_t rows, size_t dim, float scale,
                  const void *table, void *x)
{
  check(pen_cuda_embed(NULL, elem, ids, tokens, first_row, rows, dim, scale,
                       table, x));
}

static void embed_backward(struct pen_stream *s, const uint32_t *ids,
                           size_t tokens, size_t first_row, size_t rows,
                           size_t dim, float scale, const void *d, float *grad)
{
  check(pen_cuda_embed_backward(NULL, elem, ids, tokens, first_row, rows, dim,
                                scale, d, grad));
}

static void bias(struct pen_stream *s, size_t rows, size_t cols, void *x,
                 size_t ld, const void *b)
{
  check(pen_cuda_bias(NULL, elem, rows, cols, x, ld, b));
}

static void bias_backward(struct pen_stream *s, size_t rows, size_t cols,
                          const void *dy, size_t ld, float *db, float *partials)
{
  check(pen_cuda_bias_backward(NULL, elem, rows, cols, dy, ld, db, partials));
}

static void add(struct pen_stream *s, size_t n, const void *a, const void *b,
                void *y)
{
  check(pen_cuda_add(NULL, elem, n, a, b, y));
}

static void add_f32(struct pen_stream *s, size_t n, const float *x, void *y)
{
  check(pen_cuda_add_f32(NULL, elem, n, x, y));
}

static void xent_begin(struct pen_stream *s, size_t tokens, float *stats)
{
  check(pen_cuda_xent_begin(NULL, tokens, stats));
}

static void xent_add(struct pen_stream *s, const struct pen_logits *shape,
                     const float *logits, float *stats)
{
  check(pen_cuda_xent_add(NULL, shape, logits, stats));
}

static void xent_loss(struct pen_stream *s, size_t tokens,
                      const int32_t *targets, const float *stats,
                      double *ret_loss)
{
  check(pen_cuda_xent_loss(NULL, tokens, targets, stats, ret_loss));
}

static void xent_backward(struct pen_stream *s, const struct pen_logits *shape,
                          const float *logits, const float *stats, void *g)
{
  check(pen_cuda_xent_backward(NULL, elem, shape, logits, stats, g));
}

static void from_f32(struct pen_stream *s, size_t n, const float *x, void *y)
{
  check(pen_cuda_from_f32(NULL, elem, n, x, y));
}

static void gradient_finish(struct pen_stream *s, size_t n, size_t chunk_elems,
                            const float *grad, void *stored, double *chunk_sumsq,
                            uint64_t *nonfinite)
{
  check(pen_cuda_gradient_finish(NULL, elem, n, chunk_elems, grad, stored,
                                 chunk_sumsq, nonfinite));
}

static void zero_f32(struct pen_stream *s, size_t n, float *x)
{
  check(pen_cuda_zero_f32(NULL, n, x));
}

static void route(struct pen_stream *s, const struct pen_routing *r,
                  const float *logits, float *balance)
{
  check(pen_cuda_route(NULL, r, logits, balance));
}

static void route_backward(struct pen_stream *s, const struct pen_routing *r,
                           const float *dweights, const float *balance,
                           float scale, void *dlogits)
{
  check(pen_cuda_route_backward(NULL, elem, r, dweights,
                                balance, scale, dlogits));
}

static void route_balance(struct pen_stream *s, size_t experts,
                          const float *balance, float scale, double *loss)
{
  check(pen_cuda_route_balance(NULL, experts, balance, scale, loss));
}

static void expert_add(struct pen_stream *s, const struct pen_expert_rows *e,
                       const float *x, float *y)
{
  check(pen_cuda_expert_add(NULL, e, x, y));
}

static void expert_weigh(struct pen_stream *s, const struct pen_expert_rows *e,
                         const float *d, void *act, void *dact, float *dweights)
{
  check(pen_cuda_expert_weigh(NULL, elem, e, d, act, dact,
                              dweights));
}

static const struct pen_ops tables[] = {
#define TABLE(e)                                                              \
  {                                                                           \
    .backend = "simt", .elem = e, .rmsnorm = rmsnorm,                         \
    .rmsnorm_backward = rmsnorm_backward, .layernorm = layernorm,             \
    .layernorm_backward = layernorm_backward, .rope = rope,                   \
    .attention = attention, .attention_backward = attention_backward,         \
    .attention_cached = attention_cached,                                     \
    .glu = glu, .glu_backward = glu_backward, .softcap = softcap,             \
    .softcap_backward = softcap_backward, .embed = embed,                     \
    .embed_backward = embed_backward, .bias = bias,                           \
    .bias_backward = bias_backward, .add = add, .add_f32 = add_f32,           \
    .xent_begin = xent_begin, .xent_add = xent_add, .xent_loss = xent_loss,   \
    .xent_backward = xent_backward, .from_f32 = from_f32,                     \
    .gradient_finish = gradient_finish, .zero_f32 = zero_f32,                 \
    .route = route, .route_backward = route_backward,                         \
    .route_balance = route_balance, .expert_add = expert_add,                 \
    .expert_weigh = expert_weigh                                              \
  }
    TABLE(PEN_ELEM_BF16), TABLE(PEN_ELEM_F32)};

const struct pen_ops *table_of(enum pen_elem e)
{
  elem = e;
  return &tables[e == PEN_ELEM_F32];
}

void table_each_order(void (*run)(void *ctx), void *ctx)
{
  static const struct {
    enum simt_order order;
    const char *name;
  } orders[] = {{SIMT_IN_ORDER, "in order"}, {SIMT_REVERSED, "reversed"},
                {SIMT_RANDOM, "at random"}, {SIMT_RANDOM, "at random again"}};
  static uint64_t seed;
  if (!seed)
    seed = test_seed(20240601);
  size_t n = sizeof orders / sizeof orders[0];
  if (simt_race_is_on() || getenv("PEN_TEST_ONE_ORDER"))
    n = 1; /* found in whichever order */
  for (size_t i = 0; i < n; i++) {
    simt_set_order(orders[i].order, seed + i);
    printf("# threads %s\n", orders[i].name);
    run(ctx);
    assert_int_equal(simt_races(), 0);
  }
}
