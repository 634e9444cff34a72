/* cases.c: the table.
 *
 * Disadvantage: an operation's options (accumulate, strides, windows) are tried
 * in one combination each; tests/check and tests/gpu/simt have the others. */
#include "tests/gpu/device/cases.h"

#define IN(holds, n, low, high)                                               \
  (struct case_array){holds, n, true, false, low, high}
#define INOUT(holds, n) (struct case_array){holds, n, true, true, -1, 1}
#define OUT(holds, n) (struct case_array){holds, n, false, true, 0, 0}
#define WORK(n) (struct case_array){FLOATS, n, false, false, 0, 0}

/* Writes a case's list of arrays. */
#define ARRAYS(name, ...)                                                     \
  static size_t name##_arrays(const struct case_shape *s,                     \
                              struct case_array arrays[CASE_ARRAYS_MAX])      \
  {                                                                           \
    const struct case_array list[] = {__VA_ARGS__};                           \
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)                   \
      arrays[i] = list[i];                                                    \
    return sizeof list / sizeof *list;                                        \
  }

static size_t partials(size_t rows, size_t cols)
{
  return pen_ops_partials_elems(rows, cols);
}

static size_t qkv(const struct case_shape *s)
{
  return (s->heads + 2 * s->kv_heads) * s->dim;
}

static size_t wide(const struct case_shape *s)
{
  return s->tokens * s->heads * s->dim;
}

static size_t flat(const struct case_shape *s)
{
  return s->tokens * s->cols;
}

static size_t vectors(const struct case_shape *s)
{
  return s->tokens * s->heads;
}

/* Column `col` of rows of E. */
static void *column(const struct pen_ops *ops, void *x, size_t col)
{
  return (char *)x + col * pen_elem_bytes(ops->elem);
}

/* ---- the operations ---- */

ARRAYS(gemm, IN(ELEMS, s->tokens * s->dim, -1, 1), IN(ELEMS, s->cols * s->dim, -1, 1),
       OUT(ELEMS, flat(s)), IN(ELEMS, flat(s), -1, 1),
       INOUT(FLOATS, s->dim * s->cols))

static void gemm(const struct case_shape *s, const struct pen_ops *ops,
                 struct pen_stream *stream, void *const *at)
{
  struct pen_gemm g = {.m = s->tokens, .n = s->cols, .k = s->dim, .a = at[0],
                       .lda = s->dim, .b = at[1], .ldb = s->dim, .b_trans = true,
                       .ab_elem = ops->elem, .c = at[2], .ldc = s->cols,
                       .c_elem = ops->elem};
  ops->gemm(stream, &g);
  g = (struct pen_gemm){.m = s->dim, .n = s->cols, .k = s->tokens, .a = at[0],
                        .lda = s->dim, .a_trans = true, .b = at[3], .ldb = s->cols,
                        .ab_elem = ops->elem, .c = at[4], .ldc = s->cols,
                        .c_elem = PEN_ELEM_F32, .accumulate = true};
  ops->gemm(stream, &g);
}

ARRAYS(gemm_ends, IN(ELEMS, s->tokens * s->dim, -1, 1), IN(ELEMS, s->cols * s->dim, -1, 1),
       IN(ELEMS, s->cols, -1, 1), IN(ELEMS, flat(s), -1, 1), OUT(ELEMS, flat(s)),
       OUT(ELEMS, flat(s)), OUT(ELEMS, flat(s)))

/* With a bias, with an addend, with both. */
static void gemm_ends(const struct case_shape *s, const struct pen_ops *ops,
                      struct pen_stream *stream, void *const *at)
{
  struct pen_gemm g = {.m = s->tokens, .n = s->cols, .k = s->dim, .a = at[0],
                       .lda = s->dim, .b = at[1], .ldb = s->dim, .b_trans = true,
                       .ab_elem = ops->elem, .c = at[4], .ldc = s->cols,
                       .c_elem = ops->elem, .bias = at[2]};
  ops->gemm(stream, &g);
  g.addend = at[3];
  g.c = at[5];
  ops->gemm(stream, &g);
  g.bias = NULL;
  g.c = at[6];
  ops->gemm(stream, &g);
}

