/* trial_cases.c: every operation of kernels/ops.h at odd and even shapes.
 *
 * Disadvantage: shapes are small; large ones run in tests/model. */
#include <math.h>

#include "tests/check/trial.h"

#define PARTIALS(t, rows, cols)                                               \
  trial_work_f32(t, pen_ops_partials_elems(rows, cols))

/* tokens, heads, dim, extra elements between tokens */
static const size_t norm_shapes[][4] = {
    {1, 1, 1, 0},   {3, 1, 16, 0},  {130, 1, 35, 0},
    {7, 3, 14, 5},  {70, 2, 64, 8}, {65, 1, 512, 0}};

static void run_rmsnorm(struct trial *t, size_t variant)
{
  const size_t *v = norm_shapes[variant];
  struct pen_heads shape = {v[0], v[1], v[2]};
  size_t ld = v[1] * v[2] + v[3], n = v[0] * ld;
  const void *x = trial_in(t, n, -2, 2), *w = trial_in(t, v[2], 0.5f, 1.5f);
  void *y = trial_out(t, n);
  t->ops->rmsnorm(&t->stream, &shape, x, ld, w, (float)(variant % 2),
                  1e-5f, y, ld, trial_out_f32(t, v[0] * v[1]));
}

static void run_layernorm(struct trial *t, size_t variant)
{
  const size_t *v = norm_shapes[variant];
  size_t rows = v[0] * v[1], dim = v[2];
  const void *x = trial_in(t, rows * dim, -2, 3);
  const void *w = trial_in(t, dim, 0.5f, 1.5f), *b = trial_in(t, dim, -1, 1);
  void *y = trial_out(t, rows * dim);
  float *mean = trial_out_f32(t, rows);
  t->ops->layernorm(&t->stream, rows, dim, x, w, b, 1e-5f, y, mean,
                    trial_out_f32(t, rows));
}

static void run_layernorm_backward(struct trial *t, size_t variant)
{
  const size_t *v = norm_shapes[variant / 2];
  bool f32_dy = variant % 2;
  size_t rows = v[0] * v[1], dim = v[2], n = rows * dim;
  const void *dy = f32_dy ? trial_in_f32(t, n, -1, 1) : trial_in(t, n, -1, 1);
  const void *x = trial_in(t, n, -2, 3), *w = trial_in(t, dim, 0.5f, 1.5f);
  const float *mean = trial_in_f32(t, rows, 0, 1);
  const float *rstd = trial_in_f32(t, rows, 0.5f, 1);
  void *dx = f32_dy ? trial_inout(t, n, -1, 1) : trial_out(t, n);
  float *dw = trial_inout_f32(t, dim, -1, 1);
  float *db = trial_inout_f32(t, dim, -1, 1);
  t->ops->layernorm_backward(&t->stream, rows, dim, dy,
                             f32_dy ? PEN_ELEM_F32 : t->ops->elem, x, w, mean,
                             rstd, dx, f32_dy, dw, db,
                             PARTIALS(t, rows, 2 * dim));
}

static void run_rmsnorm_backward(struct trial *t, size_t variant)
{
  const size_t *v = norm_shapes[variant / 2];
  bool f32_dy = variant % 2;
  struct pen_heads shape = {v[0], v[1], v[2]};
  size_t ld = v[1] * v[2] + v[3], n = v[0] * ld;
  const void *dy = f32_dy ? trial_in_f32(t, n, -1, 1) : trial_in(t, n, -1, 1);
  const void *x = trial_in(t, n, -2, 2), *w = trial_in(t, v[2], 0.5f, 1.5f);
  const float *rstd = trial_in_f32(t, v[0] * v[1], 0.5f, 1);
  void *dx = f32_dy ? trial_inout(t, n, -1, 1) : trial_out(t, n);
  float *dw = trial_inout_f32(t, v[2], -1, 1);
  t->ops->rmsnorm_backward(&t->stream, &shape, dy, ld,
                           f32_dy ? PEN_ELEM_F32 : t->ops->elem, x, ld, w,
                           (float)(variant / 2 % 2), rstd, dx, ld, f32_dy, dw,
                           PARTIALS(t, v[0] * v[1], v[2]));
}

