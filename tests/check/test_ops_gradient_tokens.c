/* Embedding, bias, residual, cross-entropy and routing against double
 * precision. */
#include "tests/check/problem.h"

/* ---- embedding: rows [2, 9) of a table ---- */

#define SCALE 2.5f
enum { FIRST_ROW = 2, N_ROWS = 7, DIM = 20, N_TOKENS = 12 };
static const uint32_t ids[N_TOKENS] = {0, 2, 8, 9, 5, 5, 2, 5, 100, 3, 1, 8};

static bool has_row(size_t t)
{
  return ids[t] >= FIRST_ROW && ids[t] < FIRST_ROW + N_ROWS;
}

static void embed_forward(const struct problem *p, double *out)
{
  for (size_t t = 0; t < N_TOKENS; t++)
    for (size_t i = 0; i < DIM && has_row(t); i++)
      out[t * DIM + i] =
          (double)SCALE * p->in[0][(ids[t] - FIRST_ROW) * DIM + i];
}

static void test_embed(void **state)
{
  struct trial t;
  problem_begin(&t);
  size_t n = N_TOKENS * DIM, n_table = N_ROWS * DIM;
  float *table = trial_in(&t, n_table, -1, 1), *d = trial_in(&t, n, -1, 1);
  float *x = trial_out(&t, n), *grad = trial_out_f32(&t, n_table);
  memset(grad, 0, n_table * sizeof *grad);
  t.ops->embed(&t.stream, ids, N_TOKENS, FIRST_ROW, N_ROWS, DIM, SCALE,
               table, x);
  t.ops->embed_backward(&t.stream, ids, N_TOKENS, FIRST_ROW, N_ROWS, DIM,
                        SCALE, d, grad);
  for (size_t i = 0; i < n; i++)
    if (!has_row(i / DIM)) {
      assert_true(isnan(x[i])); /* left alone */
      x[i] = 0;
    }
  struct problem p = {"embed", {n_table}, {problem_doubles(&t, table, n_table)}, n,
                      embed_forward, NULL, problem_doubles(&t, d, n)};
  problem_check_forward(&p, x);
  problem_check_gradient(&p, 0, grad);
  problem_free(&p);
  trial_end(&t);
}

/* ---- bias and residual ---- */

static void bias_forward(const struct problem *p, double *out)
{
  for (size_t i = 0; i < p->n_out; i++)
    out[i] = p->in[0][i] + p->in[1][i % p->n[1]];
}

static void test_bias(void **state)
{
  struct trial t;
  problem_begin(&t);
  size_t rows = 150, cols = 19, n = rows * cols;
  float *x = trial_inout(&t, n, -1, 1), *b = trial_in(&t, cols, -1, 1);
  float *dy = trial_in(&t, n, -1, 1), *db = trial_out_f32(&t, cols);
  memset(db, 0, cols * sizeof *db);
  struct problem p = {"bias", {n, cols},
                      {problem_doubles(&t, x, n), problem_doubles(&t, b, cols)}, n,
                      bias_forward, NULL, problem_doubles(&t, dy, n)};
  t.ops->bias(&t.stream, rows, cols, x, cols, b);
  t.ops->bias_backward(
      &t.stream, rows, cols, dy, cols, db,
      trial_work_f32(&t, pen_ops_partials_elems(rows, cols)));
  problem_check_forward(&p, x);
  problem_check_gradient(&p, 1, db);
  problem_free(&p);
  trial_end(&t);
}

static void test_add(void **state)
{
  struct trial t;
  problem_begin(&t);
  size_t n = 1000;
  float *a = trial_in(&t, n, -1, 1), *b = trial_in(&t, n, -1, 1);
  float *y = trial_out(&t, n);
  t.ops->add(&t.stream, n, a, b, y);
  t.ops->add_f32(&t.stream, n, b, a); /* in fp32 the same sum */
  assert_memory_equal(y, a, n * sizeof *y);
  struct problem p = {"add", {n, n}, {problem_doubles(&t, y, n), problem_doubles(&t, b, n)}, n,
                      bias_forward, NULL, NULL};
  t.ops->add(&t.stream, n, y, b, b);
  problem_check_forward(&p, b);
  problem_free(&p);
  trial_end(&t);
}

/* ---- cross-entropy: a vocabulary of 50 in blocks of 32 and 18 ---- */

