/* The rule that leaves early updates out, step by step. */
#include "tests/test.h"

#include "src/train/speculation.h"

static void miss(struct pen_speculation *s, bool missed)
{
  bool early = pen_speculation_may(s);
  pen_speculation_note(s,
                       !early   ? PEN_SPECULATION_WAITED
                       : missed ? PEN_SPECULATION_REDONE
                                : PEN_SPECULATION_STOOD,
                       missed);
}

static void test_few_misses_are_borne(void **state)
{
  (void)state;
  struct pen_speculation s = {0};
  for (int step = 0; step < 1000; step++)
    miss(&s, step % 7 == 3); /* at most three of twenty */
  assert_int_equal(s.n[PEN_SPECULATION_WAITED], 0);
  assert_int_equal(s.n[PEN_SPECULATION_REDONE], 143);
  assert_int_equal(s.n[PEN_SPECULATION_STOOD], 857);
}

static void test_a_fifth_is_too_many(void **state)
{
  (void)state;
  struct pen_speculation s = {0};
  for (int step = 0; step < 100; step++)
    miss(&s, true);
  assert_int_equal(s.n[PEN_SPECULATION_REDONE], PEN_SPECULATION_MISSES);
  assert_int_equal(s.n[PEN_SPECULATION_WAITED], 100 - PEN_SPECULATION_MISSES);
  /* It comes back as soon as fewer of the newest twenty are misses. */
  int steps = 0;
  while (!pen_speculation_may(&s)) {
    miss(&s, false);
    steps++;
  }
  assert_int_equal(steps, PEN_SPECULATION_STEPS - PEN_SPECULATION_MISSES + 1);
  assert_int_equal(s.n[PEN_SPECULATION_STOOD], 0);
}

static void test_outcomes_have_names(void **state)
{
  (void)state;
  for (int i = 0; i < PEN_SPECULATION_OUTCOMES; i++)
    for (int j = 0; j < i; j++)
      assert_string_not_equal(
          pen_speculation_name((enum pen_speculation_outcome)i),
          pen_speculation_name((enum pen_speculation_outcome)j));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_few_misses_are_borne),
      cmocka_unit_test(test_a_fifth_is_too_many),
      cmocka_unit_test(test_outcomes_have_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