static void run_rope(struct trial *t, size_t variant)
{
  const size_t *v = norm_shapes[1 + variant / 2]; /* even dim only */
  struct pen_heads shape = {v[0], v[1], v[2] / 2 * 2};
  size_t ld = v[1] * v[2] + v[3];
  uint32_t positions[256];
  for (size_t i = 0; i < v[0]; i++)
    positions[i] = (uint32_t)(i * 7 % 50);
  const float *c = trial_in_f32(t, 50 * (shape.dim / 2), -1, 1);
  const float *s = trial_in_f32(t, 50 * (shape.dim / 2), -1, 1);
  void *x = trial_inout(t, v[0] * ld, -2, 2);
  size_t rotary = variant / 2 == 3 ? 24 : shape.dim; /* not all, once */
  t->ops->rope(&t->stream, &shape, rotary, x, ld, positions, c, s, variant % 2);
}

/* heads, kv heads, dim */
static const size_t attention_shapes[][3] = {
    {1, 1, 2}, {4, 4, 14}, {4, 2, 64}, {4, 1, 40}};
static const size_t attention_documents[][8] = {
    {1, 0}, {64, 0}, {3, 67, 1, 80, 0}, {200, 1, 60, 0}};
#define N_ATTENTION 16

static struct pen_attention attention_of(size_t variant, uint32_t *first_key)
{
  const size_t *v = attention_shapes[variant % 4];
  const size_t *lengths = attention_documents[variant / 4];
  struct pen_attention a = {.heads = v[0], .kv_heads = v[1], .dim = v[2],
                            .scale = 0.25f, .first_key = first_key,
                            .softcap = variant / 4 % 2 ? 5 : 0};
  trial_documents(lengths, first_key);
  for (; *lengths; lengths++)
    a.tokens += *lengths;
  a.ldq = a.ldk = a.ldv = (v[0] + 2 * v[1]) * v[2];
  a.ldd = a.ldq + 3;
  a.ldo = v[0] * v[2] + 1;
  return a;
}

static void run_attention(struct trial *t, size_t variant)
{
  uint32_t first_key[512];
  struct pen_attention a = attention_of(variant, first_key);
  const char *q = trial_in(t, a.tokens * a.ldq, -3, 3);
  size_t e = pen_elem_bytes(t->ops->elem);
  const char *k = q + a.heads * a.dim * e, *v = k + a.kv_heads * a.dim * e;
  void *o = trial_out(t, a.tokens * a.ldo);
  t->ops->attention(&t->stream, &a, q, k, v, o,
                    trial_out_f32(t, a.heads * a.tokens));
}

static void run_attention_backward(struct trial *t, size_t variant)
{
  uint32_t first_key[512];
  struct pen_attention a = attention_of(variant, first_key);
  const char *q = trial_in(t, a.tokens * a.ldq, -3, 3);
  size_t e = pen_elem_bytes(t->ops->elem);
  const char *k = q + a.heads * a.dim * e, *v = k + a.kv_heads * a.dim * e;
  const void *o = trial_in(t, a.tokens * a.ldo, -1, 1);
  const void *d_o = trial_in(t, a.tokens * a.ldo, -1, 1);
  const float *lse = trial_in_f32(t, a.heads * a.tokens, 1, 5);
  char *dq = trial_out(t, a.tokens * a.ldd);
  char *dk = dq + a.heads * a.dim * e, *dv = dk + a.kv_heads * a.dim * e;
  t->ops->attention_backward(&t->stream, &a, q, k, v, o, lse, d_o,
                             trial_work_f32(t, a.tokens *
                                 pen_attention_work_per_token(a.heads, a.dim)),
                             dq, dk, dv);
}