enum { VOCAB = 50, SPLIT = 32, ROWS = 9 };
static const int32_t targets[ROWS] = {0, 31, 32, 49, -1, 7, -1, 40, 16};

static void xent_forward(const struct problem *p, double *out)
{
  for (size_t t = 0; t < ROWS; t++) {
    const double *x = p->in[0] + t * VOCAB;
    double sum = 0;
    for (size_t i = 0; i < VOCAB; i++)
      sum += exp(x[i]);
    out[t] = targets[t] < 0 ? 0 : log(sum) - x[targets[t]];
  }
}

static void test_xent(void **state)
{
  struct trial t;
  problem_begin(&t);
  float *logits = trial_in_f32(&t, ROWS * VOCAB, -8, 8);
  float *stats = trial_out_f32(&t, PEN_XENT_ROWS * ROWS);
  float *grad = trial_work_f32(&t, ROWS * VOCAB);
  struct pen_logits blocks[2] = {
      {ROWS, SPLIT, VOCAB, 0, 0, ROWS, targets},
      {ROWS, VOCAB - SPLIT, VOCAB, 0, SPLIT, ROWS, targets}};
  t.ops->xent_begin(&t.stream, ROWS, stats);
  t.ops->xent_add(&t.stream, &blocks[0], logits, stats);
  t.ops->xent_add(&t.stream, &blocks[1], logits + SPLIT, stats);
  for (size_t b = 0; b < 2; b++) {
    float *g = trial_out(&t, ROWS * blocks[b].cols);
    size_t begin_id = blocks[b].first_id;
    t.ops->xent_backward(&t.stream, &blocks[b], logits + begin_id, stats, g);
    for (size_t r = 0; r < ROWS; r++)
      memcpy(grad + r * VOCAB + begin_id, g + r * blocks[b].cols,
             blocks[b].cols * sizeof *g);
  }
  double ones[ROWS], total, want = 0, per_token[ROWS];
  for (size_t r = 0; r < ROWS; r++)
    ones[r] = 1;
  struct problem p = {"cross-entropy", {ROWS * VOCAB},
                      {problem_doubles(&t, logits, ROWS * VOCAB)}, ROWS, xent_forward,
                      NULL, ones};
  t.ops->xent_loss(&t.stream, ROWS, targets, stats, &total);
  xent_forward(&p, per_token);
  for (size_t r = 0; r < ROWS; r++)
    want += per_token[r];
  assert_true(fabs(total - want) <= PROBLEM_TOLERANCE * want);
  problem_check_gradient(&p, 0, grad);
  p.d_out = NULL;
  problem_free(&p);
  trial_end(&t);
}

/* A logit of Inf or NaN must reach the loss, or nobody would see it. */
static void test_xent_nonfinite(void **state)
{
  static const float bad[] = {INFINITY, NAN};
  for (size_t b = 0; b < 2; b++) {
    struct trial t;
    problem_begin(&t);
    float *logits = trial_in_f32(&t, ROWS * VOCAB, -8, 8);
    float *stats = trial_out_f32(&t, PEN_XENT_ROWS * ROWS);
    struct pen_logits shape = {ROWS, VOCAB, VOCAB, 0, 0, ROWS, targets};
    double total;
    logits[3 * VOCAB + 20] = bad[b];
    t.ops->xent_begin(&t.stream, ROWS, stats);
    t.ops->xent_add(&t.stream, &shape, logits, stats);
    t.ops->xent_loss(&t.stream, ROWS, targets, stats, &total);
    assert_false(isfinite(total));
    trial_end(&t);
  }
}

/* ---- mixtures of experts ---- */

enum { T = 23, EXPERTS = 7, PER_TOKEN = 3 };

struct routed {
  struct pen_routing r;
  float balance_scale;   /* 0: no loss of balance */
  const double *counts;  /* [EXPERTS] of all layers so far */
  uint32_t counts_of[EXPERTS], rows[T * PER_TOKEN], places[T * PER_TOKEN];
  uint32_t chosen[T * PER_TOKEN];
};

static void routing_begin(struct trial *t, struct routed *a, bool normalise)
{
  a->r = (struct pen_routing){
      .tokens = T, .experts = EXPERTS, .per_token = PER_TOKEN,
      .normalise = normalise, .counts = a->counts_of, .rows = a->rows,
      .places = a->places, .chosen = a->chosen,
      .weights = trial_out_f32(t, T * PER_TOKEN),
      .probs = trial_out_f32(t, T * EXPERTS)};
}

