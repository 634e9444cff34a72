/* safetensors in: every conformance file, every cut and every extra byte.
 * Out: round trips in any order, and nothing that looks whole and is not. */
#include "io/safetensors.h"
#include "io/safetensors_write.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "io/files.h"
#include "io/json.h"
#include "tests/test.h"
#include "tests/tmpdir.h"

#define HEADER                                                                \
  "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"       \
  "\"none\":{\"dtype\":\"BF16\",\"shape\":[0,4],\"data_offsets\":[16,16]},"   \
  "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[16,19]}}"

/* The sample file, 19 data bytes; returns its size. */
static size_t make_sample(unsigned char *file)
{
  size_t n = sizeof HEADER - 1;
  memset(file, 0, 8);
  file[0] = (unsigned char)n;
  memcpy(file + 8, HEADER, n);
  for (unsigned char i = 0; i < 19; i++)
    file[8 + n + i] = i;
  return 8 + n + 19;
}

static int open_bytes(const void *bytes, size_t n, bool lenient,
                      struct pen_safetensors **ret_file)
{
  test_write_file(test_tmp("t.safetensors"), bytes, n);
  return pen_safetensors_open(test_tmp("t.safetensors"), lenient, ret_file);
}

static size_t unhex(const char *hex, unsigned char *out)
{
  size_t n = strlen(hex) / 2;
  for (size_t i = 0; i < n; i++) {
    unsigned byte;
    assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
    out[i] = (unsigned char)byte;
  }
  return n;
}

/* Strict takes "accept" alone; lenient takes "policy" too, with a warning. */
static void check_conformance_line(const struct pen_json *line, size_t *n_done)
{
  const struct pen_json_node *root = pen_json_root(line);
  const char *name, *expect, *hex;
  unsigned char bytes[4096];
  if (!pen_json_has(root, "hex"))
    return;
  test_ok(pen_json_get_string(line, root, "name", &name));
  test_ok(pen_json_get_string(line, root, "expect", &expect));
  test_ok(pen_json_get_string(line, root, "hex", &hex));
  assert_true(strlen(hex) / 2 <= sizeof bytes);
  size_t n = unhex(hex, bytes);
  for (int lenient = 0; lenient <= 1; lenient++) {
    bool take = !strcmp(expect, "accept") ||
                (lenient && !strcmp(expect, "policy"));
    struct pen_safetensors *file = NULL;
    int rc = open_bytes(bytes, n, lenient, &file);
    if (!take && (rc != -PEN_EFORMAT || !pen_error_text()[0]))
      fail_msg("%s: not refused as malformed (%d %s)", name, rc,
               pen_error_text());
    if (take && rc)
      fail_msg("%s: refused: %s", name, pen_error_text());
    if (take)
      assert_int_equal(pen_safetensors_warning(file)[0] != 0,
                       !strcmp(expect, "policy"));
    pen_error_clear();
    pen_safetensors_close(&file);
  }
  ++*n_done;
}

static void test_conformance(void **state)
{
  FILE *file = fopen(test_shared("safetensors/conformance.jsonl"), "r");
  assert_non_null(file);
  char *text = NULL;
  size_t cap = 0, n_done = 0;
  ssize_t n;
  while ((n = getline(&text, &cap, file)) > 0) {
    struct pen_json *line = NULL;
    test_ok(pen_json_parse(text, (size_t)n, "conformance.jsonl", &line));
    check_conformance_line(line, &n_done);
    pen_json_free(&line);
  }
  free(text);
  fclose(file);
  printf("# %zu conformance files\n", n_done);
  assert_true(n_done >= 38);
}