/* The tokens of a document, some at a time: as many as one, and the rest. */
static void run_attention_cached(struct trial *t, size_t variant)
{
  uint32_t first_key[512];
  struct pen_attention a = attention_of(variant, first_key);
  const char *q = trial_in(t, a.tokens * a.ldq, -3, 3);
  size_t e = pen_elem_bytes(t->ops->elem), n;
  const char *k = q + a.heads * a.dim * e, *v = k + a.kv_heads * a.dim * e;
  size_t cached = pen_attention_cache_elems(a.tokens, a.kv_heads, a.dim);
  void *keys = trial_out(t, cached), *values = trial_out(t, cached);
  char *o = trial_out(t, a.tokens * a.ldo);
  for (size_t at = 0; at < a.tokens; at += n) {
    n = at % 3 ? (a.tokens - at + 1) / 2 : 1;
    struct pen_attention_cache c = {
        .tokens = n, .heads = a.heads, .kv_heads = a.kv_heads, .dim = a.dim,
        .scale = a.scale, .softcap = a.softcap, .first = at,
        .capacity = a.tokens, .window = variant / 8 ? 70 : 0, .ldq = a.ldq,
        .ldk = a.ldk, .ldv = a.ldv, .ldo = a.ldo};
    t->ops->attention_cached(&t->stream, &c, q + at * a.ldq * e,
                             k + at * a.ldk * e, v + at * a.ldv * e, keys,
                             values, o + at * a.ldo * e);
  }
}

/* rows, cols */
static const size_t row_shapes[][2] = {{1, 1}, {5, 17}, {200, 48}, {67, 1000}};

/* Every activation, gated and not. */
#define N_GLU 24

static enum pen_activation activation_of(size_t variant)
{
  static const enum pen_activation all[] = {
      PEN_ACTIVATION_SILU, PEN_ACTIVATION_GELU_TANH, PEN_ACTIVATION_GELU};
  return all[variant / 4 % 3];
}

static void run_glu(struct trial *t, size_t variant)
{
  const size_t *v = row_shapes[variant % 4];
  size_t rows = v[0], cols = v[1], ld = 2 * cols + 1;
  const void *gate = trial_in(t, rows * ld, -90, 90);
  const void *up = variant < 12 ? trial_in(t, rows * ld, -2, 2) : NULL;
  t->ops->glu(&t->stream, activation_of(variant), rows, cols, gate, up, ld,
              trial_out(t, rows * cols));
}

static void run_glu_backward(struct trial *t, size_t variant)
{
  const size_t *v = row_shapes[variant % 4];
  size_t rows = v[0], cols = v[1], ld = 2 * cols + 1;
  const void *dy = trial_in(t, rows * cols, -1, 1);
  const void *gate = trial_in(t, rows * ld, -9, 9);
  const void *up = variant < 12 ? trial_in(t, rows * ld, -2, 2) : NULL;
  void *dgate = trial_out(t, rows * ld);
  void *dup = up ? trial_out(t, rows * ld) : NULL;
  t->ops->glu_backward(&t->stream, activation_of(variant), rows, cols, dy,
                       gate, up, ld, dgate, dup);
}

static void run_softcap(struct trial *t, size_t variant)
{
  size_t rows = row_shapes[variant][0], cols = row_shapes[variant][1];
  float *x = trial_inout_f32(t, rows * (cols + 3), -90, 90);
  t->ops->softcap(&t->stream, rows, cols, 30, x, cols + 3);
}

static void run_softcap_backward(struct trial *t, size_t variant)
{
  size_t rows = row_shapes[variant][0], cols = row_shapes[variant][1];
  const float *y = trial_in_f32(t, rows * (cols + 3), -30, 30);
  t->ops->softcap_backward(&t->stream, rows, cols, 30, y, cols + 3,
                           trial_inout(t, rows * cols, -1, 1));
}

static void some_ids(uint32_t *ids, size_t n)
{
  for (size_t i = 0; i < n; i++)
    ids[i] = (uint32_t)(i * i % 23);
}

static void run_embed(struct trial *t, size_t variant)
{
  size_t tokens = row_shapes[variant][0], dim = row_shapes[variant][1];
  uint32_t ids[256];
  some_ids(ids, tokens);
  const void *table = trial_in(t, 11 * dim, -1, 1);
  t->ops->embed(&t->stream, ids, tokens, 4, 11, dim, variant % 2 ? 1 : 5.3125f,
                table, trial_inout(t, tokens * dim, -1, 1));
}