ARRAYS(rmsnorm, IN(ELEMS, wide(s), -1, 1), IN(ELEMS, s->dim, -1, 1),
       OUT(ELEMS, wide(s)), OUT(FLOATS, vectors(s)))

static void rmsnorm(const struct case_shape *s, const struct pen_ops *ops,
                    struct pen_stream *stream, void *const *at)
{
  struct pen_heads heads = {s->tokens, s->heads, s->dim};
  size_t ld = s->heads * s->dim;
  ops->rmsnorm(stream, &heads, at[0], ld, at[1], 1, 1e-5f, at[2], ld, at[3]);
}

ARRAYS(rmsnorm_backward, IN(FLOATS, wide(s), -1, 1), IN(ELEMS, wide(s), -1, 1),
       IN(ELEMS, s->dim, -1, 1), IN(FLOATS, vectors(s), 1, 2),
       INOUT(ELEMS, wide(s)), INOUT(FLOATS, s->dim),
       WORK(partials(vectors(s), s->dim)))

static void rmsnorm_backward(const struct case_shape *s, const struct pen_ops *ops,
                             struct pen_stream *stream, void *const *at)
{
  struct pen_heads heads = {s->tokens, s->heads, s->dim};
  size_t ld = s->heads * s->dim;
  ops->rmsnorm_backward(stream, &heads, at[0], ld, PEN_ELEM_F32, at[1], ld, at[2],
                        0.5f, at[3], at[4], ld, true, at[5], at[6]);
}

ARRAYS(layernorm, IN(ELEMS, flat(s), -1, 1), IN(ELEMS, s->cols, -1, 1),
       IN(ELEMS, s->cols, -1, 1), OUT(ELEMS, flat(s)), OUT(FLOATS, s->tokens),
       OUT(FLOATS, s->tokens))

static void layernorm(const struct case_shape *s, const struct pen_ops *ops,
                      struct pen_stream *stream, void *const *at)
{
  ops->layernorm(stream, s->tokens, s->cols, at[0], at[1], at[2], 1e-5f, at[3], at[4],
                 at[5]);
}

ARRAYS(layernorm_backward, IN(ELEMS, flat(s), -1, 1), IN(ELEMS, flat(s), -1, 1),
       IN(ELEMS, s->cols, -1, 1), IN(FLOATS, s->tokens, -0.1f, 0.1f),
       IN(FLOATS, s->tokens, 1, 2), OUT(ELEMS, flat(s)),
       INOUT(FLOATS, s->cols), INOUT(FLOATS, s->cols),
       WORK(partials(s->tokens, 2 * s->cols)))

static void layernorm_backward(const struct case_shape *s, const struct pen_ops *ops,
                               struct pen_stream *stream, void *const *at)
{
  ops->layernorm_backward(stream, s->tokens, s->cols, at[0], ops->elem, at[1], at[2],
                          at[3], at[4], at[5], false, at[6], at[7], at[8]);
}

ARRAYS(rope, INOUT(ELEMS, wide(s)), IN(IDS, s->tokens, 0, 30),
       IN(FLOATS, 30 * s->dim / 4, -1, 1), IN(FLOATS, 30 * s->dim / 4, -1, 1))

static void rope(const struct case_shape *s, const struct pen_ops *ops,
                 struct pen_stream *stream, void *const *at)
{
  struct pen_heads heads = {s->tokens, s->heads, s->dim};
  ops->rope(stream, &heads, s->dim / 2, at[0], s->heads * s->dim, at[1], at[2], at[3], true);
}

static struct pen_attention attention_shape(const struct case_shape *s,
                                            const void *first_key)
{
  return (struct pen_attention){
      .tokens = s->tokens, .heads = s->heads, .kv_heads = s->kv_heads, .dim = s->dim,
      .scale = 0.125f, .first_key = first_key, .ldq = qkv(s), .ldk = qkv(s),
      .ldv = qkv(s), .ldo = s->heads * s->dim, .ldd = qkv(s)};
}

