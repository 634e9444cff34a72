/* Learning rates against closed formulas at the edges and against the values
 * of transformers 5's get_scheduler (lr 0.1, 3 warmup steps of 8). */
#include "src/train/lr.h"

#include <float.h>
#include <math.h>

#include "tests/test.h"

/* Two evaluations of the same few operations in double: a handful of
 * roundings, each at most half an epsilon of 0.1. */
static void check(const struct pen_lr *lr, uint64_t step, double wanted)
{
  double got = pen_lr_at(lr, step);
  if (!(fabs(got - wanted) <= 8 * DBL_EPSILON * 0.1))
    fail_msg("step %d: %.17g, not %.17g", (int)step, got, wanted);
}

static void check_all(enum pen_lr_shape shape, double min, double warmup,
                      double decay, const double wanted[9])
{
  struct pen_lr lr;
  test_ok(pen_lr_init(shape, 0.1, min, 8, warmup, decay, &lr));
  for (uint64_t step = 0; step <= 8; step++)
    check(&lr, step, wanted[step]);
  check(&lr, 1000, wanted[8]);
}

static void test_as_transformers(void **state)
{
  static const double constant[9] = {
    0, 0.03333333333333333, 0.06666666666666667, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1
  };
  static const double linear[9] = {
    0, 0.03333333333333333, 0.06666666666666667, 0.1, 0.08000000000000002,
    0.06, 0.04000000000000001, 0.020000000000000004, 0
  };
  static const double cosine[9] = {
    0, 0.03333333333333333, 0.06666666666666667, 0.1, 0.09045084971874738,
    0.06545084971874737, 0.03454915028125263, 0.009549150281252633, 0
  };
  static const double cosine_min[9] = {
    0, 0.03333333333333333, 0.06666666666666667, 0.1, 0.0923606797749979,
    0.0723606797749979, 0.047639320225002106, 0.02763932022500211, 0.02
  };
  /* decay of 3 steps to 0.02; the warmup is ours: from 0 */
  static const double wsd[9] = {
    0, 0.05, 0.1, 0.1, 0.1, 0.1, 0.08000000000000002, 0.040000000000000015,
    0.020000000000000004
  };
  check_all(PEN_LR_CONSTANT, 0, 3, 0, constant);
  check_all(PEN_LR_LINEAR, 0, 3, 0, linear);
  check_all(PEN_LR_COSINE, 0, 3, 0, cosine);
  check_all(PEN_LR_COSINE, 0.02, 3, 0, cosine_min);
  check_all(PEN_LR_WSD, 0.02, 2, 3, wsd);
}

static void test_edges(void **state)
{
  struct pen_lr lr;
  test_ok(pen_lr_init(PEN_LR_LINEAR, 1, 0, 1, 0, 0, &lr));
  assert_true(pen_lr_at(&lr, 0) == 1 && pen_lr_at(&lr, 1) == 0);
  test_ok(pen_lr_init(PEN_LR_LINEAR, 1, 0.5, 10, 0, 0, &lr));
  assert_true(pen_lr_at(&lr, 0) == 1 && pen_lr_at(&lr, 10) == 0.5);
  assert_true(pen_lr_at(&lr, 5) == 0.75);
  test_ok(pen_lr_init(PEN_LR_COSINE, 1, 0, 10, 10, 0, &lr)); /* all warmup */
  assert_true(pen_lr_at(&lr, 9) == 0.9);
  test_ok(pen_lr_init(PEN_LR_LINEAR, 1, 0, 5, 100, 0, &lr)); /* a short trial */
  assert_true(pen_lr_at(&lr, 4) == 0.04);
  test_ok(pen_lr_init(PEN_LR_WSD, 1, 0, 10, 0, 0, &lr)); /* no decay */
  assert_true(pen_lr_at(&lr, 9) == 1);
  test_ok(pen_lr_init(PEN_LR_WSD, 1, 0, 10, 4, 6, &lr)); /* no stable part */
  assert_true(pen_lr_at(&lr, 4) == 1 && pen_lr_at(&lr, 3) == 0.75);
  test_ok(pen_lr_init(PEN_LR_CONSTANT, 0, 0, 10, 0, 0, &lr));
  assert_true(pen_lr_at(&lr, 3) == 0);
  test_ok(pen_lr_init(PEN_LR_LINEAR, 1, 0, 0, 0, 0, &lr)); /* no steps */
  assert_true(pen_lr_at(&lr, 0) == 0);
}

static void test_shares(void **state)
{
  struct pen_lr lr;
  test_ok(pen_lr_init(PEN_LR_WSD, 1, 0, 301, 0.03, 0.1, &lr));
  assert_int_equal(lr.warmup_steps, 10); /* 9.03 up */
  assert_int_equal(lr.decay_steps, 31);
  test_ok(pen_lr_init(PEN_LR_LINEAR, 1, 0, 100, 1, 0, &lr));
  assert_int_equal(lr.warmup_steps, 1);
}

static void test_refuses(void **state)
{
  struct pen_lr lr;
  test_fails(pen_lr_init(PEN_LR_LINEAR, 1, 0, 100, 1.5, 0, &lr), PEN_EUSAGE,
             "--warmup-steps 1.5");
  test_fails(pen_lr_init(PEN_LR_LINEAR, 1, 0, 100, -1, 0, &lr), PEN_EUSAGE,
             "--warmup-steps -1");
  test_fails(pen_lr_init(PEN_LR_LINEAR, 1, 0, 100, NAN, 0, &lr), PEN_EUSAGE,
             "--warmup-steps");
  test_fails(pen_lr_init(PEN_LR_WSD, 1, 0, 100, 50, 51, &lr), PEN_EUSAGE,
             "longer than the run of 100 steps");
  test_fails(pen_lr_init(PEN_LR_WSD, 1, 0, 100, 101, 0, &lr), PEN_EUSAGE,
             "--warmup-steps 101");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_as_transformers),
    cmocka_unit_test(test_edges),
    cmocka_unit_test(test_shares),
    cmocka_unit_test(test_refuses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