static void run_embed_backward(struct trial *t, size_t variant)
{
  size_t tokens = row_shapes[variant][0], dim = row_shapes[variant][1];
  uint32_t ids[256];
  some_ids(ids, tokens);
  const void *d = trial_in(t, tokens * dim, -1, 1);
  t->ops->embed_backward(&t->stream, ids, tokens, 4, 11, dim,
                         variant % 2 ? 1 : 5.3125f, d,
                         trial_inout_f32(t, 11 * dim, -1, 1));
}

static void run_bias(struct trial *t, size_t variant)
{
  size_t rows = row_shapes[variant][0], cols = row_shapes[variant][1];
  const void *b = trial_in(t, cols, -1, 1);
  t->ops->bias(&t->stream, rows, cols, trial_inout(t, rows * (cols + 3), -1, 1),
               cols + 3, b);
}

static void run_bias_backward(struct trial *t, size_t variant)
{
  size_t rows = row_shapes[variant][0], cols = row_shapes[variant][1];
  const void *dy = trial_in(t, rows * (cols + 3), -1, 1);
  t->ops->bias_backward(&t->stream, rows, cols, dy, cols + 3,
                        trial_inout_f32(t, cols, -1, 1),
                        PARTIALS(t, rows, cols));
}

static void run_add(struct trial *t, size_t variant)
{
  size_t n = row_shapes[variant][0] * row_shapes[variant][1];
  const void *a = trial_in(t, n, -2, 2), *b = trial_in(t, n, -2, 2);
  t->ops->add(&t->stream, n, a, b, trial_out(t, n));
}

static void run_add_f32(struct trial *t, size_t variant)
{
  size_t n = row_shapes[variant][0] * row_shapes[variant][1];
  const float *x = trial_in_f32(t, n, -2, 2);
  t->ops->add_f32(&t->stream, n, x, trial_inout(t, n, -2, 2));
}

static struct pen_logits logits_of(size_t variant, int32_t *targets)
{
  size_t rows = row_shapes[variant][0], cols = row_shapes[variant][1];
  struct pen_logits shape = {.rows = rows, .cols = cols, .ld = cols + 2,
                             .first_token = 2, .first_id = 100,
                             .tokens = rows + 3, .targets = targets};
  for (size_t i = 0; i < shape.tokens; i++)
    targets[i] = i % 4 == 3 ? -1 : (int32_t)(90 + i * 13 % (cols + 20));
  return shape;
}

static void run_xent_add(struct trial *t, size_t variant)
{
  int32_t targets[256];
  struct pen_logits shape = logits_of(variant, targets);
  const float *logits = trial_in_f32(t, shape.rows * shape.ld, -20, 20);
  float *stats = trial_out_f32(t, PEN_XENT_ROWS * shape.tokens);
  t->ops->xent_begin(&t->stream, shape.tokens, stats);
  t->ops->xent_add(&t->stream, &shape, logits, stats);
  shape.first_id += shape.cols;
  t->ops->xent_add(&t->stream, &shape, logits, stats);
}

static void run_xent_backward(struct trial *t, size_t variant)
{
  int32_t targets[256];
  struct pen_logits shape = logits_of(variant, targets);
  const float *logits = trial_in_f32(t, shape.rows * shape.ld, -20, 20);
  const float *stats =
      trial_in_f32(t, PEN_XENT_ROWS * shape.tokens, 20, 30);
  t->ops->xent_backward(&t->stream, &shape, logits, stats,
                        trial_out(t, shape.rows * shape.cols));
}

static void run_xent_loss(struct trial *t, size_t variant)
{
  int32_t targets[256];
  struct pen_logits shape = logits_of(variant, targets);
  const float *stats = trial_in_f32(t, PEN_XENT_ROWS * shape.tokens, 20, 30);
  double loss;
  t->ops->xent_loss(&t->stream, shape.tokens, targets, stats, &loss);
  memcpy(trial_out_f32(t, 2), &loss, sizeof loss);
}