ARRAYS(attention, IN(FIRST_KEYS, s->tokens, 0, 0),
       IN(ELEMS, s->tokens * qkv(s), -1, 1), OUT(ELEMS, wide(s)),
       OUT(FLOATS, vectors(s)))

static void attention(const struct case_shape *s, const struct pen_ops *ops,
                      struct pen_stream *stream, void *const *at)
{
  struct pen_attention a = attention_shape(s, at[0]);
  ops->attention(stream, &a, at[1], column(ops, at[1], s->heads * s->dim),
                 column(ops, at[1], (s->heads + s->kv_heads) * s->dim), at[2], at[3]);
}

ARRAYS(attention_backward, IN(FIRST_KEYS, s->tokens, 0, 0),
       IN(ELEMS, s->tokens * qkv(s), -1, 1), OUT(ELEMS, wide(s)),
       OUT(FLOATS, vectors(s)),
       WORK(s->tokens * pen_attention_work_per_token(s->heads, s->dim)),
       IN(ELEMS, wide(s), -1, 1), OUT(ELEMS, s->tokens * qkv(s)))

/* Of outputs that are made first, as backward needs them. */
static void both_ways(const struct case_shape *s, const struct pen_ops *ops,
                      struct pen_stream *stream, float softcap, void *const *at)
{
  struct pen_attention a = attention_shape(s, at[0]);
  a.softcap = softcap;
  void *q = at[1], *k = column(ops, q, s->heads * s->dim);
  void *v = column(ops, q, (s->heads + s->kv_heads) * s->dim);
  ops->attention(stream, &a, q, k, v, at[2], at[3]);
  ops->attention_backward(stream, &a, q, k, v, at[2], at[3], at[5], at[4], at[6],
                          column(ops, at[6], s->heads * s->dim),
                          column(ops, at[6], (s->heads + s->kv_heads) * s->dim));
}

static void attention_backward(const struct case_shape *s, const struct pen_ops *ops,
                               struct pen_stream *stream, void *const *at)
{
  both_ways(s, ops, stream, 0, at);
}

static void attention_capped(const struct case_shape *s, const struct pen_ops *ops,
                             struct pen_stream *stream, void *const *at)
{
  both_ways(s, ops, stream, 1.5f, at);
}

/* Each backend has an order of its own in the cache. */
ARRAYS(attention_cached, IN(ELEMS, s->tokens * qkv(s), -1, 1), OUT(ELEMS, wide(s)),
       WORK(pen_attention_cache_elems(s->tokens, s->kv_heads, s->dim)),
       WORK(pen_attention_cache_elems(s->tokens, s->kv_heads, s->dim)))

/* A document in two pieces. */
static void attention_cached(const struct case_shape *s, const struct pen_ops *ops,
                             struct pen_stream *stream, void *const *at)
{
  size_t half = (s->tokens + 1) / 2, wide_ld = s->heads * s->dim;
  for (size_t first = 0; first < s->tokens; first += half) {
    size_t n = s->tokens - first < half ? s->tokens - first : half;
    struct pen_attention_cache c = {
        .tokens = n, .heads = s->heads, .kv_heads = s->kv_heads, .dim = s->dim,
        .scale = 0.125f, .softcap = 1.5f, .first = first, .capacity = s->tokens,
        .window = s->tokens / 3, .ldq = qkv(s), .ldk = qkv(s), .ldv = qkv(s),
        .ldo = wide_ld};
    void *q = column(ops, at[0], first * qkv(s));
    ops->attention_cached(stream, &c, q, column(ops, q, wide_ld),
                          column(ops, q, wide_ld + s->kv_heads * s->dim), at[2],
                          at[3], column(ops, at[1], first * wide_ld));
  }
}

ARRAYS(glu, IN(ELEMS, 2 * flat(s), -3, 3), OUT(ELEMS, flat(s)), OUT(ELEMS, flat(s)))

static void glu(const struct case_shape *s, const struct pen_ops *ops,
                struct pen_stream *stream, void *const *at)
{
  ops->glu(stream, PEN_ACTIVATION_SILU, s->tokens, s->cols, at[0],
           column(ops, at[0], s->cols), 2 * s->cols, at[1]);
  ops->glu(stream, PEN_ACTIVATION_GELU_TANH, s->tokens, s->cols, at[0], NULL, 2 * s->cols,
           at[2]);
}

