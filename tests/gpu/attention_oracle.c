/* attention_oracle.c: see attention_oracle.h.
 *
 * With u = 2^-24 and r the rounding of an element (2^-8 in bf16, u in fp32):
 * a sum of n products in fp32, in any order and with or without fused
 * operations, is within (n + 1) u of the sum of their magnitudes.  So a score s
 * = scale q k is within (dim + 4) u of S = scale |q| |k| (four more for the
 * scaling, the factor log2 e, the subtraction and the maximum's product), and a
 * probability e^(s - m), |m| <= the row's greatest S or |lse|, within e(S + m),
 * where e(x) = (dim + 4) u x + 4 u of itself.  A soft cap, whose slope is at most
 * 1, adds its own roundings, 6 u S: three of tanh, one each of quotient, division
 * and product.  Its slope 1 - y^2 in backward is off by 2 |y| times what y is, and
 * 2 u.  A probability is rounded once more (r) for the product that follows.
 * Everything else is sums of n <= tokens terms of
 * these.  All bounds are doubled where quotients of two such sums are taken.
 * Disadvantage: tokens^2 in time. */
#include "tests/gpu/attention_oracle.h"

#include <math.h>
#include <stdlib.h>

#define U 0x1p-24

static double rounding(enum pen_elem elem)
{
  return elem == PEN_ELEM_BF16 ? 0x1p-8 : U;
}

/* scale a b, and in *ret_size scale |a| |b|. */
static double dot(const double *a, const double *b, size_t n, double scale,
                  double *ret_size)
{
  double sum = 0, size = 0;
  for (size_t i = 0; i < n; i++) {
    sum += a[i] * b[i];
    size += fabs(a[i] * b[i]);
  }
  *ret_size = scale * size;
  return scale * sum;
}

static const double *row_of(const double *x, size_t token, size_t head,
                            size_t heads, size_t dim)
{
  return x + (token * heads + head) * dim;
}

/* Roundings of a score, in parts of its size. */
static double score_steps(const struct pen_attention *a)
{
  return (double)a->dim + (a->softcap != 0 ? 10 : 4);
}

/* Relative distance of a probability before it is rounded. */
static double probability_error(const struct pen_attention *a, double size)
{
  return score_steps(a) * U * size + 4 * U;
}

static double capped(const struct pen_attention *a, double score)
{
  double cap = (double)a->softcap;
  return cap != 0 ? cap * tanh(score / cap) : score;
}

static void forward_row(const struct attention_case *c, size_t t, size_t h,
                        struct attention_bound *o, struct attention_bound *lse)
{
  const struct pen_attention *a = c->a;
  size_t kv = h / (a->heads / a->kv_heads), first = a->first_key[t];
  double n = (double)(t - first + 1), top = 0, sum = 0, worst = 0;
  for (size_t j = first; j <= t; j++) {
    double size;
    dot(row_of(c->q, t, h, a->heads, a->dim),
        row_of(c->k, j, kv, a->kv_heads, a->dim), a->dim, a->scale, &size);
    top = fmax(top, size);
  }
  for (size_t i = 0; i < a->dim; i++)
    o[i] = (struct attention_bound){0, 0};
  for (size_t j = first; j <= t; j++) {
    double size;
    double s = dot(row_of(c->q, t, h, a->heads, a->dim),
                   row_of(c->k, j, kv, a->kv_heads, a->dim), a->dim, a->scale,
                   &size);
    double p = exp(capped(a, s)), error = probability_error(a, size + top);
    const double *v = row_of(c->v, j, kv, a->kv_heads, a->dim);
    sum += p;
    worst = fmax(worst, error);
    for (size_t i = 0; i < a->dim; i++) {
      o[i].value += p * v[i];
      o[i].allowed += p * fabs(v[i]) * (error + rounding(c->elem) + n * U);
    }
  }
  for (size_t i = 0; i < a->dim; i++) {
    o[i].value /= sum;
    o[i].allowed = 2 * o[i].allowed / sum +
                   fabs(o[i].value) * (worst + n * U + rounding(c->elem));
  }
  *lse = (struct attention_bound){log(sum), 0};
  lse->allowed = worst + n * U + 4 * U * (top + fabs(lse->value));
}

