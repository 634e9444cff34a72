/* What is recorded is what is saved; full lanes count; whole or not at all. */
#include "base/trace.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/test.h"

static char *read_file(const char *path)
{
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  char *text = calloc(1, 65536);
  assert_true(fread(text, 1, 65535, f) > 0);
  fclose(f);
  return text;
}

static void test_saved_text(void **state)
{
  char dir[] = "/tmp/pen-trace-XXXXXX", path[64], temporary[80];
  assert_non_null(mkdtemp(dir));
  snprintf(path, sizeof path, "%s/t.json", dir);
  snprintf(temporary, sizeof temporary, "%s.tmp", path);
  struct pen_trace *trace;
  test_ok(pen_trace_create(2, 2, &trace));
  pen_trace_name_lane(trace, 0, "compute");
  pen_trace_name_lane(trace, 1, "a \"quoted\" lane");
  struct pen_trace_event event = { 5000, 7001, "forward", 3, 1,
                                   PEN_TRACE_NONE };
  pen_trace_record(trace, 0, &event);
  event = (struct pen_trace_event){ 4999, 4999, "read", PEN_TRACE_NONE,
                                    PEN_TRACE_NONE, 9 };
  for (int i = 0; i < 5; i++)
    pen_trace_record(trace, 1, &event);
  assert_int_equal(pen_trace_n_dropped(trace), 3);
  test_ok(pen_trace_save(trace, path));
  char *text = read_file(path);
  assert_non_null(strstr(text,
    "{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"name\":\"forward\",\"ts\":0.001,"
    "\"dur\":2.001,\"args\":{\"block\":3,\"micro\":1}}"));
  assert_non_null(strstr(text,
    "{\"ph\":\"X\",\"pid\":1,\"tid\":2,\"name\":\"read\",\"ts\":0.000,"
    "\"dur\":0.000,\"args\":{\"tile\":9}}"));
  assert_non_null(strstr(text, "\"tid\":1,\"name\":\"thread_name\","
                               "\"args\":{\"name\":\"compute\"}"));
  assert_non_null(strstr(text, "a \\\"quoted\\\" lane"));
  assert_non_null(strstr(text, "\"dropped_events\":3"));
  assert_int_not_equal(access(temporary, F_OK), 0);
  free(text);
  pen_trace_free(&trace);
  assert_null(trace);
  unlink(path);
  rmdir(dir);
}

/* Transfers in flight together are shown side by side, whatever the order in
 * which they ended; one that begins as another ends follows it. */
static void test_overlaps(void **state)
{
  static const struct pen_trace_event events[] = {
    { 2000, 5000, "b", -1, -1, -1 }, { 1000, 6000, "a", -1, -1, -1 },
    { 6000, 7000, "d", -1, -1, -1 }, { 5000, 6500, "c", -1, -1, -1 },
  };
  static const char *const wanted[] = {
    "\"tid\":1,\"name\":\"a\",\"ts\":0.000,\"dur\":5.000",
    "\"tid\":3,\"name\":\"b\",\"ts\":1.000,\"dur\":3.000",
    "\"tid\":3,\"name\":\"c\",\"ts\":4.000,\"dur\":1.500",
    "\"tid\":1,\"name\":\"d\",\"ts\":5.000,\"dur\":1.000",
    "\"tid\":3,\"name\":\"thread_name\",\"args\":{\"name\":\"read 2\"}",
  };
  char dir[] = "/tmp/pen-trace-XXXXXX", path[64];
  assert_non_null(mkdtemp(dir));
  snprintf(path, sizeof path, "%s/t.json", dir);
  struct pen_trace *trace;
  test_ok(pen_trace_create(2, 4, &trace));
  pen_trace_name_lane(trace, 0, "read");
  for (size_t i = 0; i < 4; i++)
    pen_trace_record(trace, 0, &events[i]);
  test_ok(pen_trace_save(trace, path));
  char *text = read_file(path);
  for (size_t i = 0; i < 5; i++)
    assert_non_null(strstr(text, wanted[i]));
  free(text);
  pen_trace_free(&trace);
  unlink(path);
  rmdir(dir);
}

static void test_failures(void **state)
{
  struct pen_trace *trace = NULL;
  test_fails(pen_trace_create(SIZE_MAX / 2, 1000, &trace), ENOMEM, "trace");
  pen_trace_record(NULL, 0, &(struct pen_trace_event){ 0 });
  pen_trace_free(&trace);
  test_ok(pen_trace_create(1, 1, &trace));
  test_fails(pen_trace_save(trace, "/nonexistent/dir/t.json"), ENOENT,
             "/nonexistent/dir/t.json");
  pen_trace_free(&trace);
}

static void test_full_device(void **state)
{
  if (access("/dev/full", W_OK))
    test_skip("no /dev/full here");
  char dir[] = "/tmp/pen-trace-XXXXXX", path[64], temporary[80];
  assert_non_null(mkdtemp(dir));
  snprintf(path, sizeof path, "%s/t.json", dir);
  snprintf(temporary, sizeof temporary, "%s.tmp", path);
  assert_int_equal(symlink("/dev/full", temporary), 0);
  struct pen_trace *trace;
  test_ok(pen_trace_create(1, 1, &trace));
  test_fails(pen_trace_save(trace, path), ENOSPC, "t.json");
  assert_int_not_equal(access(path, F_OK), 0);
  assert_int_not_equal(access(temporary, F_OK), 0);
  pen_trace_free(&trace);
  rmdir(dir);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_saved_text),
    cmocka_unit_test(test_overlaps),
    cmocka_unit_test(test_failures),
    cmocka_unit_test(test_full_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
