/* Operations of kernels/ops.h: every instruction set, precision and number of
 * threads gives plain C's bits.  bf16 results must be the fp32 results rounded
 * once, since all is computed in fp32 from the same (bf16-valued) inputs: no
 * tolerance is needed. */
#include "tests/check/level.h"
#include "tests/check/trial.h"

static uint64_t seed;
static enum pen_isa level;

static void compare(const struct trial_case *c, size_t variant,
                    enum pen_isa isa, enum pen_elem elem, size_t n_threads)
{
  struct trial reference, other;
  char what[128];
  snprintf(what, sizeof what, "%s variant %zu, %s %s, %zu threads", c->name,
           variant, pen_isa_name(isa), pen_elem_name(elem), n_threads);
  trial_begin(&reference, PEN_ISA_SCALAR, PEN_ELEM_F32, &pen_gemm_reference, 1,
              seed + variant);
  trial_begin(&other, isa, elem, &pen_gemm_reference, n_threads,
              seed + variant);
  c->run(&reference, variant);
  c->run(&other, variant);
  trial_assert_same(&reference, &other, what);
  trial_end(&reference);
  trial_end(&other);
}

/* PEN_TEST_QUICK: two shapes of each, for emulated CPUs. */
static void each(enum pen_isa isa, enum pen_elem elem, size_t n_threads)
{
  size_t most = getenv("PEN_TEST_QUICK") ? 2 : SIZE_MAX;
  for (const struct trial_case *c = trial_cases; c->name; c++)
    for (size_t variant = 0; variant < c->n_variants && variant < most;
         variant++)
      compare(c, variant, isa, elem, n_threads);
}

static void test_fp32(void **state)
{
  each(level, PEN_ELEM_F32, 1);
}

static void test_bf16(void **state)
{
  each(level, PEN_ELEM_BF16, 1);
}

static void test_threads(void **state)
{
  each(level, PEN_ELEM_F32, 2);
  each(level, PEN_ELEM_BF16, 3);
}

static void test_shapes_refused(void **state)
{
  test_ok(pen_ops_check_shape(8, 4, 128));
  test_fails(pen_ops_check_shape(8, 4, 7), PEN_EUNSUPPORTED, "even");
  test_fails(pen_ops_check_shape(8, 4, 4096), PEN_EUNSUPPORTED, "4096");
  test_fails(pen_ops_check_shape(8, 3, 64), PEN_EUNSUPPORTED, "multiple");
}

int main(void)
{
  seed = test_seed(20240601);
  level = test_level();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fp32),
      cmocka_unit_test(test_bf16),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_shapes_refused),
  };
  return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
