/* plateau.c: optimal partitioning (Jackson et al., "An algorithm for optimal
 * partitioning of data on an interval", 2005): the cuts that make the sum of
 * squares about each part's mean, and a penalty for each part, least.
 *
 * Lone slow windows, which drives have many of, are no level: a part has at least
 * five windows, its rate is their median, and parts whose rates are alike are
 * joined.  Disadvantage: a slow decline becomes stairs. */
#include "src/bench/plateau.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LEAST 5         /* windows of a plateau */
#define PENALTY 10      /* times the noise's square, times log n */
#define NOISE_LEAST 0.01 /* of the median rate */
#define APART 0.1       /* of the larger of two rates */

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(const double *values, size_t n)
{
  double copy[PEN_PLATEAU_WINDOWS_MAX];
  memcpy(copy, values, n * sizeof *copy);
  qsort(copy, n, sizeof *copy, by_value);
  return copy[n / 2];
}

/* Standard deviation of one window, from differences of neighbours, of which a
 * change of level is only one. */
static double noise(const double *rates, size_t n)
{
  double steps[PEN_PLATEAU_WINDOWS_MAX];
  for (size_t i = 0; i + 1 < n; i++)
    steps[i] = fabs(rates[i + 1] - rates[i]);
  double spread = n > 1 ? 1.4826 * median(steps, n - 1) / sqrt(2) : 0;
  double least = NOISE_LEAST * median(rates, n);
  return spread > least ? spread : least;
}

/* Where the last part of the best cut of [0, i) begins, for each i. */
static void partition(const double *x, size_t n, double penalty,
                      size_t *ret_begin)
{
  double sum[PEN_PLATEAU_WINDOWS_MAX + 1] = {0};
  double squares[PEN_PLATEAU_WINDOWS_MAX + 1] = {0};
  double best[PEN_PLATEAU_WINDOWS_MAX + 1] = {0};
  for (size_t i = 0; i < n; i++) {
    sum[i + 1] = sum[i] + x[i];
    squares[i + 1] = squares[i] + x[i] * x[i];
  }
  for (size_t end = 1; end <= n; end++) {
    best[end] = INFINITY;
    for (size_t begin = 0; begin < end; begin++) {
      if ((begin > 0 && begin < LEAST) || (begin > 0 && end - begin < LEAST))
        continue;
      double s = sum[end] - sum[begin], length = (double)(end - begin);
      double cost = best[begin] + squares[end] - squares[begin] -
                    s * s / length + penalty;
      if (cost < best[end]) {
        best[end] = cost;
        ret_begin[end] = begin;
      }
    }
  }
}

static bool alike(double a, double b)
{
  return fabs(a - b) <= APART * fmax(a, b);
}

/* Neighbours that are alike become one, nearest levels first. */
static size_t join(const double *rates, struct pen_plateau *p, size_t n)
{
  for (;;) {
    size_t at = 0;
    double least = INFINITY;
    for (size_t i = 0; i + 1 < n; i++) {
      double apart = fabs(p[i].rate - p[i + 1].rate);
      if (alike(p[i].rate, p[i + 1].rate) && apart < least) {
        least = apart;
        at = i;
      }
    }
    if (least == INFINITY)
      return n;
    p[at].end = p[at + 1].end;
    p[at].rate = median(rates + p[at].begin, p[at].end - p[at].begin);
    memmove(&p[at + 1], &p[at + 2], (n - at - 2) * sizeof *p);
    n--;
  }
}

size_t pen_plateau_find(const double *rates, size_t n,
                        struct pen_plateau ret_plateaus[PEN_PLATEAUS_MAX])
{
  size_t begin[PEN_PLATEAU_WINDOWS_MAX + 1] = {0};
  struct pen_plateau all[PEN_PLATEAU_WINDOWS_MAX];
  size_t count = 0;
  if (n == 0)
    return 0;
  double spread = noise(rates, n);
  partition(rates, n, PENALTY * spread * spread * log((double)n + 1), begin);
  for (size_t end = n; end > 0; end = begin[end])
    count++;
  for (size_t end = n, i = count; end > 0; end = begin[end])
    all[--i] = (struct pen_plateau){
        begin[end], end, median(rates + begin[end], end - begin[end])};
  count = join(rates, all, count);
  /* More than fit are no plateaus: what goes up and down all the time. */
  if (count > PEN_PLATEAUS_MAX) {
    all[PEN_PLATEAUS_MAX - 1].end = n;
    size_t from = all[PEN_PLATEAUS_MAX - 1].begin;
    all[PEN_PLATEAUS_MAX - 1].rate = median(rates + from, n - from);
    count = PEN_PLATEAUS_MAX;
  }
  memcpy(ret_plateaus, all, count * sizeof *all);
  return count;
}