void attention_oracle(const struct attention_case *c,
                      struct attention_bound *o, struct attention_bound *lse)
{
  const struct pen_attention *a = c->a;
  for (size_t t = 0; t < a->tokens; t++)
    for (size_t h = 0; h < a->heads; h++)
      forward_row(c, t, h, o + (t * a->heads + h) * a->dim,
                  lse + h * a->tokens + t);
}

/* One query and one key: what they add to dq, dk and dv. */
static void backward_pair(const struct attention_case *c, size_t t, size_t h,
                          size_t j, struct attention_bound *dq,
                          struct attention_bound *dk,
                          struct attention_bound *dv)
{
  const struct pen_attention *a = c->a;
  size_t kv = h / (a->heads / a->kv_heads), dim = a->dim;
  const double *q = row_of(c->q, t, h, a->heads, dim);
  const double *d_o = row_of(c->d_o, t, h, a->heads, dim);
  const double *k = row_of(c->k, j, kv, a->kv_heads, dim);
  const double *v = row_of(c->v, j, kv, a->kv_heads, dim);
  double size, dp_size, delta_size, lse = c->lse[h * a->tokens + t];
  double s = capped(a, dot(q, k, dim, a->scale, &size)), p = exp(s - lse);
  double y = a->softcap != 0 ? s / (double)a->softcap : 0, slope = 1 - y * y;
  double dp = dot(d_o, v, dim, 1, &dp_size);
  double delta = dot(d_o, row_of(c->o, t, h, a->heads, dim), dim, 1,
                     &delta_size);
  double sums = (double)(a->tokens * (a->heads / a->kv_heads)) * U;
  double error = probability_error(a, size + fabs(lse)) + rounding(c->elem) +
                 sums;
  double ds = p * (dp - delta) * slope;
  double ds_error = fabs(ds) * error + p * (dp_size + delta_size) *
                                           (double)(dim + 4) * U;
  if (a->softcap != 0)
    ds_error += p * fabs(dp - delta) *
                (2 * fabs(y) * score_steps(a) * U * size / (double)a->softcap +
                 2 * U);
  for (size_t i = 0; i < dim; i++) {
    dq[i].value += a->scale * ds * k[i];
    dq[i].allowed += a->scale * ds_error * fabs(k[i]);
    dk[i].value += a->scale * ds * q[i];
    dk[i].allowed += a->scale * ds_error * fabs(q[i]);
    dv[i].value += p * d_o[i];
    dv[i].allowed += p * fabs(d_o[i]) * error;
  }
}

/* What storing the results adds. */
static void round_results(struct attention_bound *x, size_t n,
                          enum pen_elem elem)
{
  for (size_t i = 0; i < n; i++)
    x[i].allowed += rounding(elem) * (fabs(x[i].value) + x[i].allowed);
}

void attention_oracle_backward(const struct attention_case *c,
                               struct attention_bound *dq,
                               struct attention_bound *dk,
                               struct attention_bound *dv)
{
  const struct pen_attention *a = c->a;
  size_t dim = a->dim, group = a->heads / a->kv_heads;
  size_t n_q = a->tokens * a->heads * dim, n_k = n_q / group;
  for (size_t i = 0; i < n_q; i++)
    dq[i] = (struct attention_bound){0, 0};
  for (size_t i = 0; i < n_k; i++)
    dk[i] = dv[i] = (struct attention_bound){0, 0};
  for (size_t t = 0; t < a->tokens; t++)
    for (size_t h = 0; h < a->heads; h++)
      for (size_t j = a->first_key[t]; j <= t; j++) {
        size_t at = (j * a->kv_heads + h / group) * dim;
        backward_pair(c, t, h, j, dq + (t * a->heads + h) * dim, dk + at,
                      dv + at);
      }
  round_results(dq, n_q, c->elem);
  round_results(dk, n_k, c->elem);
  round_results(dv, n_k, c->elem);
}