static void run_from_f32(struct trial *t, size_t variant)
{
  size_t n = row_shapes[variant][0] * row_shapes[variant][1];
  float *x = trial_in_f32(t, n, -2, 2);
  for (size_t i = 0; i < n; i++)
    x[i] /= 3;
  t->ops->from_f32(&t->stream, n, x, trial_out(t, n));
}

static void run_zero_f32(struct trial *t, size_t variant)
{
  size_t n = row_shapes[variant][0] * row_shapes[variant][1];
  t->ops->zero_f32(&t->stream, n, trial_out_f32(t, n));
}

/* tokens, experts, experts of a token, elements of a row */
static const size_t routing_shapes[][4] = {
    {1, 1, 1, 1}, {5, 4, 2, 17}, {70, 33, 5, 48}, {200, 8, 8, 64}};

/* Numbers that are not E, as results: bits compared as fp32 of the same value. */
static void put_counts(struct trial *t, const uint32_t *x, size_t n)
{
  float *out = trial_out_f32(t, n);
  for (size_t i = 0; i < n; i++)
    out[i] = (float)x[i];
}

struct routing_arrays {
  uint32_t counts[64], rows[2048], places[2048], chosen[2048];
};

static struct pen_routing routing_of(struct trial *t, size_t variant,
                                     struct routing_arrays *a)
{
  const size_t *v = routing_shapes[variant / 2];
  return (struct pen_routing){
      .tokens = v[0], .experts = v[1], .per_token = v[2],
      .normalise = variant % 2, .counts = a->counts, .rows = a->rows,
      .places = a->places, .chosen = a->chosen,
      .weights = trial_out_f32(t, v[0] * v[2]),
      .probs = trial_out_f32(t, v[0] * v[1])};
}

static void run_route(struct trial *t, size_t variant)
{
  struct routing_arrays a;
  struct pen_routing r = routing_of(t, variant, &a);
  const float *logits = trial_in_f32(t, r.tokens * r.experts, -4, 4);
  float *balance = trial_inout_f32(t, 2 * r.experts, 0, 9);
  t->ops->route(&t->stream, &r, logits, variant % 2 ? balance : NULL);
  put_counts(t, a.counts, r.experts);
  put_counts(t, a.rows, r.tokens * r.per_token);
  put_counts(t, a.places, r.tokens * r.per_token);
  put_counts(t, a.chosen, r.tokens * r.per_token);
}

/* Experts that are equally probable, and a token whose logits are NaN: who is
 * chosen all the same. */
static void run_route_ties(struct trial *t, size_t variant)
{
  enum { TOKENS = 300, EXPERTS = 40, K = 3 };
  static float probs[TOKENS * EXPERTS], weights[TOKENS * K];
  struct routing_arrays a;
  struct pen_routing r = {.tokens = TOKENS, .experts = EXPERTS, .per_token = K,
                          .normalise = variant, .counts = a.counts,
                          .rows = a.rows, .places = a.places,
                          .chosen = a.chosen, .weights = weights,
                          .probs = probs};
  float *logits = trial_in_f32(t, TOKENS * EXPERTS, -2, 2);
  for (size_t i = 0; i < TOKENS * EXPERTS; i++)
    logits[i] = i / EXPERTS == 7 ? NAN : rintf(logits[i]);
  t->ops->route(&t->stream, &r, logits, NULL);
  put_counts(t, a.counts, EXPERTS);
  put_counts(t, a.rows, TOKENS * K);
  put_counts(t, a.places, TOKENS * K);
  put_counts(t, a.chosen, TOKENS * K);
}

static void run_route_backward(struct trial *t, size_t variant)
{
  struct routing_arrays a;
  struct pen_routing r = routing_of(t, variant, &a);
  const float *logits = trial_in_f32(t, r.tokens * r.experts, -4, 4);
  const float *dweights = trial_in_f32(t, r.tokens * r.per_token, -1, 1);
  const float *balance = trial_in_f32(t, 2 * r.experts, 0, 9);
  t->ops->route(&t->stream, &r, logits, NULL);
  t->ops->route_backward(&t->stream, &r, dweights, variant % 2 ? balance : NULL,
                         0.25f, trial_out(t, r.tokens * r.experts));
}