static void test_read(void **state)
{
  unsigned char bytes[512], out[16];
  struct pen_safetensors *file = NULL;
  size_t n = make_sample(bytes);
  test_ok(open_bytes(bytes, n, false, &file));
  assert_int_equal(pen_safetensors_n_tensors(file), 3);
  assert_int_equal(pen_safetensors_find(file, "a"), 0);
  assert_int_equal(pen_safetensors_find(file, "b"), 2);
  assert_true(pen_safetensors_find(file, "c") == SIZE_MAX);
  assert_true(pen_safetensors_find(file, "") == SIZE_MAX);
  const struct pen_safetensors_tensor *none = pen_safetensors_tensor(file, 1);
  assert_int_equal(none->elems, 0);
  assert_int_equal(none->bytes, 0);
  test_ok(pen_safetensors_read(file, 1, 0, 0, out));
  test_ok(pen_safetensors_read(file, 0, 5, 11, out));
  for (unsigned char i = 0; i < 11; i++)
    assert_int_equal(out[i], 5 + i);
  test_ok(pen_safetensors_read(file, 2, 0, 3, out));
  assert_int_equal(out[2], 18);
  test_fails(pen_safetensors_read(file, 0, 6, 11, out), EINVAL, "tensor a");
  test_fails(pen_safetensors_read(file, 2, UINT64_MAX, 1, out), EINVAL,
             "tensor b");
  assert_int_equal(truncate(test_tmp("t.safetensors"), (off_t)n - 2), 0);
  test_fails(pen_safetensors_read(file, 2, 0, 3, out), PEN_ESHORT,
             "unexpected end of file at byte");
  pen_safetensors_close(&file);
}

/* F1, F2: every shorter file is refused; a cut in the data says by how much. */
static void test_truncated(void **state)
{
  unsigned char bytes[512];
  size_t n = make_sample(bytes);
  for (size_t cut = 1; cut <= n; cut++) {
    struct pen_safetensors *file = NULL;
    char says[64] = "";
    if (cut <= 3) /* tensor b is the last */
      snprintf(says, sizeof says, "has %zu bytes and tensor b ends at %zu, %zu",
               n - cut, n, cut);
    test_fails(open_bytes(bytes, n - cut, true, &file), PEN_EFORMAT, says);
    if (cut <= 3)
      test_fails(open_bytes(bytes, n - cut, false, &file), PEN_EFORMAT,
                 "download or copy it again");
    assert_null(file);
  }
}

/* F3. */
static void test_trailing(void **state)
{
  unsigned char bytes[512] = {0};
  size_t n = make_sample(bytes);
  struct pen_safetensors *file = NULL;
  test_fails(open_bytes(bytes, n + 1, false, &file), PEN_EFORMAT,
             "1 bytes after the last tensor");
  test_ok(open_bytes(bytes, n + 1, true, &file));
  assert_non_null(strstr(pen_safetensors_warning(file), "1 bytes after"));
  pen_safetensors_close(&file);
}

/* Offsets that span more than shape and dtype need are no trailing bytes. */
static void test_span(void **state)
{
  static const char header[] =
      "{\"t\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,4]}}";
  unsigned char bytes[128] = {sizeof header - 1};
  struct pen_safetensors *file = NULL;
  memcpy(bytes + 8, header, sizeof header - 1);
  for (int lenient = 0; lenient <= 1; lenient++)
    test_fails(open_bytes(bytes, 8 + sizeof header - 1 + 4, lenient, &file),
               PEN_EFORMAT,
               "t: shape and dtype need 3 bytes, the offsets [0, 4]");
}

static void test_lfs_pointer(void **state)
{
  static const char text[] = "version https://git-lfs.github.com/spec/v1\n";
  struct pen_safetensors *file = NULL;
  test_fails(open_bytes(text, sizeof text - 1, false, &file), PEN_EFORMAT,
             "git lfs pull");
}

static const uint64_t shape_a[] = {7, 11}, shape_b[] = {5}, shape_none[] = {0, 9};
static const struct pen_safetensors_spec specs[] = {
  {"b", PEN_FILE_BF16, 1, shape_b},
  {"a.weight \"\xc3\xa9\"", PEN_FILE_F32, 2, shape_a},
  {"none", PEN_FILE_F16, 2, shape_none},
  {"scalar", PEN_FILE_I64, 0, NULL},
};