ARRAYS(glu_backward, IN(ELEMS, flat(s), -1, 1), IN(ELEMS, 2 * flat(s), -3, 3),
       OUT(ELEMS, 2 * flat(s)))

static void glu_backward(const struct case_shape *s, const struct pen_ops *ops,
                         struct pen_stream *stream, void *const *at)
{
  ops->glu_backward(stream, PEN_ACTIVATION_GELU, s->tokens, s->cols, at[0], at[1],
                    column(ops, at[1], s->cols), 2 * s->cols, at[2],
                    column(ops, at[2], s->cols));
}

ARRAYS(softcap, INOUT(FLOATS, flat(s)), INOUT(ELEMS, flat(s)))

static void softcap(const struct case_shape *s, const struct pen_ops *ops,
                    struct pen_stream *stream, void *const *at)
{
  ops->softcap(stream, s->tokens, s->cols, 3, at[0], s->cols);
  ops->softcap_backward(stream, s->tokens, s->cols, 3, at[0], s->cols, at[1]);
}

ARRAYS(embed, IN(IDS, s->tokens, 0, 70), IN(ELEMS, 50 * s->cols, -1, 1),
       OUT(ELEMS, flat(s)), IN(ELEMS, flat(s), -1, 1),
       INOUT(FLOATS, 50 * s->cols))

static void embed(const struct case_shape *s, const struct pen_ops *ops,
                  struct pen_stream *stream, void *const *at)
{
  ops->embed(stream, at[0], s->tokens, 10, 50, s->cols, 1.5f, at[1], at[2]);
  ops->embed_backward(stream, at[0], s->tokens, 10, 50, s->cols, 1.5f, at[3], at[4]);
}

ARRAYS(bias, INOUT(ELEMS, flat(s)), IN(ELEMS, s->cols, -1, 1),
       IN(ELEMS, flat(s), -1, 1), INOUT(FLOATS, s->cols),
       WORK(partials(s->tokens, s->cols)))

static void bias(const struct case_shape *s, const struct pen_ops *ops,
                 struct pen_stream *stream, void *const *at)
{
  ops->bias(stream, s->tokens, s->cols, at[0], s->cols, at[1]);
  ops->bias_backward(stream, s->tokens, s->cols, at[2], s->cols, at[3], at[4]);
}

ARRAYS(add, IN(ELEMS, flat(s), -1, 1), INOUT(ELEMS, flat(s)), OUT(ELEMS, flat(s)),
       IN(FLOATS, flat(s), -1, 1), OUT(ELEMS, flat(s)), OUT(FLOATS, s->cols))

static void add(const struct case_shape *s, const struct pen_ops *ops,
                struct pen_stream *stream, void *const *at)
{
  ops->add(stream, s->tokens * s->cols, at[0], at[1], at[2]);
  ops->add_f32(stream, s->tokens * s->cols, at[3], at[1]);
  ops->from_f32(stream, s->tokens * s->cols, at[3], at[4]);
  ops->zero_f32(stream, s->cols, at[5]);
}

ARRAYS(xent, IN(TARGETS, s->tokens, -20, (float)s->cols),
       OUT(FLOATS, PEN_XENT_ROWS * s->tokens), IN(FLOATS, flat(s), -5, 5),
       OUT(DOUBLES, 1), OUT(ELEMS, flat(s)))

static void xent(const struct case_shape *s, const struct pen_ops *ops,
                 struct pen_stream *stream, void *const *at)
{
  struct pen_logits shape = {.rows = s->tokens, .cols = s->cols, .ld = s->cols,
                             .tokens = s->tokens, .targets = at[0]};
  ops->xent_begin(stream, s->tokens, at[1]);
  ops->xent_add(stream, &shape, at[2], at[1]);
  ops->xent_loss(stream, s->tokens, at[0], at[1], at[3]);
  ops->xent_backward(stream, &shape, at[2], at[1], at[4]);
}

