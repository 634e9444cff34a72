/* Plain lines into a file, one line in place on a (pseudo) terminal. */
#include "src/train/progress.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/test.h"

static const struct pen_progress_state some = {
  .step = 1, .loss = 2.5, .grad_norm = 1, .learning_rate = 1e-3,
  .tokens_per_second = 1234,
};

static void test_time(void **state)
{
  static const struct {
    double seconds;
    const char *text;
  } times[] = {
    { 0, "0s" },        { 12.4, "12s" },    { 59.6, "1m00s" },
    { 200, "3m20s" },   { 3720, "1h02m" },  { 183600, "2d03h" },
    { -1, "?" },        { 1e300, "?" },
  };
  for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
    char text[16];
    pen_progress_format_time(times[i].seconds, text);
    assert_string_equal(text, times[i].text);
  }
}

static size_t read_some(int fd, char *text, size_t n)
{
  ssize_t got = read(fd, text, n - 1);
  assert_true(got >= 0);
  text[got] = '\0';
  return (size_t)got;
}

static void test_plain(void **state)
{
  int ends[2];
  char text[4096];
  assert_int_equal(pipe(ends), 0);
  struct pen_progress progress;
  pen_progress_begin(&progress, ends[1], 0, 50);
  struct pen_progress_state step = some;
  for (step.step = 1; step.step <= 50; step.step++) {
    step.n_skipped = step.step == 50;
    step.bound = step.step == 50 ? "compute 83%" : NULL;
    pen_progress_step(&progress, &step);
  }
  pen_progress_clear(&progress);
  pen_progress_end(&progress);
  close(ends[1]);
  read_some(ends[0], text, sizeof text);
  close(ends[0]);
  int n_lines = 0;
  for (char *p = text; *p; p++)
    n_lines += *p == '\n';
  assert_int_equal(n_lines, 2); /* first and last: 50 steps are no second */
  assert_int_equal(strncmp(text, "step 1/50  loss 2.5000  norm 1  lr 0.001  "
                                 "1234 tok/s  left ", 59), 0);
  assert_non_null(strstr(text, "step 50/50"));
  assert_non_null(strstr(text, "left 0s  skipped 1  compute 83%\n"));
  assert_null(strchr(text, '\r'));
}

static void test_terminal(void **state)
{
  char text[4096], name[64];
  int master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || grantpt(master) || unlockpt(master) ||
      ptsname_r(master, name, sizeof name))
    test_skip("no pseudo terminals here");
  int slave = open(name, O_RDWR | O_NOCTTY);
  if (slave < 0)
    test_skip("cannot open %s", name);
  const struct winsize size = { .ws_row = 24, .ws_col = 30 };
  assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
  struct pen_progress progress;
  pen_progress_begin(&progress, slave, 0, 2);
  pen_progress_step(&progress, &some);
  read_some(master, text, sizeof text);
  assert_string_equal(text, "\rstep 1/2  loss 2.5000  norm 1\x1b[K");
  pen_progress_clear(&progress);
  read_some(master, text, sizeof text);
  assert_string_equal(text, "\r\x1b[K");
  struct pen_progress_state last = some;
  last.step = 2;
  pen_progress_step(&progress, &last); /* the last is always drawn */
  pen_progress_end(&progress);
  usleep(1000);
  read_some(master, text, sizeof text);
  assert_string_equal(text, "\rstep 2/2  loss 2.5000  norm 1\x1b[K\r\n");
  close(slave);
  close(master);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_time),
    cmocka_unit_test(test_plain),
    cmocka_unit_test(test_terminal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
