/* Norms, rotation, attention and activations against double precision. */
#include "tests/check/problem.h"

/* ---- norms ---- */

#define EPS 0.01f
#define W_PLUS 0.5f

static void rmsnorm_forward(const struct problem *p, double *out)
{
  const struct pen_heads *s = p->shape;
  for (size_t r = 0; r < s->tokens * s->heads; r++) {
    const double *x = p->in[0] + r * s->dim;
    double sum = 0;
    for (size_t i = 0; i < s->dim; i++)
      sum += x[i] * x[i];
    double rstd = 1 / sqrt(sum / (double)s->dim + (double)EPS);
    for (size_t i = 0; i < s->dim; i++)
      out[r * s->dim + i] = x[i] * rstd * (p->in[1][i] + (double)W_PLUS);
  }
}

static void check_rmsnorm(struct pen_heads shape)
{
  struct trial t;
  problem_begin(&t);
  size_t vectors = shape.tokens * shape.heads, n = vectors * shape.dim;
  size_t ld = shape.heads * shape.dim;
  float *x = trial_in(&t, n, -2, 2), *w = trial_in(&t, shape.dim, -1, 2);
  float *y = trial_out(&t, n), *rstd = trial_out_f32(&t, vectors);
  float *dy = trial_in(&t, n, -1, 1), *dx = trial_out(&t, n);
  float *dw = trial_out_f32(&t, shape.dim);
  memset(dw, 0, shape.dim * sizeof *dw);
  t.ops->rmsnorm(&t.stream, &shape, x, ld, w, W_PLUS, EPS, y, ld, rstd);
  t.ops->rmsnorm_backward(&t.stream, &shape, dy, ld, PEN_ELEM_F32, x, ld, w,
                          W_PLUS, rstd, dx, ld, false, dw,
                          trial_work_f32(&t, pen_ops_partials_elems(
                                                 vectors, shape.dim)));
  struct problem p = {"rmsnorm", {n, shape.dim},
                      {problem_doubles(&t, x, n), problem_doubles(&t, w, shape.dim)}, n,
                      rmsnorm_forward, &shape, problem_doubles(&t, dy, n)};
  problem_check_forward(&p, y);
  problem_check_gradient(&p, 0, dx);
  problem_check_gradient(&p, 1, dw);
  /* added to what was there, in place of the gradient */
  float *sum = trial_in(&t, n, -1, 1), *before = trial_work_f32(&t, n);
  memcpy(before, sum, n * sizeof *sum);
  t.ops->rmsnorm_backward(&t.stream, &shape, dy, ld, PEN_ELEM_F32, x, ld, w,
                          W_PLUS, rstd, sum, ld, true, dw,
                          trial_work_f32(&t, pen_ops_partials_elems(
                                                 vectors, shape.dim)));
  for (size_t i = 0; i < n; i++)
    assert_true(sum[i] == before[i] + dx[i]);
  t.ops->rmsnorm_backward(&t.stream, &shape, dy, ld, PEN_ELEM_F32, x, ld, w,
                          W_PLUS, rstd, dy, ld, false, dw,
                          trial_work_f32(&t, pen_ops_partials_elems(
                                                 vectors, shape.dim)));
  assert_memory_equal(dy, dx, n * sizeof *dx);
  problem_free(&p);
  trial_end(&t);
}

static void test_rmsnorm(void **state)
{
  check_rmsnorm((struct pen_heads){5, 1, 48});
  check_rmsnorm((struct pen_heads){70, 3, 14});
}

static void layernorm_forward(const struct problem *p, double *out)
{
  size_t dim = p->n[1];
  for (size_t r = 0; r < p->n_out / dim; r++) {
    const double *x = p->in[0] + r * dim;
    double mean = 0, variance = 0;
    for (size_t i = 0; i < dim; i++)
      mean += x[i] / (double)dim;
    for (size_t i = 0; i < dim; i++)
      variance += (x[i] - mean) * (x[i] - mean) / (double)dim;
    double rstd = 1 / sqrt(variance + (double)EPS);
    for (size_t i = 0; i < dim; i++)
      out[r * dim + i] = (x[i] - mean) * rstd * p->in[1][i] + p->in[2][i];
  }
}