static void run_route_balance(struct trial *t, size_t variant)
{
  size_t experts = routing_shapes[variant][1];
  const float *balance = trial_in_f32(t, 2 * experts, 0, 9);
  double loss = 3;
  t->ops->route_balance(&t->stream, experts, balance, 0.3f, &loss);
  memcpy(trial_out_f32(t, 2), &loss, sizeof loss);
}

/* Every third token, the last first. */
static struct pen_expert_rows expert_rows_of(size_t variant, uint32_t *rows,
                                             uint32_t *places)
{
  const size_t *v = routing_shapes[variant / 2];
  struct pen_expert_rows e = {.n = (v[0] + 2) / 3, .dim = v[3], .rows = rows,
                              .places = places};
  for (size_t i = 0; i < e.n; i++) {
    rows[i] = (uint32_t)(3 * (e.n - 1 - i));
    places[i] = (uint32_t)(rows[i] * v[2] + i % v[2]);
  }
  return e;
}

static void run_expert_add(struct trial *t, size_t variant)
{
  const size_t *v = routing_shapes[variant / 2];
  uint32_t rows[256], places[256];
  struct pen_expert_rows e = expert_rows_of(variant, rows, places);
  if (variant % 2)
    e.weights = trial_in_f32(t, v[0] * v[2], 0, 1);
  const float *x = trial_in_f32(t, e.n * e.dim, -1, 1);
  t->ops->expert_add(&t->stream, &e, x,
                     trial_inout_f32(t, v[0] * e.dim, -1, 1));
}

static void run_expert_weigh(struct trial *t, size_t variant)
{
  const size_t *v = routing_shapes[variant / 2];
  uint32_t rows[256], places[256];
  struct pen_expert_rows e = expert_rows_of(variant, rows, places);
  e.weights = trial_in_f32(t, v[0] * v[2], 0, 1);
  const float *d = trial_in_f32(t, e.n * e.dim, -1, 1);
  void *act = trial_inout(t, e.n * e.dim, -2, 2);
  void *dact = trial_out(t, e.n * e.dim);
  t->ops->expert_weigh(&t->stream, &e, d, act, dact,
                       trial_inout_f32(t, v[0] * v[2], -1, 1));
}

const struct trial_case trial_cases[] = {
    {"rmsnorm", run_rmsnorm, 6, false},
    {"rmsnorm_backward", run_rmsnorm_backward, 12, false},
    {"layernorm", run_layernorm, 6, false},
    {"layernorm_backward", run_layernorm_backward, 12, false},
    {"rope", run_rope, 10, false},
    {"attention", run_attention, N_ATTENTION, true},
    {"attention_backward", run_attention_backward, N_ATTENTION, true},
    {"attention_cached", run_attention_cached, N_ATTENTION, true},
    {"glu", run_glu, N_GLU, false},
    {"glu_backward", run_glu_backward, N_GLU, false},
    {"softcap", run_softcap, 4, false},
    {"softcap_backward", run_softcap_backward, 4, false},
    {"embed", run_embed, 4, false},
    {"embed_backward", run_embed_backward, 4, false},
    {"bias", run_bias, 4, false},
    {"bias_backward", run_bias_backward, 4, false},
    {"add", run_add, 4, false},
    {"add_f32", run_add_f32, 4, false},
    {"xent_add", run_xent_add, 4, false},
    {"xent_backward", run_xent_backward, 4, false},
    {"xent_loss", run_xent_loss, 4, false},
    {"from_f32", run_from_f32, 4, false},
    {"zero_f32", run_zero_f32, 4, false},
    {"route", run_route, 8, false},
    {"route_ties", run_route_ties, 2, false},
    {"route_backward", run_route_backward, 8, false},
    {"route_balance", run_route_balance, 4, false},
    {"expert_add", run_expert_add, 8, false},
    {"expert_weigh", run_expert_weigh, 8, false},
    {0},
};
