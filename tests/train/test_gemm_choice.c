/* The choice of a product library: figures in, choice out; and a trial that
 * multiplies with what is here. */
#include "tests/test.h"

#include "src/train/gemm_choice.h"

static void test_pick(void **state)
{
  assert_int_equal(pen_gemm_choice_pick((double[]){1}, 1), 0);
  assert_int_equal(pen_gemm_choice_pick((double[]){3, 1, 2}, 3), 0);
  /* The first stays while another is only a little faster. */
  assert_int_equal(pen_gemm_choice_pick((double[]){1, 1.2}, 2), 0);
  assert_int_equal(pen_gemm_choice_pick((double[]){1, 1.3}, 2), 1);
  assert_int_equal(pen_gemm_choice_pick((double[]){1, 1.3, 1.4}, 3), 2);
  assert_int_equal(pen_gemm_choice_pick((double[]){1, 1.4, 1.3}, 3), 1);
}

static void test_open(void **state)
{
  for (int elem = 0; elem < 2; elem++) {
    enum pen_elem e = elem ? PEN_ELEM_BF16 : PEN_ELEM_F32;
    struct pen_gemm_choice c;
    const struct pen_gemm_library *best;
    test_ok(pen_gemm_choice_open(e, &c));
    test_ok(pen_gemm_find("auto", e, &best));
    assert_in_range(c.n, 1, PEN_GEMM_CHOICE_MAX);
    assert_ptr_equal(c.libraries[0], best);
    assert_ptr_equal(c.chosen, best);
    for (size_t i = 0; i < c.n; i++)
      for (size_t j = i + 1; j < c.n; j++)
        assert_ptr_not_equal(c.libraries[i], c.libraries[j]);
  }
}

/* Two stand-ins whose speed is known: the second does nothing. */
static int nothing(enum pen_isa isa, const struct pen_gemm *tile, void *scratch)
{
  return 0;
}

static void test_trial(void **state)
{
  struct pen_pool *pool;
  struct pen_gemm_library idle = pen_gemm_reference;
  struct pen_gemm_trial trial = {PEN_ELEM_F32, 512, 256, 512};
  struct pen_gemm_choice c = {
      .n = 2, .libraries = {&pen_gemm_reference, &idle},
      .chosen = &pen_gemm_reference};
  idle.tile = nothing;
  test_ok(pen_pool_create(2, "pool", &pool));
  test_ok(pen_gemm_choice_make(&trial, PEN_ISA_SCALAR, pool, &c));
  assert_ptr_equal(c.chosen, &idle);
  assert_true(c.rates[0] > 0 && c.rates[1] > 2 * c.rates[0]);

  /* Too small to say anything: the first, untried. */
  c.chosen = c.libraries[0];
  trial.tokens = 8;
  test_ok(pen_gemm_choice_make(&trial, PEN_ISA_SCALAR, pool, &c));
  assert_ptr_equal(c.chosen, &pen_gemm_reference);
  assert_int_equal(c.n, 0);
  pen_pool_free(&pool);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pick),
      cmocka_unit_test(test_open),
      cmocka_unit_test(test_trial),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