ARRAYS(gradient_finish, IN(FLOATS, flat(s), -1, 1), OUT(ELEMS, flat(s)), OUT(DOUBLES, (flat(s) + 4095) / 4096),
       OUT(COUNTS, 1))

static void gradient_finish(const struct case_shape *s, const struct pen_ops *ops,
                            struct pen_stream *stream, void *const *at)
{
  ops->gradient_finish(stream, s->tokens * s->cols, 4096, at[0], at[1], at[2], at[3]);
}


ARRAYS(adamw, IN(ELEMS, flat(s), -1, 1), INOUT(FLOATS, flat(s)),
       INOUT(FLOATS, flat(s)), (struct case_array){FLOATS, flat(s), true, true, 0, 1},
       OUT(ELEMS, flat(s)))

static void adamw(const struct case_shape *s, const struct pen_ops *ops,
                  struct pen_stream *stream, void *const *at)
{
  static const struct pen_adamw_params params = {0.7f, 0.1f, 0.999f, 0.001f,
                                                 0.9999f, 3e-4f, 1e-9f};
  size_t n = flat(s) - flat(s) / 3, half = n / 2; /* the rest is left as it is */
  ops->adamw(stream, &params, true, half, at[1], at[2], at[3], at[0], at[4]);
  ops->adamw(stream, &params, false, n - half, (float *)at[1] + half,
             (float *)at[2] + half, (float *)at[3] + half,
             column(ops, at[0], half), column(ops, at[4], half));
}

static size_t n_experts(const struct case_shape *s)
{
  return 2 + s->cols % 30;
}

ARRAYS(route, IN(FLOATS, s->tokens * n_experts(s), -3, 3), OUT(IDS, n_experts(s)),
       OUT(IDS, 2 * s->tokens), OUT(IDS, 2 * s->tokens), OUT(IDS, 2 * s->tokens),
       OUT(FLOATS, 2 * s->tokens), OUT(FLOATS, s->tokens * n_experts(s)),
       INOUT(FLOATS, 2 * n_experts(s)), IN(FLOATS, 2 * s->tokens, -1, 1),
       OUT(ELEMS, s->tokens * n_experts(s)), INOUT(DOUBLES, 1))

static void route(const struct case_shape *s, const struct pen_ops *ops,
                  struct pen_stream *stream, void *const *at)
{
  struct pen_routing r = {.tokens = s->tokens, .experts = n_experts(s), .per_token = 2,
                          .normalise = s->tokens % 2, .counts = at[1], .rows = at[2],
                          .places = at[3], .chosen = at[4], .weights = at[5],
                          .probs = at[6]};
  ops->route(stream, &r, at[0], at[7]);
  ops->route_backward(stream, &r, at[8], at[7], 0.25f, at[9]);
  ops->route_balance(stream, r.experts, at[7], 0.5f, at[10]);
}

ARRAYS(experts, IN(NUMBERS, s->tokens, 0, 0), IN(FLOATS, s->tokens, -1, 1),
       IN(FLOATS, flat(s), -1, 1), INOUT(FLOATS, flat(s)), IN(FLOATS, flat(s), -1, 1),
       INOUT(ELEMS, flat(s)), OUT(ELEMS, flat(s)), OUT(FLOATS, s->tokens))

static void experts(const struct case_shape *s, const struct pen_ops *ops,
                    struct pen_stream *stream, void *const *at)
{
  struct pen_expert_rows e = {.n = s->tokens, .dim = s->cols, .rows = at[0],
                              .places = at[0], .weights = at[1]};
  ops->expert_add(stream, &e, at[2], at[3]);
  ops->expert_weigh(stream, &e, at[4], at[5], at[6], at[7]);
}

/* Two ranges of a block's state, in whole groups. */
static size_t state_elems(const struct case_shape *s)
{
  return (flat(s) + 127) / 128 * 128;
}

