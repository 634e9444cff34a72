/* Every CUDA kernel but attention's against the host's operation, at the shapes
 * of tests/check, threads in all orders.
 *
 * Where launch.h promises the host's bits, they are asked for.  Elsewhere sums
 * have another order: with u = 2^-24, two orders of n terms differ by at most
 * n u times the sum of the terms' magnitudes (each is within half of that of
 * the exact sum; Higham 2002, 4.4), and the cases below say what that is for
 * their terms.  A result in bf16 is rounded once more: by 2^-8 of itself. */
#include <math.h>

#include "tests/check/trial.h"
#include "tests/gpu/table.h"

#define U 0x1p-24

static uint64_t seed;

/* How far a result may be: relative and absolute. */
struct bound {
  const char *name;
  double relative, absolute;
};

static const struct bound bounds[] = {
    /* Sum of dim <= 512 squares, all positive; rstd has half of its error. */
    {"rmsnorm", 512 * U, 0},
    /* dx: the mean of dim terms |dy h w| <= 1 * 2 * 1.5 times |h rstd| <= 2;
     * dw: 64 rows in order as on the host, then chunks. */
    {"rmsnorm_backward", 0, 6 * 512 * U},
    /* The mean, off by dim u times 3; all else as above, values below 10. */
    {"layernorm", 512 * U, 4 * 512 * U * 10},
    {"layernorm_backward", 0, 12 * 512 * U},
    /* Chunks of 64 rows as on the host; up to 16 of these in order as well. */
    {"bias_backward", 0, 0},
    /* Two blocks of up to 1,000 terms, all positive. */
    {"xent_add", 2000 * U, 0},
    /* Sums of up to 64 terms |d act| <= 2. */
    {"expert_weigh", 0, 64 * 64 * 2 * U},
};

static const struct bound *bound_of(const char *name)
{
  for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
    if (strcmp(bounds[i].name, name) == 0)
      return &bounds[i];
  return NULL;
}

static void assert_near(const struct trial *a, const struct trial *b,
                        const struct bound *bound, const char *what)
{
  for (size_t i = 0; i < a->n_arrays; i++)
    for (size_t j = 0; a->arrays[i].is_result && j < a->arrays[i].n; j++) {
      double x = trial_result(a, i, j), y = trial_result(b, i, j);
      double allowed = bound->absolute + bound->relative * fabs(x);
      if (b->arrays[i].elem == PEN_ELEM_BF16)
        allowed += 0x1p-8 * (fabs(x) + allowed);
      if (!(fabs(x - y) <= allowed) && !(isnan(x) && isnan(y)))
        fail_msg("%s: array %zu element %zu of %zu: %.9g is not %.9g +- %.3g",
                 what, i, j, a->arrays[i].n, y, x, allowed);
    }
}

static void compare(const struct trial_case *c, size_t variant,
                    enum pen_elem elem)
{
  struct trial reference, other;
  char what[128];
  snprintf(what, sizeof what, "%s variant %zu, %s", c->name, variant,
           pen_elem_name(elem));
  trial_begin(&reference, PEN_ISA_SCALAR, PEN_ELEM_F32, &pen_gemm_reference, 1,
              seed + variant);
  trial_begin(&other, PEN_ISA_SCALAR, elem, &pen_gemm_reference, 1,
              seed + variant);
  other.ops = table_of(elem);
  c->run(&reference, variant);
  c->run(&other, variant);
  const struct bound *bound = bound_of(c->name);
  if (bound)
    assert_near(&reference, &other, bound, what);
  else
    trial_assert_same(&reference, &other, what);
  trial_end(&reference);
  trial_end(&other);
}

/* test_attention.c and test_flat.c have better questions for these. */
static bool is_elsewhere(const char *name)
{
  return strncmp(name, "attention", 9) == 0 || strcmp(name, "xent_loss") == 0;
}

static void each_case(void *ctx)
{
  const enum pen_elem *elem = ctx;
  size_t n = 0;
  for (const struct trial_case *c = trial_cases; c->name; c++)
    for (size_t variant = 0; variant < c->n_variants; variant++)
      if (!is_elsewhere(c->name)) {
        compare(c, variant, *elem);
        n++;
      }
  assert_true(n > 50);
}

static void test_fp32(void **state)
{
  enum pen_elem elem = PEN_ELEM_F32;
  table_each_order(each_case, &elem);
}

static void test_bf16(void **state)
{
  enum pen_elem elem = PEN_ELEM_BF16;
  table_each_order(each_case, &elem);
}

int main(void)
{
  seed = test_seed(20240601);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fp32),
      cmocka_unit_test(test_bf16),
  };
  return cmocka_run_group_tests_name("gpu kernels", tests, NULL, NULL);
}
