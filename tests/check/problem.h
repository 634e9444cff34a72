/* problem.h: an operation of kernels/ops.h against plain double-precision loops:
 * its forward result, and every gradient by central differences of those loops.
 *
 * Inputs are exact in both, so what differs is fp32 rounding: sums of n terms
 * are off by sqrt(n) 2^-24 of their largest partial sum, and n <= 512 here; a
 * handful of such sums follow each other.  PROBLEM_TOLERANCE is of the array's
 * largest element.  Central differences in double with step 1e-5 are off by
 * 1e-10. */
#ifndef PEN_TESTS_CHECK_PROBLEM_H
#define PEN_TESTS_CHECK_PROBLEM_H

#include <math.h>

#include "tests/check/trial.h"

#define PROBLEM_TOLERANCE 5e-6
#define PROBLEM_INPUTS_MAX 3

/* A function of some arrays, in double, and what fp32 code says of it. */
struct problem {
  const char *name;
  size_t n[PROBLEM_INPUTS_MAX];
  double *in[PROBLEM_INPUTS_MAX];
  size_t n_out;
  void (*forward)(const struct problem *p, double *out);
  const void *shape;
  const double *d_out; /* [n_out] */
};

/* Frees in and d_out. */
void problem_free(struct problem *p);

/* A trial of fp32 operations on two threads. */
void problem_begin(struct trial *t);

/* x [n], an array of t's elements, in double. */
double *problem_doubles(const struct trial *t, const void *x, size_t n);

/* got [n_out]: the operation's result. */
void problem_check_forward(const struct problem *p, const float *got);

/* got: dL/d(in[which]), where L is the sum of d_out times the results. */
void problem_check_gradient(const struct problem *p, size_t which,
                            const float *got);

/* The program's main: reads the seed, runs the tests. */
#define PROBLEM_MAIN(name, ...)                                               \
  int main(void)                                                              \
  {                                                                           \
    const struct CMUnitTest tests[] = {__VA_ARGS__};                          \
    problem_seed();                                                           \
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);              \
  }
void problem_seed(void);

#endif
