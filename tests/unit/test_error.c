/* The first failure keeps its text; codes and exit codes. */
#include "tests/test.h"

#include <errno.h>

static void test_first_wins(void **state)
{
  pen_error_clear();
  assert_int_equal(pen_error_set(-ENOSPC, "cannot write %d bytes", 7), -ENOSPC);
  assert_int_equal(pen_error_set(-EIO, "second"), -EIO);
  assert_int_equal(pen_error_standing(), -ENOSPC);
  assert_string_equal(pen_error_text(),
                      "cannot write 7 bytes: No space left on device");
  pen_error_clear();
  assert_string_equal(pen_error_text(), "");
  assert_int_equal(pen_error_standing(), 0);
}

static void test_own_codes_add_no_text(void **state)
{
  assert_int_equal(pen_error_set(PEN_EUSAGE, "bad --lr"), -PEN_EUSAGE);
  assert_string_equal(pen_error_text(), "bad --lr");
  assert_int_equal(pen_error_context(-PEN_EUSAGE, "run.yaml:3"), -PEN_EUSAGE);
  assert_string_equal(pen_error_text(), "run.yaml:3: bad --lr");
  pen_error_clear();
}

static void test_what_the_text_says_itself(void **state)
{
  assert_int_equal(pen_error_say(-ENOENT, "there is no tool"), -ENOENT);
  assert_string_equal(pen_error_text(), "there is no tool");
  assert_int_equal(pen_error_say(EIO, "second"), -EIO);
  assert_int_equal(pen_error_standing(), -ENOENT);
  pen_error_clear();
}

static void test_travels(void **state)
{
  struct pen_error error;
  pen_error_set(-EIO, "disk");
  pen_error_take(&error);
  assert_int_equal(pen_error_standing(), 0);
  assert_int_equal(pen_error_put(&error), -EIO);
  assert_non_null(strstr(pen_error_text(), "disk"));
  pen_error_clear();
}

static void test_long_text_is_cut(void **state)
{
  char text[3 * PEN_ERROR_TEXT_BYTES];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  pen_error_set(-PEN_EFORMAT, "%s", text);
  assert_int_equal(strlen(pen_error_text()), PEN_ERROR_TEXT_BYTES - 1);
  pen_error_context(-PEN_EFORMAT, "%s", text);
  assert_int_equal(strlen(pen_error_text()), PEN_ERROR_TEXT_BYTES - 1);
  pen_error_clear();
}

static void test_exit_codes(void **state)
{
  assert_int_equal(pen_error_exit_code(0), 0);
  assert_int_equal(pen_error_exit_code(-EIO), 1);
  assert_int_equal(pen_error_exit_code(-PEN_EUSAGE), 2);
  assert_int_equal(pen_error_exit_code(-PEN_ENOFIT), 3);
  assert_string_equal(pen_error_describe(-PEN_ENOFIT), "does not fit");
  assert_string_equal(pen_error_describe(-EIO), "Input/output error");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_first_wins),
    cmocka_unit_test(test_own_codes_add_no_text),
    cmocka_unit_test(test_what_the_text_says_itself),
    cmocka_unit_test(test_travels),
    cmocka_unit_test(test_long_text_is_cut),
    cmocka_unit_test(test_exit_codes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
