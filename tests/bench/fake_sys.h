/* fake_sys.h: a tree like /sys under a test's folder. */
#ifndef PEN_TESTS_BENCH_FAKE_SYS_H
#define PEN_TESTS_BENCH_FAKE_SYS_H

#include "tests/tmpdir.h"

static inline void fake_make_folders(const char *path)
{
  char copy[3 * PATH_MAX];
  snprintf(copy, sizeof copy, "%s", path);
  for (char *p = copy + strlen(test_tmpdir()) + 1; (p = strchr(p, '/')); p++) {
    *p = '\0';
    mkdir(copy, 0777);
    *p = '/';
  }
}

/* sys/PATH with this text and a newline. */
static inline void fake_attribute(const char *path, const char *text)
{
  char name[3 * PATH_MAX], line[256];
  snprintf(name, sizeof name, "%s/sys/%s", test_tmpdir(), path);
  snprintf(line, sizeof line, "%s\n", text);
  fake_make_folders(name);
  test_write_file(name, line, strlen(line));
}

/* sys/PATH is a link to sys/TO. */
static inline void fake_link(const char *path, const char *to)
{
  char name[3 * PATH_MAX], target[3 * PATH_MAX];
  snprintf(name, sizeof name, "%s/sys/%s", test_tmpdir(), path);
  snprintf(target, sizeof target, "%s/sys/%s", test_tmpdir(), to);
  fake_make_folders(name);
  unlink(name);
  assert_int_equal(symlink(target, name), 0);
}

static inline const char *fake_sys(void) { return test_tmp("sys"); }

#endif