/* Written backwards in pieces of 1 to 13 bytes, read back whole. */
static void test_round_trip(void **state)
{
  static const size_t sizes[] = {10, 308, 0, 8};
  unsigned char data[4][308], back[308];
  const char *path = test_tmp("r.safetensors");
  struct pen_safetensors_writer *writer = NULL;
  struct pen_safetensors *file = NULL;
  uint64_t seed = test_seed(11);
  test_ok(pen_safetensors_create(path, specs, 4, &writer));
  for (size_t i = 4; i-- > 0;) {
    for (size_t k = 0; k < sizes[i]; k++)
      data[i][k] = (unsigned char)(seed + 31 * i + 7 * k);
    for (size_t end = sizes[i]; end;) {
      size_t n = 1 + (end * seed) % 13;
      n = n < end ? n : end;
      test_ok(pen_safetensors_write(writer, i, end - n, data[i] + end - n, n));
      end -= n;
    }
  }
  assert_false(pen_files_exists(path));
  test_ok(pen_safetensors_finish(&writer));
  assert_null(writer);
  assert_false(pen_files_exists(test_tmp("r.safetensors.tmp")));
  test_ok(pen_safetensors_open(path, false, &file));
  for (size_t i = 0; i < 4; i++) {
    size_t at = pen_safetensors_find(file, specs[i].name);
    assert_true(at != SIZE_MAX);
    const struct pen_safetensors_tensor *t = pen_safetensors_tensor(file, at);
    assert_int_equal(t->dtype, specs[i].dtype);
    assert_int_equal(t->rank, specs[i].rank);
    for (size_t d = 0; d < t->rank; d++)
      assert_int_equal(t->shape[d], specs[i].shape[d]);
    assert_int_equal(t->bytes, sizes[i]);
    if (t->elems)
      assert_int_equal(t->offset % pen_file_dtype_bytes(t->dtype), 0);
    test_ok(pen_safetensors_read(file, at, 0, sizes[i], back));
    assert_memory_equal(back, data[i], sizes[i]);
  }
  pen_safetensors_close(&file);
}

static void test_incomplete(void **state)
{
  const char *path = test_tmp("i.safetensors");
  unsigned char bytes[308] = {0};
  struct pen_safetensors_writer *writer = NULL;
  test_write_file(path, "old", 3);
  test_ok(pen_safetensors_create(path, specs, 4, &writer));
  test_ok(pen_safetensors_write(writer, 0, 0, bytes, 10));
  test_ok(pen_safetensors_write(writer, 3, 0, bytes, 8));
  test_ok(pen_safetensors_write(writer, 1, 0, bytes, 100));
  test_ok(pen_safetensors_write(writer, 1, 101, bytes, 207));
  test_fails(pen_safetensors_write(writer, 1, 99, bytes, 2), EINVAL,
             "written before");
  test_fails(pen_safetensors_write(writer, 1, 300, bytes, 9), EINVAL,
             "not in the 308 bytes");
  test_fails(pen_safetensors_finish(&writer), PEN_EMISMATCH,
             "307 of 308 bytes of tensor a.weight");
  assert_null(writer);
  assert_false(pen_files_exists(test_tmp("i.safetensors.tmp")));
  char *old = NULL;
  size_t n = 0;
  test_ok(pen_files_read_whole(path, 100, &old, &n));
  assert_int_equal(n, 3);
  free(old);
}

/* A process killed before finish leaves the old file and a .tmp; the next
 * writer clears that. */
static void test_killed(void **state)
{
  const char *path = test_tmp("k.safetensors");
  unsigned char bytes[308] = {0};
  struct pen_safetensors_writer *writer = NULL;
  test_write_file(path, "old", 3);
  pid_t child = test_fork();
  if (child == 0) {
    if (!pen_safetensors_create(path, specs, 1, &writer) &&
        !pen_safetensors_write(writer, 0, 0, bytes, 10))
      kill(getpid(), SIGKILL);
    _exit(1);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
  char *old = NULL;
  size_t n = 0;
  test_ok(pen_files_read_whole(path, 100, &old, &n));
  assert_int_equal(n, 3);
  free(old);
  assert_true(pen_files_exists(test_tmp("k.safetensors.tmp")));
  test_ok(pen_safetensors_create(path, specs, 1, &writer));
  test_ok(pen_safetensors_write(writer, 0, 0, bytes, 10));
  test_ok(pen_safetensors_finish(&writer));
  assert_false(pen_files_exists(test_tmp("k.safetensors.tmp")));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_conformance), cmocka_unit_test(test_read),
    cmocka_unit_test(test_truncated),   cmocka_unit_test(test_trailing),
    cmocka_unit_test(test_span),        cmocka_unit_test(test_lfs_pointer),
    cmocka_unit_test(test_round_trip),
    cmocka_unit_test(test_incomplete),  cmocka_unit_test(test_killed),
  };
  return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