static void state_update(const struct case_shape *s, const struct pen_ops *ops,
                         struct pen_stream *stream, void *const *at,
                         const struct pen_state_format *format)
{
  static const struct pen_adamw_params params = {0.7f, 0.1f, 0.999f, 0.001f,
                                                 0.9999f, 3e-4f, 1e-9f};
  size_t n = state_elems(s), half = n / 128 * 64;
  for (size_t begin = 0; begin < n; begin += half) {
    struct pen_state_update u = {
        .params = &params, .part = {at[0], n, begin, half},
        .decay_end = begin ? half : 0, .key = 0x123456789abcdef,
        .first = ((uint64_t)1 << 32) - 64 + begin, .elem = PEN_ELEM_BF16,
        .grad = (uint16_t *)at[1] + begin, .weight = (uint16_t *)at[2] + begin};
    ops->state_update(stream, format, &u, (uint16_t *)at[3] + begin);
  }
}

#define STATE_CASE(name)                                                      \
  static size_t name##_arrays(const struct case_shape *s,                     \
                              struct case_array arrays[CASE_ARRAYS_MAX])      \
  {                                                                           \
    size_t n = state_elems(s);                                                \
    arrays[0] = INOUT(BITS, pen_state_bytes(&pen_##name, n) / 4);             \
    arrays[1] = IN(BITS, n / 2, 0, 0);                                        \
    arrays[2] = INOUT(BITS, n / 2);                                           \
    arrays[3] = OUT(BITS, n / 2);                                             \
    return 4;                                                                 \
  }                                                                           \
                                                                              \
  static void name(const struct case_shape *s, const struct pen_ops *ops,     \
                   struct pen_stream *stream, void *const *at)                \
  {                                                                           \
    state_update(s, ops, stream, at, &pen_##name);                            \
  }
STATE_CASE(state_split32)
STATE_CASE(state_bf16)
STATE_CASE(state_int8)

static double gemm_flops(const struct case_shape *s)
{
  return 4.0 * (double)flat(s) * (double)s->dim;
}

/* Of one document: the half of the square below the diagonal. */
static double attention_flops(const struct case_shape *s)
{
  return 2.0 * (double)wide(s) * (double)s->tokens;
}

static double attention_backward_flops(const struct case_shape *s)
{
  return 3.5 * attention_flops(s); /* and forward first */
}

/* Shares: sums of some thousand products in another order, whose errors of 2^-24
 * grow as their values do, with the root of their number; functions a few units
 * apart; in bf16 a neighbour, 2^-8, and for attention the probabilities' own
 * rounding on top. */
#define CASE(name, f32, bf16, flops) {#name, name##_arrays, name, f32, bf16, flops}

const struct op_case op_cases[] = {
    CASE(gemm, 3e-5, 8e-3, gemm_flops),
    CASE(gemm_ends, 3e-5, 1.2e-2, NULL), /* the host rounds after each */
    CASE(rmsnorm, 3e-5, 8e-3, NULL),
    CASE(rmsnorm_backward, 3e-5, 8e-3, NULL),
    CASE(layernorm, 3e-5, 8e-3, NULL),
    CASE(layernorm_backward, 3e-5, 8e-3, NULL),
    CASE(rope, 0, 0, NULL),
    CASE(attention, 3e-5, 2e-2, attention_flops),
    CASE(attention_backward, 1e-4, 3e-2, attention_backward_flops),
    {"attention_capped", attention_backward_arrays, attention_capped, 1e-4, 3e-2,
     attention_backward_flops},
    CASE(attention_cached, 3e-5, 2e-2, NULL),
    CASE(glu, 3e-6, 8e-3, NULL),
    CASE(glu_backward, 3e-6, 8e-3, NULL),
    CASE(softcap, 3e-6, 8e-3, NULL),
    CASE(embed, 0, 0, NULL),
    CASE(bias, 3e-5, 8e-3, NULL),
    CASE(add, 0, 0, NULL),
    CASE(xent, 3e-5, 8e-3, NULL),
    CASE(gradient_finish, 0, 0, NULL),
    CASE(adamw, 0, 0, NULL),
    CASE(state_split32, 0, 0, NULL),
    CASE(state_bf16, 0, 0, NULL),
    CASE(state_int8, 0, 0, NULL),
    CASE(route, 0, 0, NULL),
    CASE(experts, 3e-5, 8e-3, NULL),
    {NULL, NULL, NULL, 0, 0, NULL},
};
