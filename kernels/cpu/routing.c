/* routing.c: mixtures of experts: which expert a token goes to, and rows of
 * tokens to experts and back.
 *
 * Pool items are a few tokens, a few rows, or some columns; sending tokens to
 * experts and summing over all of them is one item, in token order.  No token is
 * twice among an expert's rows, so rows may be added in any order.  Disadvantage:
 * that one item keeps all but one worker idle. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

#define TOKENS_PER_ITEM ((size_t)8)

struct route_args {
  struct pen_routing r;
  const float *logits;
  float *balance;
  /* backward */
  const float *dweights, *counts;
  float scale;
  elem_t *dlogits;
};

/* ---- forward ---- */

static void softmax(const float *x, size_t n, float *p)
{
  v16 top = v16_set1(-INFINITY), sum = v16_set1(0);
  for (size_t i = 0; i < n; i += 16)
    top = v16_max(top, v16_load_rest(x + i, PEN_LEFT(n, i), -INFINITY));
  v16 shift = v16_set1(v16_max_lane(top));
  for (size_t i = 0; i < n; i += 16) {
    size_t left = PEN_LEFT(n, i);
    v16 e = v16_exp(v16_sub(v16_load_rest(x + i, left, -INFINITY), shift));
    v16_store_n(p + i, e, left);
    sum = v16_add(sum, e);
  }
  v16 whole = v16_set1(v16_sum(sum));
  for (size_t i = 0; i < n; i += 16) {
    size_t left = PEN_LEFT(n, i);
    v16_store_n(p + i, v16_div(v16_load_n(p + i, left), whole), left);
  }
}

static bool is_among(const uint32_t *chosen, size_t n, uint32_t expert)
{
  for (size_t i = 0; i < n; i++)
    if (chosen[i] == expert)
      return true;
  return false;
}

/* Of what is not yet chosen the most probable, the first of equals; where there
 * are only NaN, the first. */
static uint32_t next_choice(const float *p, size_t experts,
                            const uint32_t *chosen, size_t n)
{
  uint32_t best = UINT32_MAX;
  for (uint32_t e = 0; e < experts; e++)
    if (!is_among(chosen, n, e) && (best == UINT32_MAX || p[e] > p[best]))
      best = e;
  return best;
}

static float sum_of(const float *x, size_t n)
{
  float sum = x[0];
  for (size_t i = 1; i < n; i++)
    sum += x[i];
  return sum;
}

static void route_tokens(void *ctx, size_t item, size_t worker)
{
  const struct route_args *g = ctx;
  const struct pen_routing *r = &g->r;
  size_t k = r->per_token;
  size_t end = PEN_MIN(r->tokens, (item + 1) * TOKENS_PER_ITEM);
  for (size_t t = item * TOKENS_PER_ITEM; t < end; t++) {
    float *p = r->probs + t * r->experts, *weights = r->weights + t * k;
    uint32_t *chosen = r->chosen + t * k;
    softmax(g->logits + t * r->experts, r->experts, p);
    for (size_t i = 0; i < k; i++) {
      chosen[i] = next_choice(p, r->experts, chosen, i);
      weights[i] = p[chosen[i]];
    }
    float whole = r->normalise ? sum_of(weights, k) : 1;
    for (size_t i = 0; i < k; i++)
      weights[i] /= whole;
  }
}

/* Rows of each expert, by a counting sort of the choices. */
static void send_tokens(struct pen_stream *s, const struct pen_routing *r,
                        size_t worker)
{
  uint32_t *next = pen_stream_scratch(s, worker), begin = 0;
  size_t n = r->tokens * r->per_token;
  memset(r->counts, 0, r->experts * sizeof *r->counts);
  for (size_t i = 0; i < n; i++)
    r->counts[r->chosen[i]]++;
  for (size_t e = 0; e < r->experts; e++) {
    next[e] = begin;
    begin += r->counts[e];
  }
  for (size_t i = 0; i < n; i++) {
    uint32_t row = next[r->chosen[i]]++;
    r->rows[row] = (uint32_t)(i / r->per_token);
    r->places[row] = (uint32_t)i;
  }
}

/* Counts, then sums of probabilities. */
static void add_balance(const struct pen_routing *r, float *balance)
{
  float *sums = balance + r->experts;
  for (size_t e = 0; e < r->experts; e++)
    balance[e] += (float)r->counts[e];
  for (size_t t = 0; t < r->tokens; t++)
    for (size_t e = 0; e < r->experts; e++)
      sums[e] += r->probs[t * r->experts + e];
}

struct send_args {
  struct pen_stream *s;
  const struct route_args *g;
};

static void send_item(void *ctx, size_t item, size_t worker)
{
  const struct send_args *a = ctx;
  send_tokens(a->s, &a->g->r, worker);
  if (a->g->balance)
    add_balance(&a->g->r, a->g->balance);
}

static size_t n_items(size_t n, size_t per_item)
{
  return (n + per_item - 1) / per_item;
}

void pen_cpu_route(struct pen_stream *s, const struct pen_routing *r,
                   const float *logits, float *balance)
{
  struct route_args g = {.r = *r, .logits = logits, .balance = balance};
  struct send_args send = {s, &g};
  pen_stream_run(s, n_items(r->tokens, TOKENS_PER_ITEM), route_tokens, &g);
  pen_stream_run(s, 1, send_item, &send);
}

void pen_cpu_route_balance(struct pen_stream *s, size_t experts,
                           const float *balance, float scale, double *loss)
{
  double sum = 0;
  for (size_t e = 0; e < experts; e++)
    sum += (double)balance[e] * (double)balance[experts + e];
  *loss += (double)scale * sum;
}

