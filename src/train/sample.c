/* sample.c: temperature, then top-k, then top-p, as transformers applies them.
 *
 * Pure functions; sums in double, in one order.  Disadvantage: with top-k or
 * top-p the whole vocabulary is sorted for each token. */
#include "src/train/sample.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

static uint32_t most_likely(const float *logits, size_t n)
{
  size_t best = 0;
  for (size_t i = 1; i < n; i++)
    if (logits[i] > logits[best])
      best = i;
  return (uint32_t)best;
}

/* The likelier first; of equals the lower id. */
static int compare(const void *a, const void *b)
{
  const struct pen_sample_choice *x = a, *y = b;
  if (x->logit != y->logit)
    return x->logit < y->logit ? 1 : -1;
  return x->id < y->id ? -1 : x->id > y->id;
}

static double weight(const struct pen_sampling *how, float logit, float most)
{
  return exp(((double)logit - (double)most) / how->temperature);
}

static size_t keep_top_k(const struct pen_sampling *how,
                         const struct pen_sample_choice *choices, size_t n)
{
  size_t k = how->top_k;
  if (!k || k >= n)
    return n;
  while (k < n && choices[k].logit == choices[k - 1].logit)
    k++;
  return k;
}

/* What follows those that have top_p together. */
static size_t keep_top_p(const struct pen_sampling *how,
                         const struct pen_sample_choice *choices, size_t n)
{
  if (how->top_p >= 1)
    return n;
  double total = 0, sum = 0;
  for (size_t i = 0; i < n; i++)
    total += weight(how, choices[i].logit, choices[0].logit);
  size_t kept = 0;
  while (kept < n && sum < how->top_p * total)
    sum += weight(how, choices[kept++].logit, choices[0].logit);
  return kept ? kept : 1;
}

uint32_t pen_sample(const struct pen_sampling *how, const float *logits,
                    size_t n, uint64_t place,
                    struct pen_sample_choice *choices)
{
  if (how->greedy)
    return most_likely(logits, n);
  for (size_t i = 0; i < n; i++)
    choices[i] = (struct pen_sample_choice){logits[i], (uint32_t)i};
  float most = logits[most_likely(logits, n)];
  if (how->top_k || how->top_p < 1) {
    qsort(choices, n, sizeof *choices, compare);
    n = keep_top_k(how, choices, n);
    n = keep_top_p(how, choices, n);
  }
  double sum = 0;
  for (size_t i = 0; i < n; i++)
    sum += weight(how, choices[i].logit, most);
  /* The inverse of the cumulative distribution. */
  double left = sum * pen_rng_double(how->seed, 0, place);
  for (size_t i = 0; i < n; i++) {
    left -= weight(how, choices[i].logit, most);
    if (left < 0)
      return choices[i].id;
  }
  return most_likely(logits, n);
}