static void check_layernorm(size_t rows, size_t dim)
{
  struct trial t;
  problem_begin(&t);
  size_t n = rows * dim, n_partials = pen_ops_partials_elems(rows, 2 * dim);
  float *x = trial_in(&t, n, -1, 3), *w = trial_in(&t, dim, -1, 2);
  float *b = trial_in(&t, dim, -1, 1), *dy = trial_in(&t, n, -1, 1);
  float *y = trial_out(&t, n), *dx = trial_out(&t, n);
  float *mean = trial_out_f32(&t, rows), *rstd = trial_out_f32(&t, rows);
  float *dw = trial_out_f32(&t, dim), *db = trial_out_f32(&t, dim);
  memset(dw, 0, dim * sizeof *dw);
  memset(db, 0, dim * sizeof *db);
  t.ops->layernorm(&t.stream, rows, dim, x, w, b, EPS, y, mean, rstd);
  t.ops->layernorm_backward(&t.stream, rows, dim, dy, PEN_ELEM_F32, x, w, mean,
                            rstd, dx, false, dw, db,
                            trial_work_f32(&t, n_partials));
  struct problem p = {"layernorm", {n, dim, dim},
                      {problem_doubles(&t, x, n), problem_doubles(&t, w, dim),
                       problem_doubles(&t, b, dim)},
                      n, layernorm_forward, NULL, problem_doubles(&t, dy, n)};
  problem_check_forward(&p, y);
  problem_check_gradient(&p, 0, dx);
  problem_check_gradient(&p, 1, dw);
  problem_check_gradient(&p, 2, db);
  float *sum = trial_in(&t, n, -1, 1), *before = trial_work_f32(&t, n);
  memcpy(before, sum, n * sizeof *sum);
  t.ops->layernorm_backward(&t.stream, rows, dim, dy, PEN_ELEM_F32, x, w, mean,
                            rstd, sum, true, dw, db,
                            trial_work_f32(&t, n_partials));
  for (size_t i = 0; i < n; i++)
    assert_true(sum[i] == before[i] + dx[i]);
  problem_free(&p);
  trial_end(&t);
}

static void test_layernorm(void **state)
{
  check_layernorm(5, 48);
  check_layernorm(150, 35);
}

/* ---- rope ---- */

struct rope_shape {
  struct pen_heads heads;
  size_t rotary;
  const uint32_t *positions;
  const float *c, *s;
};

static void rope_forward(const struct problem *p, double *out)
{
  const struct rope_shape *r = p->shape;
  size_t dim = r->heads.dim, half = r->rotary / 2;
  memcpy(out, p->in[0], p->n_out * sizeof *out);
  for (size_t v = 0; v < r->heads.tokens * r->heads.heads; v++)
    for (size_t i = 0; i < half; i++) {
      size_t at = r->positions[v / r->heads.heads] * half + i;
      double a = p->in[0][v * dim + i], b = p->in[0][v * dim + half + i];
      out[v * dim + i] = a * (double)r->c[at] - b * (double)r->s[at];
      out[v * dim + half + i] = b * (double)r->c[at] + a * (double)r->s[at];
    }
}

static void check_rope(size_t rotary)
{
  struct trial t;
  problem_begin(&t);
  uint32_t positions[] = {0, 1, 2, 0, 9};
  struct rope_shape shape = {{5, 3, 14}, rotary, positions, NULL, NULL};
  size_t n = 5 * 3 * 14;
  shape.c = trial_in_f32(&t, 10 * 7, -1, 1);
  shape.s = trial_in_f32(&t, 10 * 7, -1, 1);
  float *x = trial_inout(&t, n, -2, 2), *d = trial_inout(&t, n, -1, 1);
  struct problem p = {"rope", {n}, {problem_doubles(&t, x, n)}, n, rope_forward,
                      &shape, problem_doubles(&t, d, n)};
  t.ops->rope(&t.stream, &shape.heads, rotary, x, 42, positions, shape.c,
              shape.s, false);
  t.ops->rope(&t.stream, &shape.heads, rotary, d, 42, positions, shape.c,
              shape.s, true);
  problem_check_forward(&p, x);
  problem_check_gradient(&p, 0, d);
  problem_free(&p);
  trial_end(&t);
}

static void test_rope(void **state)
{
  check_rope(14);
  check_rope(6);
}

/* ---- attention ---- */