/* The weights of the experts that were chosen; then the loss of balance. */
static void routing_forward(const struct problem *p, double *out)
{
  const struct routed *a = p->shape;
  double balance = 0;
  for (size_t t = 0; t < T; t++) {
    const double *x = p->in[0] + t * EXPERTS;
    double all = 0, chosen = 0;
    for (size_t e = 0; e < EXPERTS; e++)
      all += exp(x[e]);
    for (size_t e = 0; e < EXPERTS; e++)
      balance += a->counts[e] * exp(x[e]) / all;
    for (size_t i = 0; i < PER_TOKEN; i++)
      chosen += exp(x[a->chosen[t * PER_TOKEN + i]]);
    for (size_t i = 0; i < PER_TOKEN; i++)
      out[t * PER_TOKEN + i] = exp(x[a->chosen[t * PER_TOKEN + i]]) /
                               (a->r.normalise ? chosen : all);
  }
  out[T * PER_TOKEN] = (double)a->balance_scale * balance;
}

static void check_routing(bool normalise, float balance_scale)
{
  struct trial t;
  struct routed a = {.balance_scale = balance_scale};
  problem_begin(&t);
  size_t n = T * EXPERTS, n_weights = T * PER_TOKEN;
  routing_begin(&t, &a, normalise);
  float *logits = trial_in_f32(&t, n, -3, 3);
  float *dweights = trial_in_f32(&t, n_weights, -1, 1);
  float *balance = trial_work_f32(&t, 2 * EXPERTS), *out;
  float *dlogits = trial_out(&t, n);
  double loss = 0, *counts = calloc(EXPERTS, sizeof *counts), *d_out;
  memset(balance, 0, 2 * EXPERTS * sizeof *balance);
  t.ops->route(&t.stream, &a.r, logits, balance);
  for (size_t e = 0; e < EXPERTS; e++)
    counts[e] = (double)a.counts_of[e];
  a.counts = counts;
  t.ops->route_balance(&t.stream, EXPERTS, balance, balance_scale, &loss);
  t.ops->route_backward(&t.stream, &a.r, dweights,
                        balance_scale != 0 ? balance : NULL, balance_scale,
                        dlogits);
  out = trial_work_f32(&t, n_weights + 1);
  memcpy(out, a.r.weights, n_weights * sizeof *out);
  out[n_weights] = (float)loss;
  d_out = problem_doubles(&t, dweights, n_weights);
  d_out = realloc(d_out, (n_weights + 1) * sizeof *d_out);
  d_out[n_weights] = 1;
  struct problem p = {"routing", {n}, {problem_doubles(&t, logits, n)},
                      n_weights + 1, routing_forward, &a, d_out};
  problem_check_forward(&p, out);
  problem_check_gradient(&p, 0, dlogits);
  problem_free(&p);
  free(counts);
  trial_end(&t);
}

static void test_routing(void **state)
{
  check_routing(false, 0);
  check_routing(true, 0);
  check_routing(false, 0.01f);
  check_routing(true, 0.02f);
}

/* Every token goes to its most probable experts, the first of equals, and every
 * expert has its tokens in order. */
static void test_routing_order(void **state)
{
  struct trial t;
  struct routed a = {.balance_scale = 0};
  problem_begin(&t);
  routing_begin(&t, &a, true);
  float *logits = trial_in_f32(&t, T * EXPERTS, -3, 3);
  for (size_t i = 0; i < T * EXPERTS; i++)
    logits[i] = (float)(int)logits[i]; /* many equals */
  t.ops->route(&t.stream, &a.r, logits, NULL);
  for (size_t token = 0; token < T; token++)
    for (size_t i = 0; i < PER_TOKEN; i++) {
      const float *x = logits + token * EXPERTS;
      const uint32_t *chosen = a.chosen + token * PER_TOKEN;
      size_t before = 0; /* that must have been chosen before it */
      for (size_t e = 0; e < EXPERTS; e++)
        before += x[e] > x[chosen[i]] || (x[e] == x[chosen[i]] && e < chosen[i]);
      assert_int_equal(before, i);
    }
  for (size_t e = 0, row = 0; e < EXPERTS; e++)
    for (size_t i = 0; i < a.counts_of[e]; i++, row++) {
      assert_int_equal(a.chosen[a.places[row]], e);
      assert_int_equal(a.places[row] / PER_TOKEN, a.rows[row]);
      if (i)
        assert_true(a.rows[row - 1] < a.rows[row]);
    }
  trial_end(&t);
}