/* ---- backward ---- */

/* dL/dp of a token's experts. */
static void dprobs(const struct route_args *g, size_t t, float *d)
{
  const struct pen_routing *r = &g->r;
  size_t k = r->per_token;
  const float *p = r->probs + t * r->experts, *dw = g->dweights + t * k;
  const float *w = r->weights + t * k;
  const uint32_t *chosen = r->chosen + t * k;
  for (size_t e = 0; e < r->experts; e++)
    d[e] = g->counts ? g->scale * g->counts[e] : 0;
  float shared = 0, whole = 1;
  if (r->normalise) { /* w = p / the sum of the chosen p */
    shared = dw[0] * w[0];
    whole = p[chosen[0]];
    for (size_t i = 1; i < k; i++) {
      shared += dw[i] * w[i];
      whole += p[chosen[i]];
    }
  }
  for (size_t i = 0; i < k; i++)
    d[chosen[i]] += (dw[i] - shared) / whole;
}

/* Through the softmax: p (d - sum p d). */
static void dlogits(const float *p, const float *d, size_t n, elem_t *out)
{
  v16 sum = v16_set1(0);
  for (size_t i = 0; i < n; i += 16) {
    size_t left = PEN_LEFT(n, i);
    sum = v16_muladd(sum, v16_load_n(p + i, left), v16_load_n(d + i, left));
  }
  v16 mean = v16_set1(v16_sum(sum));
  for (size_t i = 0; i < n; i += 16) {
    size_t left = PEN_LEFT(n, i);
    v16 a = v16_sub(v16_load_n(d + i, left), mean);
    elem_store_n(out + i, v16_mul(v16_load_n(p + i, left), a), left);
  }
}

struct backward_args {
  struct pen_stream *s;
  struct route_args g;
};

static void route_tokens_backward(void *ctx, size_t item, size_t worker)
{
  const struct backward_args *a = ctx;
  const struct pen_routing *r = &a->g.r;
  float *d = pen_stream_scratch(a->s, worker);
  size_t end = PEN_MIN(r->tokens, (item + 1) * TOKENS_PER_ITEM);
  for (size_t t = item * TOKENS_PER_ITEM; t < end; t++) {
    dprobs(&a->g, t, d);
    dlogits(r->probs + t * r->experts, d, r->experts,
            a->g.dlogits + t * r->experts);
  }
}

void pen_cpu_route_backward(struct pen_stream *s, const struct pen_routing *r,
                            const float *dweights, const float *balance,
                            float scale, void *dlogits)
{
  struct backward_args a = {s, {.r = *r, .dweights = dweights,
                                .counts = balance, .scale = scale,
                                .dlogits = dlogits}};
  pen_stream_run(s, n_items(r->tokens, TOKENS_PER_ITEM), route_tokens_backward,
                 &a);
}

/* ---- an expert's rows ---- */

struct rows_args {
  struct pen_expert_rows e;
  const float *x;
  float *y;
  const float *d;
  elem_t *act, *dact;
  float *dweights;
};

static void add_rows(void *ctx, size_t item, size_t worker)
{
  const struct rows_args *g = ctx;
  size_t dim = g->e.dim, end = PEN_MIN(g->e.n, (item + 1) * TOKENS_PER_ITEM);
  for (size_t r = item * TOKENS_PER_ITEM; r < end; r++) {
    float weight = g->e.weights ? g->e.weights[g->e.places[r]] : 1;
    float *y = g->y + g->e.rows[r] * dim;
    for (size_t i = 0; i < dim; i += 16) {
      size_t n = PEN_LEFT(dim, i);
      v16 a = v16_load_n(g->x + r * dim + i, n);
      v16_store_n(y + i, v16_muladd(v16_load_n(y + i, n), v16_set1(weight), a),
                  n);
    }
  }
}

void pen_cpu_expert_add(struct pen_stream *s, const struct pen_expert_rows *e,
                        const float *x, float *y)
{
  struct rows_args g = {.e = *e, .x = x, .y = y};
  pen_stream_run(s, n_items(e->n, TOKENS_PER_ITEM), add_rows, &g);
}

static void weigh_rows(void *ctx, size_t item, size_t worker)
{
  const struct rows_args *g = ctx;
  size_t dim = g->e.dim, end = PEN_MIN(g->e.n, (item + 1) * TOKENS_PER_ITEM);
  for (size_t r = item * TOKENS_PER_ITEM; r < end; r++) {
    v16 weight = v16_set1(g->e.weights[g->e.places[r]]), sum = v16_set1(0);
    for (size_t i = 0; i < dim; i += 16) {
      size_t n = PEN_LEFT(dim, i), at = r * dim + i;
      v16 d = v16_load_n(g->d + at, n), act = elem_load_n(g->act + at, n);
      sum = v16_muladd(sum, d, act);
      elem_store_n(g->dact + at, v16_mul(weight, d), n);
      elem_store_n(g->act + at, v16_mul(weight, act), n);
    }
    g->dweights[g->e.places[r]] = v16_sum(sum);
  }
}

void pen_cpu_expert_weigh(struct pen_stream *s,
                          const struct pen_expert_rows *e, const float *d,
                          void *act, void *dact, float *dweights)
{
  struct rows_args g = {.e = *e, .d = d, .act = act, .dact = dact,
                        .dweights = dweights};
  pen_stream_run(s, n_items(e->n, TOKENS_PER_ITEM), weigh_rows, &g);
}