static void attention_head(const struct problem *p, size_t t, size_t h,
                           double *out)
{
  const struct pen_attention *a = p->shape;
  size_t kv = h / (a->heads / a->kv_heads), first = a->first_key[t];
  double e[512], sum = 0;
  for (size_t k = first; k <= t; k++) {
    double dot = 0;
    for (size_t i = 0; i < a->dim; i++)
      dot += p->in[0][t * a->ldq + h * a->dim + i] *
             p->in[1][k * a->ldk + kv * a->dim + i];
    dot *= (double)a->scale;
    if (a->softcap != 0)
      dot = (double)a->softcap * tanh(dot / (double)a->softcap);
    e[k] = exp(dot);
    sum += e[k];
  }
  for (size_t k = first; k <= t; k++)
    for (size_t i = 0; i < a->dim; i++)
      out[t * a->ldo + h * a->dim + i] +=
          e[k] / sum * p->in[2][k * a->ldv + kv * a->dim + i];
}

static void attention_forward(const struct problem *p, double *out)
{
  const struct pen_attention *a = p->shape;
  memset(out, 0, p->n_out * sizeof *out);
  for (size_t t = 0; t < a->tokens; t++)
    for (size_t h = 0; h < a->heads; h++)
      attention_head(p, t, h, out);
}

/* Takes the columns of k and v out of a gradient at stride ldd. */
static float *columns(struct trial *t, const float *d, size_t tokens,
                      size_t ldd, size_t begin, size_t width)
{
  float *out = trial_work_f32(t, tokens * width);
  for (size_t i = 0; i < tokens; i++)
    memcpy(out + i * width, d + i * ldd + begin, width * sizeof *out);
  return out;
}

/* window: tokens, of documents that are longer; 0: none */
static void check_attention(size_t heads, size_t kv_heads, size_t dim,
                            const size_t *lengths, float softcap,
                            uint32_t window)
{
  struct trial t;
  uint32_t first_key[512];
  problem_begin(&t);
  size_t q_width = heads * dim, kv_width = kv_heads * dim;
  struct pen_attention a = {
      .heads = heads, .kv_heads = kv_heads, .dim = dim, .scale = 0.3f,
      .softcap = softcap,
      .first_key = first_key, .ldq = q_width, .ldk = kv_width,
      .ldv = kv_width, .ldo = q_width, .ldd = q_width + 2 * kv_width};
  trial_documents(lengths, first_key);
  for (; *lengths; lengths++)
    a.tokens += *lengths;
  for (uint32_t i = 0; window && i < a.tokens; i++)
    if (i + 1 > first_key[i] + window)
      first_key[i] = i + 1 - window;
  size_t n_q = a.tokens * q_width, n_kv = a.tokens * kv_width;
  float *q = trial_in(&t, n_q, -2, 2), *k = trial_in(&t, n_kv, -2, 2);
  float *v = trial_in(&t, n_kv, -1, 1), *d_o = trial_in(&t, n_q, -1, 1);
  float *o = trial_out(&t, n_q), *lse = trial_out_f32(&t, heads * a.tokens);
  float *d = trial_out(&t, a.tokens * a.ldd);
  t.ops->attention(&t.stream, &a, q, k, v, o, lse);
  t.ops->attention_backward(&t.stream, &a, q, k, v, o, lse, d_o,
                            trial_work_f32(&t, a.tokens * pen_attention_work_per_token(
                                                   heads, dim)),
                            d,
                            d + q_width, d + q_width + kv_width);
  struct problem p = {"attention", {n_q, n_kv, n_kv},
                      {problem_doubles(&t, q, n_q), problem_doubles(&t, k, n_kv),
                       problem_doubles(&t, v, n_kv)},
                      n_q, attention_forward, &a, problem_doubles(&t, d_o, n_q)};
  problem_check_forward(&p, o);
  problem_check_gradient(&p, 0, columns(&t, d, a.tokens, a.ldd, 0, q_width));
  problem_check_gradient(&p, 1, columns(&t, d, a.tokens, a.ldd, q_width, kv_width));
  problem_check_gradient(&p, 2, columns(&t, d, a.tokens, a.ldd, q_width + kv_width,
                                kv_width));
  problem_free(&p);
  trial_end(&t);
}