/* Logits that are no numbers: still experts that exist, and a loss that tells. */
static void test_routing_nonfinite(void **state)
{
  struct trial t;
  struct routed a = {.balance_scale = 0};
  problem_begin(&t);
  routing_begin(&t, &a, true);
  float *logits = trial_in_f32(&t, T * EXPERTS, -3, 3);
  for (size_t e = 0; e < EXPERTS; e++)
    logits[5 * EXPERTS + e] = NAN;
  t.ops->route(&t.stream, &a.r, logits, NULL);
  for (size_t i = 0; i < PER_TOKEN; i++) {
    assert_int_equal(a.chosen[5 * PER_TOKEN + i], i);
    assert_true(isnan(a.r.weights[5 * PER_TOKEN + i]));
    assert_false(isnan(a.r.weights[6 * PER_TOKEN + i]));
  }
  trial_end(&t);
}

/* An expert of DIM inputs and HIDDEN outputs: sum [T, HIDDEN] += weights * act. */
static void expert_forward(const struct problem *p, double *out)
{
  const struct pen_expert_rows *e = p->shape;
  memset(out, 0, p->n_out * sizeof *out);
  for (size_t r = 0; r < e->n; r++)
    for (size_t i = 0; i < e->dim; i++)
      out[e->rows[r] * e->dim + i] +=
          p->in[1][e->places[r]] * p->in[0][r * e->dim + i];
}

static void test_expert(void **state)
{
  static const uint32_t rows[] = {2, 3, 7, 11}, places[] = {5, 6, 14, 23};
  struct trial t;
  problem_begin(&t);
  struct pen_expert_rows e = {4, DIM, rows, places, NULL};
  size_t n = e.n * DIM, n_weights = 12 * 2, n_out = 12 * DIM;
  float *weights = trial_in_f32(&t, n_weights, 0, 1);
  float *x = trial_inout_f32(&t, n, -1, 1), *sum = trial_out_f32(&t, n_out);
  float *d_out = trial_in_f32(&t, n_out, -1, 1), *d = trial_work_f32(&t, n);
  float *dx = trial_out(&t, n), *dweights = trial_out_f32(&t, n_weights);
  memset(sum, 0, n_out * sizeof *sum);
  memset(dweights, 0, n_weights * sizeof *dweights);
  e.weights = weights;
  struct problem p = {"expert", {n, n_weights},
                      {problem_doubles(&t, x, n),
                       problem_doubles(&t, weights, n_weights)},
                      n_out, expert_forward, &e,
                      problem_doubles(&t, d_out, n_out)};
  t.ops->expert_add(&t.stream, &e, x, sum);
  problem_check_forward(&p, sum);
  for (size_t r = 0; r < e.n; r++)
    memcpy(d + r * DIM, d_out + rows[r] * DIM, DIM * sizeof *d);
  t.ops->expert_weigh(&t.stream, &e, d, x, dx, dweights);
  problem_check_gradient(&p, 0, dx);
  problem_check_gradient(&p, 1, dweights);
  for (size_t r = 0; r < e.n; r++)
    for (size_t i = 0; i < DIM; i++) /* x is weighed */
      assert_true(x[r * DIM + i] == weights[places[r]] *
                                        (float)p.in[0][r * DIM + i]);
  memset(sum, 0, n_out * sizeof *sum);
  e.weights = NULL; /* adds as it is */
  t.ops->expert_add(&t.stream, &e, d, sum);
  for (size_t r = 0; r < e.n; r++)
    assert_memory_equal(sum + rows[r] * DIM, d + r * DIM, DIM * sizeof *d);
  problem_free(&p);
  trial_end(&t);
}

PROBLEM_MAIN("ops gradient of tokens", cmocka_unit_test(test_embed),
             cmocka_unit_test(test_bias), cmocka_unit_test(test_add),
             cmocka_unit_test(test_xent), cmocka_unit_test(test_xent_nonfinite),
             cmocka_unit_test(test_routing),
             cmocka_unit_test(test_routing_order),
             cmocka_unit_test(test_routing_nonfinite),
             cmocka_unit_test(test_expert))
