/* problem.c: see problem.h.  Disadvantage: of a large input some elements alone
 * are moved. */
#include "tests/check/problem.h"

#define STEP 1e-5
#define PROBES_MAX 60 /* elements of an input that are moved */

static uint64_t seed;

double *problem_doubles(const struct trial *t, const void *x, size_t n)
{
  double *out = malloc(n * sizeof *out);
  for (size_t i = 0; i < n; i++)
    out[i] = (double)trial_get(t, x, i);
  return out;
}

static double scale_of(const double *x, size_t n)
{
  double m = 1e-30;
  for (size_t i = 0; i < n; i++)
    m = fmax(m, fabs(x[i]));
  return m;
}

void problem_check_forward(const struct problem *p, const float *got)
{
  double *want = calloc(p->n_out, sizeof *want);
  p->forward(p, want);
  double scale = scale_of(want, p->n_out);
  for (size_t i = 0; i < p->n_out; i++)
    if (!(fabs((double)got[i] - want[i]) <= PROBLEM_TOLERANCE * scale))
      fail_msg("%s: element %zu is %.9g, not %.9g", p->name, i, (double)got[i],
               want[i]);
  free(want);
}

static double loss(const struct problem *p, double *out)
{
  double sum = 0;
  p->forward(p, out);
  for (size_t i = 0; i < p->n_out; i++)
    sum += out[i] * p->d_out[i];
  return sum;
}

/* got: dL/d(in[which]). */
void problem_check_gradient(const struct problem *p, size_t which,
                            const float *got)
{
  size_t n = p->n[which], stride = n / PROBES_MAX + 1;
  double *x = p->in[which], *out = calloc(p->n_out, sizeof *out), scale = 1e-30;
  for (size_t i = 0; i < n; i++)
    scale = fmax(scale, fabs((double)got[i]));
  for (size_t i = 0; i < n; i += stride) {
    double middle = x[i];
    x[i] = middle + STEP;
    double above = loss(p, out);
    x[i] = middle - STEP;
    double below = loss(p, out), want = (above - below) / (2 * STEP);
    x[i] = middle;
    if (!(fabs((double)got[i] - want) <= PROBLEM_TOLERANCE * scale))
      fail_msg("%s: gradient %zu of input %zu is %.9g, not %.9g (scale %g)",
               p->name, i, which, (double)got[i], want, scale);
  }
  free(out);
}

void problem_free(struct problem *p)
{
  for (size_t i = 0; i < PROBLEM_INPUTS_MAX; i++)
    free(p->in[i]);
  free((void *)(uintptr_t)p->d_out);
}

void problem_begin(struct trial *t)
{
  trial_begin(t, pen_isa_detect(), PEN_ELEM_F32, &pen_gemm_reference, 2,
              seed++);
}

void problem_seed(void)
{
  seed = test_seed(77);
}