static void test_attention(void **state)
{
  static const size_t documents[] = {1, 63, 2, 70, 9, 0};
  check_attention(4, 1, 10, documents, 0, 0); /* D14: kv heads 1, 2, n */
  check_attention(4, 2, 16, documents, 0, 0);
  check_attention(4, 4, 14, documents, 0, 0);
  check_attention(1, 1, 64, (const size_t[]){130, 0}, 0, 0);
  check_attention(4, 2, 16, documents, 2, 0);
  check_attention(4, 2, 10, documents, 0, 7);
  check_attention(2, 1, 16, (const size_t[]){200, 60, 0}, 3, 65);
}

/* ---- activations, gated and not ---- */

static double activation(enum pen_activation f, double a)
{
  const double pi = 3.14159265358979323846;
  switch (f) {
  case PEN_ACTIVATION_SILU:
    return a / (1 + exp(-a));
  case PEN_ACTIVATION_GELU_TANH:
    return a * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 * a * a * a))) / 2;
  case PEN_ACTIVATION_GELU:
    break;
  }
  return a * (1 + erf(a / sqrt(2))) / 2;
}

static void glu_forward(const struct problem *p, double *out)
{
  const enum pen_activation *f = p->shape;
  for (size_t i = 0; i < p->n_out; i++)
    out[i] = activation(*f, p->in[0][i]) * (p->in[1] ? p->in[1][i] : 1);
}

static void check_glu(enum pen_activation f, float range)
{
  struct trial t;
  problem_begin(&t);
  size_t rows = 7, cols = 37, n = rows * cols;
  float *gate = trial_in(&t, n, -range, range), *up = trial_in(&t, n, -2, 2);
  float *dy = trial_in(&t, n, -1, 1), *y = trial_out(&t, n);
  float *dgate = trial_out(&t, n), *dup = trial_out(&t, n);
  t.ops->glu(&t.stream, f, rows, cols, gate, up, cols, y);
  t.ops->glu_backward(&t.stream, f, rows, cols, dy, gate, up, cols, dgate, dup);
  struct problem p = {"glu", {n, n},
                      {problem_doubles(&t, gate, n), problem_doubles(&t, up, n)}, n,
                      glu_forward, &f, problem_doubles(&t, dy, n)};
  problem_check_forward(&p, y);
  problem_check_gradient(&p, 0, dgate);
  problem_check_gradient(&p, 1, dup);
  free(p.in[1]);
  p.in[1] = NULL;
  t.ops->glu(&t.stream, f, rows, cols, gate, NULL, cols, y);
  t.ops->glu_backward(&t.stream, f, rows, cols, dy, gate, NULL, cols, dgate,
                      NULL);
  problem_check_forward(&p, y);
  problem_check_gradient(&p, 0, dgate);
  problem_free(&p);
  trial_end(&t);
}

static void test_glu(void **state)
{
  static const float ranges[] = {0.1f, 6, 40};
  for (size_t i = 0; i < 3; i++) {
    check_glu(PEN_ACTIVATION_SILU, ranges[i]);
    check_glu(PEN_ACTIVATION_GELU_TANH, ranges[i]);
    check_glu(PEN_ACTIVATION_GELU, ranges[i]);
  }
}

static void softcap_forward(const struct problem *p, double *out)
{
  const float *cap = p->shape;
  for (size_t i = 0; i < p->n_out; i++)
    out[i] = (double)*cap * tanh(p->in[0][i] / (double)*cap);
}

static void check_softcap(float range)
{
  struct trial t;
  problem_begin(&t);
  size_t rows = 7, cols = 37, n = rows * cols;
  float cap = 30, *x = trial_inout_f32(&t, n, -range, range);
  float *d = trial_inout(&t, n, -1, 1);
  struct problem p = {"softcap", {n}, {problem_doubles(&t, x, n)}, n, softcap_forward,
                      &cap, problem_doubles(&t, d, n)};
  t.ops->softcap(&t.stream, rows, cols, cap, x, cols);
  t.ops->softcap_backward(&t.stream, rows, cols, cap, x, cols, d);
  problem_check_forward(&p, x);
  problem_check_gradient(&p, 0, d);
  problem_free(&p);
  trial_end(&t);
}

static void test_softcap(void **state)
{
  check_softcap(1);
  check_softcap(60);
  check_softcap(2000);
}

PROBLEM_MAIN("ops gradient", cmocka_unit_test(test_rmsnorm),
             cmocka_unit_test(test_layernorm), cmocka_unit_test(test_rope),
             cmocka_unit_test(test_attention), cmocka_unit_test(test_glu),
             cmocka_unit_test(test_softcap))
