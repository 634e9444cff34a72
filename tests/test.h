/* test.h: cmocka, and what every test program needs beside it. */
#ifndef PEN_TESTS_TEST_H
#define PEN_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"

/* cmocka up to 1.1.5 reports a skip as "not ok 1 # SKIP", which meson takes for
 * a failure.  Its messages go through this function, and ours stands before
 * the library's. */
__attribute__((weak)) void print_message(const char *const format, ...)
{
  va_list args;
  va_start(args, format);
  bool is_skip = strncmp(format, "not ok", 6) == 0 && strstr(format, "SKIP");
  vprintf(is_skip ? format + 4 : format, args);
  va_end(args);
}

/* Ends the test as skipped; the reason is what tools/test prints. */
#define test_skip(...)                                                        \
  do {                                                                        \
    printf("# skipped: " __VA_ARGS__);                                        \
    printf("\n");                                                             \
    fflush(stdout);                                                           \
    skip();                                                                   \
  } while (0)

/* Asserts that a call returned 0; else shows the standing error's text. */
#define test_ok(call)                                                         \
  do {                                                                        \
    int test_r_ = (call);                                                     \
    if (test_r_)                                                              \
      fail_msg("%s returned %d: %s", #call, test_r_, pen_error_text());       \
  } while (0)

/* Asserts that a call returned -code and that its text contains `part`; the
 * standing error is cleared. */
#define test_fails(call, code, part)                                          \
  do {                                                                        \
    pen_error_clear();                                                        \
    int test_r_ = (call);                                                     \
    if (test_r_ != -(code))                                                   \
      fail_msg("%s returned %d, not %d: %s", #call, test_r_, -(code),         \
               pen_error_text());                                             \
    if (!strstr(pen_error_text(), (part)))                                    \
      fail_msg("\"%s\" does not say \"%s\"", pen_error_text(), (part));       \
    pen_error_clear();                                                        \
  } while (0)

/* fork, with nothing waiting to be printed twice. */
static inline pid_t test_fork(void)
{
  fflush(NULL);
  return fork();
}

/* PEN_SEED if set, else `standard`; printed, so that a failure can be run
 * again. */
static inline uint64_t test_seed(uint64_t standard)
{
  const char *text = getenv("PEN_SEED");
  uint64_t seed = text ? strtoull(text, NULL, 0) : standard;
  printf("# PEN_SEED=%llu\n", (unsigned long long)seed);
  return seed;
}

/* The project's source root. */
static inline const char *test_root(void)
{
  const char *root = getenv("PEN_ROOT");
  return root ? root : ".";
}

/* Whether a sanitizer watches this build (some limits then do not apply). */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif

#endif
