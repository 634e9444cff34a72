/* Levels, the PEN_LOG variable, and whole lines from many threads. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/thread.h"
#include "tests/test.h"

/* What fn(arg) writes to standard error. */
static char *capture(void (*fn)(void *arg), void *arg)
{
  FILE *f = tmpfile();
  assert_non_null(f);
  int kept = dup(STDERR_FILENO);
  dup2(fileno(f), STDERR_FILENO);
  fn(arg);
  dup2(kept, STDERR_FILENO);
  close(kept);
  long n = (fseek(f, 0, SEEK_END), ftell(f));
  char *text = calloc(1, (size_t)n + 1);
  rewind(f);
  assert_int_equal(fread(text, 1, (size_t)n, f), n);
  fclose(f);
  return text;
}

static void one_of_each(void *arg)
{
  pen_log_error("e %d", 1);
  pen_log_warn("w");
  pen_log_info("i");
  pen_log_debug("d");
}

static void check_level(enum pen_log_level level, const char *wanted)
{
  pen_log_set_level(level);
  char *text = capture(one_of_each, NULL);
  assert_string_equal(text, wanted);
  free(text);
}

/* First, before pen_log_set_level hides it. */
static void test_environment(void **state)
{
  setenv("PEN_LOG", "warn", 1);
  assert_true(pen_log_enabled(PEN_LOG_WARN));
  assert_false(pen_log_enabled(PEN_LOG_INFO));
}

static void test_levels(void **state)
{
  check_level(PEN_LOG_ERROR, "error: e 1\n");
  check_level(PEN_LOG_INFO, "error: e 1\nwarning: w\ni\n");
  check_level(PEN_LOG_DEBUG, "error: e 1\nwarning: w\ni\ndebug: d\n");
  enum pen_log_level level = PEN_LOG_INFO;
  assert_true(pen_log_level_parse("debug", &level));
  assert_int_equal(level, PEN_LOG_DEBUG);
  assert_false(pen_log_level_parse("loud", &level));
  assert_int_equal(level, PEN_LOG_DEBUG);
}

static void long_line(void *arg)
{
  errno = EDOM;
  pen_log_info("%s", (const char *)arg);
  assert_int_equal(errno, EDOM);
}

static void test_long_line_is_cut(void **state)
{
  char line[5000];
  memset(line, 'x', sizeof line - 1);
  line[sizeof line - 1] = '\0';
  pen_log_set_level(PEN_LOG_INFO);
  char *text = capture(long_line, line);
  assert_int_equal(strlen(text), 2048);
  assert_string_equal(text + 2044, "...\n");
  free(text);
}

enum { N_LINES = 500 };

static void talk(void *arg)
{
  for (int i = 0; i < N_LINES; i++)
    pen_log_info("%s", (const char *)arg);
}

static void crowd(void *arg)
{
  struct pen_thread threads[2] = { 0 };
  test_ok(pen_thread_create(&threads[0], "a", talk, "aaaaaaaaaaaaaaaaaaaaaaa"));
  test_ok(pen_thread_create(&threads[1], "b", talk, "bbbbbbbbbbbbbbbbbbbbbbb"));
  pen_thread_join(&threads[0]);
  pen_thread_join(&threads[1]);
}

static void test_lines_stay_whole(void **state)
{
  pen_log_set_level(PEN_LOG_INFO);
  char *text = capture(crowd, NULL);
  int n_lines = 0;
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    assert_int_equal(strlen(line), 23);
    assert_int_equal(strspn(line, line[0] == 'a' ? "a" : "b"), 23);
    n_lines++;
  }
  assert_int_equal(n_lines, 2 * N_LINES);
  free(text);
}

static int n_before;
static void count_before(void) { n_before++; }

static void test_before(void **state)
{
  pen_log_set_level(PEN_LOG_WARN);
  pen_log_set_before(count_before);
  free(capture(one_of_each, NULL));
  pen_log_set_before(NULL);
  assert_int_equal(n_before, 2);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_environment),
    cmocka_unit_test(test_levels),
    cmocka_unit_test(test_long_line_is_cut),
    cmocka_unit_test(test_lines_stay_whole),
    cmocka_unit_test(test_before),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
