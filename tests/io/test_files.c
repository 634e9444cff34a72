/* Files and folders: short files, limits, and folders replaced either way. */
#include "io/files.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/test.h"
#include "tests/tmpdir.h"

static void check_file(const char *path, const char *expect)
{
  char *bytes = NULL;
  size_t n = 0;
  test_ok(pen_files_read_whole(path, 100, &bytes, &n));
  assert_int_equal(n, strlen(expect));
  assert_string_equal(bytes, expect); /* NUL-terminated */
  free(bytes);
}

static void test_whole(void **state)
{
  char *bytes = NULL;
  size_t n = 0;
  const char *path = test_tmp("w");
  test_ok(pen_files_write_whole(path, "abc", 3));
  check_file(path, "abc");
  test_ok(pen_files_write_whole(path, "", 0));
  check_file(path, "");
  assert_false(pen_files_exists(test_tmp("w.tmp")));
  test_ok(pen_files_write_whole(path, "abc", 3));
  test_fails(pen_files_read_whole(path, 2, &bytes, &n), PEN_EFORMAT,
             "has 3 bytes, at most 2 are read");
  test_fails(pen_files_read_whole(test_tmpdir(), 2, &bytes, &n), PEN_EFORMAT,
             "is not a regular file");
  test_fails(pen_files_write_whole(test_tmp("none/w"), "abc", 3), ENOENT,
             "cannot create");
  test_ok(pen_files_copy(path, test_tmp("copy")));
  check_file(test_tmp("copy"), "abc");
}

static void test_at(void **state)
{
  char out[8];
  const char *path = test_tmp("at");
  int fd = open(path, O_RDWR | O_CREAT, 0666);
  assert_true(fd >= 0);
  test_ok(pen_files_reserve(fd, path, 10));
  test_ok(pen_files_write_at(fd, path, "xyz", 3, 7));
  test_ok(pen_files_read_at(fd, path, out, 4, 6));
  assert_memory_equal(out, "\0xyz", 4);
  test_fails(pen_files_read_at(fd, path, out, 4, 7), PEN_ESHORT,
             "unexpected end of file at byte 10 of");
  close(fd);
}

static void make_dir(const char *name, const char *content)
{
  char path[PATH_MAX];
  test_ok(pen_files_make_dirs(test_tmp(name)));
  snprintf(path, sizeof path, "%s/f", test_tmp(name));
  test_ok(pen_files_write_whole(path, content, strlen(content)));
}

static void test_replace(void **state)
{
  for (int by_steps = 0; by_steps <= 1; by_steps++) {
    int (*replace)(const char *, const char *, const char *) =
        by_steps ? pen_files_replace_dir_by_steps : pen_files_replace_dir;
    make_dir("to", "old");
    make_dir("from", "new");
    if (by_steps)
      make_dir("to.old", "left over");
    test_ok(replace(test_tmp("from"), test_tmp("to"), NULL));
    check_file(test_tmp("to/f"), "new");
    assert_false(pen_files_exists(test_tmp("from")));
    assert_false(pen_files_exists(test_tmp("to.old")));
    /* a source that is not there leaves the target whole */
    test_fails(replace(test_tmp("gone"), test_tmp("to"), NULL), ENOENT, "cannot");
    check_file(test_tmp("to/f"), "new");
  }
  make_dir("from", "first");
  test_ok(pen_files_replace_dir(test_tmp("from"), test_tmp("fresh"), NULL));
  check_file(test_tmp("fresh/f"), "first");
}

static void test_dirs(void **state)
{
  test_ok(pen_files_make_dirs(test_tmp("a/b//c/")));
  test_ok(pen_files_make_dirs(test_tmp("a/b/c")));
  test_write_file(test_tmp("a/file"), "x", 1);
  test_fails(pen_files_make_dirs(test_tmp("a/file")), ENOTDIR, "a file is there");
  test_fails(pen_files_make_dirs(test_tmp("a/file/d")), ENOTDIR,
             "cannot make the folder");
  test_fails(pen_files_remove_flat_dir(test_tmp("a/b"), NULL), ENOTEMPTY,
             "cannot remove");
  test_ok(pen_files_remove_flat_dir(test_tmp("a/b/c"), NULL));
  assert_false(pen_files_exists(test_tmp("a/b/c")));
  make_dir("a/b/inside", "x");
  test_fails(pen_files_remove_flat_dir(test_tmp("a/b"), "other"), ENOTEMPTY,
             "cannot remove");
  make_dir("a/b/inside/deep", "x");
  test_fails(pen_files_remove_flat_dir(test_tmp("a/b"), "inside"), ENOTEMPTY,
             "cannot remove");
  test_ok(pen_files_remove_flat_dir(test_tmp("a/b/inside/deep"), NULL));
  make_dir("a/b/inside", "x");
  test_ok(pen_files_remove_flat_dir(test_tmp("a/b"), "inside"));
  assert_false(pen_files_exists(test_tmp("a/b")));
  test_ok(pen_files_remove_flat_dir(test_tmp("a/b/c"), NULL));
}

/* What has the inner folder's name may be a file, or a link to others' files. */
static void test_inner_folder_that_is_none(void **state)
{
  make_dir("others", "x");
  for (int link = 0; link < 2; link++) {
    test_ok(pen_files_make_dirs(test_tmp("old")));
    if (link)
      assert_int_equal(symlink("../others", test_tmp("old/inside")), 0);
    else
      test_write_file(test_tmp("old/inside"), "x", 1);
    test_ok(pen_files_remove_flat_dir(test_tmp("old"), "inside"));
    assert_false(pen_files_exists(test_tmp("old")));
  }
  assert_true(pen_files_exists(test_tmp("others/f")));
}

