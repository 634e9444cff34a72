/* test_isa.c: the choice of an instruction set, asked for and not. */
#include "tests/test.h"

#include "kernels/isa.h"

static void unset_takes_the_highest(void **state)
{
  enum pen_isa isa = PEN_ISA_COUNT;
  unsetenv("PEN_ISA");
  test_ok(pen_isa_choose(NULL, &isa));
  assert_int_equal(isa, pen_isa_detect());
  assert_true(pen_isa_is_available(isa));
  test_ok(pen_isa_choose("auto", &isa));
  assert_int_equal(isa, pen_isa_detect());
}

static void every_available_level_can_be_asked_for(void **state)
{
  for (enum pen_isa level = 0; level < PEN_ISA_COUNT; level++) {
    enum pen_isa isa = PEN_ISA_COUNT;
    setenv("PEN_ISA", pen_isa_name(level), 1);
    if (pen_isa_is_available(level)) {
      test_ok(pen_isa_choose(NULL, &isa));
      assert_int_equal(isa, level);
    } else {
      test_fails(pen_isa_choose(NULL, &isa), PEN_EUNSUPPORTED,
                 pen_isa_name(level));
      assert_int_equal(isa, PEN_ISA_COUNT);
    }
  }
  assert_true(pen_isa_is_available(PEN_ISA_SCALAR));
}

static void the_option_wins_over_the_environment(void **state)
{
  enum pen_isa isa = PEN_ISA_COUNT;
  setenv("PEN_ISA", "nonsense", 1);
  test_ok(pen_isa_choose("scalar", &isa));
  assert_int_equal(isa, PEN_ISA_SCALAR);
}

static void unknown_names_are_refused(void **state)
{
  enum pen_isa isa = PEN_ISA_COUNT;
  setenv("PEN_ISA", "avx3", 1);
  test_fails(pen_isa_choose(NULL, &isa), PEN_EUSAGE, "avx3");
  test_fails(pen_isa_choose("AVX2", &isa), PEN_EUSAGE, "AVX2");
  assert_int_equal(isa, PEN_ISA_COUNT);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(unset_takes_the_highest),
    cmocka_unit_test(every_available_level_can_be_asked_for),
    cmocka_unit_test(the_option_wins_over_the_environment),
    cmocka_unit_test(unknown_names_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
