/* tmpdir.h: a folder for one test program, gone when it ends. */
#ifndef PEN_TESTS_TMPDIR_H
#define PEN_TESTS_TMPDIR_H

#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/test.h"

static char test_tmpdir_path[PATH_MAX];

static inline int test_tmpdir_remove_entry(const char *path,
                                           const struct stat *st, int type,
                                           struct FTW *ftw)
{
  return remove(path);
}

static inline void test_tmpdir_remove(void)
{
  nftw(test_tmpdir_path, test_tmpdir_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* The folder, made at the first call. */
static inline const char *test_tmpdir(void)
{
  if (test_tmpdir_path[0])
    return test_tmpdir_path;
  const char *base = getenv("TMPDIR");
  snprintf(test_tmpdir_path, sizeof test_tmpdir_path, "%s/penstock-test-XXXXXX",
           base ? base : "/tmp");
  if (!mkdtemp(test_tmpdir_path))
    abort();
  atexit(test_tmpdir_remove);
  return test_tmpdir_path;
}

/* "FOLDER/name" in one of 64 buffers, reused in turn. */
static inline const char *test_tmp(const char *name)
{
  static char paths[64][2 * PATH_MAX];
  static size_t next;
  char *path = paths[next++ % 64];
  snprintf(path, sizeof paths[0], "%s/%s", test_tmpdir(), name);
  return path;
}

static inline void test_write_file(const char *path, const void *bytes,
                                   size_t n)
{
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, n, file), n);
  assert_int_equal(fclose(file), 0);
}

/* A file under ../shared/data in one of four buffers; the test is skipped when
 * it is not there. */
static inline const char *test_shared(const char *name)
{
  static char paths[4][PATH_MAX];
  static size_t next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/../shared/data/%s", test_root(), name);
  if (access(path, R_OK))
    test_skip("../shared/data/%s is absent", name);
  return path;
}

#endif