static void test_dirs_made_for_nothing(void **state)
{
  test_ok(pen_files_make_dirs(test_tmp("kept")));
  size_t existing = pen_files_existing(test_tmp("kept/x/y//z/"));
  assert_int_equal(existing, strlen(test_tmp("kept")));
  test_ok(pen_files_make_dirs(test_tmp("kept/x/y/z")));
  test_write_file(test_tmp("kept/x/file"), "x", 1);
  pen_files_unmake_dirs(test_tmp("kept/x/y//z/"), existing);
  assert_false(pen_files_exists(test_tmp("kept/x/y")));
  assert_true(pen_files_exists(test_tmp("kept/x/file")));
  unlink(test_tmp("kept/x/file"));
  pen_files_unmake_dirs(test_tmp("kept/x/gone"), existing);
  assert_false(pen_files_exists(test_tmp("kept/x")));
  assert_true(pen_files_exists(test_tmp("kept")));
  assert_int_equal(pen_files_existing("no-such-folder/x"), 0);
}

static void test_lies_in(void **state)
{
  test_ok(pen_files_make_dirs(test_tmp("data/in")));
  test_ok(pen_files_make_dirs(test_tmp("database")));
  test_write_file(test_tmp("file"), "x", 1);
  assert_int_equal(symlink(test_tmp("data/in"), test_tmp("link")), 0);
  const char *const inside[] = {"data", "data/", "data/in/../new/er", "link/x",
                                "database/../data/x"};
  const char *const outside[] = {"database", "dat", "x/data", "file"};
  for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
    assert_true(pen_files_lies_in(test_tmp(inside[i]), test_tmp("data/.")));
  for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
    assert_false(pen_files_lies_in(test_tmp(outside[i]), test_tmp("data")));
  assert_false(pen_files_lies_in(test_tmp("file"), test_tmp("file")));
  assert_true(pen_files_lies_in("no-such-folder/x", "."));
}

struct replace_case {
  const char *path, *tmp; /* their contents; NULL: absent, "/": a folder */
  const char *says;       /* NULL: it may be replaced */
};

static const struct replace_case replace_cases[] = {
  {NULL, NULL, NULL},
  {"", NULL, NULL},
  {"{\"mark\": 1}", NULL, NULL},
  {"{\"mark\": 1}", "", NULL},
  {NULL, "{\"mark\": 1}", NULL},
  {"my thesis", NULL, "out is there and is not what"},
  {"/", NULL, "out is there and is no file"},
  {NULL, "my thesis", "out.tmp is there and is not what"},
  {"{\"mark\": 1}", "my thesis", "out.tmp is there and is not what"},
  {"{\"mark\": 1}", "/", "out.tmp is there and is no file"},
};

static void put(const char *path, const char *content)
{
  if (content && !strcmp(content, "/"))
    test_ok(pen_files_make_dirs(path));
  else if (content)
    test_write_file(path, content, strlen(content));
}

static void test_may_replace(void **state)
{
  for (size_t i = 0; i < sizeof replace_cases / sizeof *replace_cases; i++) {
    const struct replace_case *c = &replace_cases[i];
    const char *path = test_tmp("out"), *tmp = test_tmp("out.tmp");
    printf("# case %zu\n", i);
    put(path, c->path);
    put(tmp, c->tmp);
    if (c->says)
      test_fails(pen_files_may_replace(path, "--o", "\"mark\""), PEN_EUSAGE,
                 c->says);
    else
      test_ok(pen_files_may_replace(path, "--o", "\"mark\""));
    assert_int_equal(pen_files_exists(path), c->path != NULL);
    assert_int_equal(pen_files_exists(tmp), c->tmp != NULL);
    remove(path);
    remove(tmp);
  }
  char late[600];
  memset(late, ' ', 508);
  strcpy(late + 508, "\"mark\""); /* the last of it are bytes 512 and 513 */
  test_write_file(test_tmp("late"), late, strlen(late));
  test_fails(pen_files_may_replace(test_tmp("late"), "--o", "\"mark\""),
             PEN_EUSAGE, "is not what");
  test_fails(pen_files_may_replace(test_tmp("none/out"), "--o", "m"), ENOENT,
             "--o: cannot make");
  /* a regular file whose first bytes cannot be read */
  test_fails(pen_files_may_replace("/proc/self/mem", "--o", "m"), EIO,
             "--o: cannot read");
}

static void test_room(void **state)
{
  uint64_t free_bytes = 0;
  const char *paths[] = {test_tmpdir(), test_tmp("not/yet/there")};
  for (size_t i = 0; i < 2; i++) {
    test_ok(pen_files_free_bytes(paths[i], &free_bytes));
    assert_true(free_bytes > 0);
    test_ok(pen_files_check_room(paths[i], 0, "it", "do this"));
    test_ok(pen_files_check_room(paths[i], free_bytes / 2, "it", "do this"));
    test_fails(pen_files_check_room(paths[i], UINT64_MAX, "it", "do this"),
               PEN_ENOFIT, paths[i]);
    test_fails(pen_files_check_room(paths[i], UINT64_MAX, "it", "do this"),
               PEN_ENOFIT, "does not fit: it needs 16.0 EiB on the drive of");
    test_fails(pen_files_check_room(paths[i], UINT64_MAX, "it", "do this"),
               PEN_ENOFIT, " bytes too few; do this");
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_whole),
    cmocka_unit_test(test_at),
    cmocka_unit_test(test_replace),
    cmocka_unit_test(test_dirs),
    cmocka_unit_test(test_inner_folder_that_is_none),
    cmocka_unit_test(test_dirs_made_for_nothing),
    cmocka_unit_test(test_lies_in),
    cmocka_unit_test(test_may_replace),
    cmocka_unit_test(test_room),
  };
  return cmocka_run_group_tests_name("files", tests, NULL, NULL);
}
