/* test.h: the checks that the tests of data share. */
#ifndef PEN_TESTS_DATA_TEST_H
#define PEN_TESTS_DATA_TEST_H

#include "tests/test.h"

/* `call` must fail with `code` and a text that holds `part`. */
#define assert_refused(call, code, part)                                      \
  do {                                                                        \
    pen_error_clear();                                                        \
    assert_int_equal((call), -(code));                                        \
    if (!strstr(pen_error_text(), (part)))                                    \
      fail_msg("\"%s\" does not say \"%s\"", pen_error_text(), (part));       \
    pen_error_clear();                                                        \
  } while (0)

/* `call` must succeed; else its text is shown. */
#define assert_done(call)                                                     \
  do {                                                                        \
    if ((call) < 0)                                                           \
      fail_msg("%s: %s", #call, pen_error_text());                            \
  } while (0)

#endif
