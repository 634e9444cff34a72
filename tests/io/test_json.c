/* JSON in: what is refused, and that messages name file, path and value.
 * JSON out: text that reads back as what was written. */
#include "io/json_write.h"

#include <errno.h>
#include <float.h>
#include <math.h>

#include "tests/test.h"
#include "tests/tmpdir.h"

static struct pen_json *parse(const char *text)
{
  struct pen_json *json = NULL;
  test_ok(pen_json_parse(text, strlen(text), "config.json", &json));
  return json;
}

static void test_refused(void **state)
{
  static const struct {
    const char *text, *says;
  } cases[] = {
    {"", "config.json: not valid JSON"},
    {"{\"a\":1,}", "line 1, column 8"},
    {"{\"a\":1} x", "config.json: not valid JSON"},
    {"{\"a\":1,\"a\":2}", "duplicate"},
    {"{\"a\":9223372036854775808}", "too big integer"},
    {"{\"a\":1e999}", "overflow"},
    {"{\"a\":NaN}", "not valid JSON"},
    {"{\"\\ud800\":1}", "not valid JSON"},
    {"{\"a\":\"\\u0000\"}", "NUL"},
    {"{\"a\":\"\xff\"}", "unable to decode byte"},
    {"\xef\xbb\xbf{}", "not valid JSON"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct pen_json *json = NULL;
    test_fails(pen_json_parse(cases[i].text, strlen(cases[i].text),
                              "config.json", &json),
               PEN_EFORMAT, cases[i].says);
    assert_null(json);
  }
}

static void test_depth(void **state)
{
  char text[2 * PEN_JSON_DEPTH_MAX + 8];
  for (int over = 0; over <= 1; over++) {
    size_t levels = PEN_JSON_DEPTH_MAX + (size_t)over;
    memset(text, '[', levels);
    memset(text + levels, ']', levels);
    struct pen_json *json = NULL;
    if (over)
      test_fails(pen_json_parse(text, 2 * levels, "deep.json", &json),
                 PEN_EFORMAT, "nested deeper than 64 levels");
    else
      test_ok(pen_json_parse(text, 2 * levels, "deep.json", &json));
    pen_json_free(&json);
  }
  struct pen_json *json = parse("{\"a\":\"[[[[\\\"[[[\"}"); /* not levels */
  pen_json_free(&json);
}

static void test_messages(void **state)
{
  struct pen_json *json = parse(
      "{\"rope_scaling\":{\"factor\":\"x\",\"list\":[1,{\"n\":2.5}]},"
      "\"null\":null,\"neg\":-1,\"yes\":true}");
  const struct pen_json_node *root = pen_json_root(json), *rope, *list;
  double real = 7;
  int64_t integer = 7;
  size_t size = 7;
  bool boolean = true;
  const char *string = "seven";
  test_ok(pen_json_get_object(json, root, "rope_scaling", &rope));
  test_fails(pen_json_get_double(json, rope, "factor", &real), PEN_EFORMAT,
             "config.json: rope_scaling.factor must be a number, is \"x\"");
  test_ok(pen_json_get_array(json, rope, "list", &list));
  test_fails(pen_json_get_i64(json, pen_json_item(list, 1), "n", &integer),
             PEN_EFORMAT, "rope_scaling.list[1].n must be an integer, is 2.5");
  test_fails(pen_json_get_size(json, root, "neg", &size), PEN_EFORMAT,
             "neg must be an integer of at least 0, is -1");
  test_fails(pen_json_get_bool(json, root, "neg", &boolean), PEN_EFORMAT,
             "neg must be true or false, is -1");
  test_fails(pen_json_get_string(json, root, "yes", &string), PEN_EFORMAT,
             "yes must be a string, is true");
  test_fails(pen_json_get_i64(json, root, "null", &integer), PEN_EFORMAT,
             "null must be an integer, is null");
  test_fails(pen_json_get_i64(json, root, "none", &integer), PEN_EFORMAT,
             "none is missing; it must be an integer");
  test_ok(pen_json_opt_i64(json, root, "null", &integer));
  test_ok(pen_json_opt_double(json, root, "none", &real));
  test_fails(pen_json_opt_string(json, root, "neg", &string), PEN_EFORMAT,
             "neg must be a string");
  assert_true(integer == 7 && real == 7 && size == 7 && boolean);
  assert_string_equal(string, "seven");
  pen_json_free(&json);
}

/* 2^53 + 1 is no double: it must not pass through one. */
static void test_integers(void **state)
{
  struct pen_json *json =
      parse("[9007199254740993, 9223372036854775807, -9223372036854775808]");
  static const int64_t expect[] = {9007199254740993, INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < 3; i++) {
    int64_t value = 0;
    test_ok(pen_json_as_i64(json, pen_json_item(pen_json_root(json), i),
                            &value));
    assert_true(value == expect[i]);
  }
  pen_json_free(&json);
}

static void test_file(void **state)
{
  struct pen_json *json = NULL;
  test_fails(pen_json_load(test_tmp("none.json"), &json), ENOENT,
             "cannot open");
  test_fails(pen_json_load(test_tmpdir(), &json), PEN_EFORMAT,
             "not a regular file");
  test_write_file(test_tmp("a.json"), "{\"a\":3}", 7);
  test_ok(pen_json_load(test_tmp("a.json"), &json));
  size_t a = 0;
  test_ok(pen_json_get_size(json, pen_json_root(json), "a", &a));
  assert_int_equal(a, 3);
  pen_json_free(&json);
  pen_json_free(&json);
}

static void test_write_doubles(void **state)
{
  static const double values[] = {
    0.1, 1e-5, 1.0 / 3, 500000.0, 1e22, 5e-324, DBL_MAX, DBL_MIN, -0.0, 1.0,
    0.041666666666666664, 123456789012345678.0};
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
    struct pen_json_writer writer;
    const char *text;
    size_t n;
    char buffer[64];
    pen_json_writer_init(&writer, buffer, sizeof buffer, false);
    pen_json_put_double(&writer, NULL, values[i]);
    test_ok(pen_json_finish(&writer, &text, &n));
    struct pen_json *json = parse(text);
    double back = 7;
    assert_int_equal(pen_json_type(pen_json_root(json)), PEN_JSON_REAL);
    test_ok(pen_json_as_double(json, pen_json_root(json), &back));
    assert_memory_equal(&back, &values[i], sizeof back);
    pen_json_free(&json);
  }
}

static void write_sample(struct pen_json_writer *writer)
{
  pen_json_begin_object(writer, NULL);
  pen_json_put_string(writer, "s", "a\"\\\n\t\x01\xc3\xa9");
  pen_json_put_double(writer, "eps", 1e-5);
  pen_json_begin_array(writer, "list");
  pen_json_put_i64(writer, NULL, -1);
  pen_json_put_u64(writer, NULL, UINT64_MAX);
  pen_json_put_bool(writer, NULL, true);
  pen_json_put_double(writer, NULL, (double)NAN);
  pen_json_end_array(writer);
  pen_json_begin_object(writer, "none");
  pen_json_end_object(writer);
  pen_json_end_object(writer);
}

static void test_write_text(void **state)
{
  static const char line[] =
      "{\"s\": \"a\\\"\\\\\\n\\t\\u0001\xc3\xa9\", \"eps\": 1e-05, \"list\": "
      "[-1, 18446744073709551615, true, null], \"none\": {}}";
  static const char pretty[] =
      "{\n  \"s\": \"a\\\"\\\\\\n\\t\\u0001\xc3\xa9\",\n  \"eps\": 1e-05,\n"
      "  \"list\": [\n    -1,\n    18446744073709551615,\n    true,\n    null\n"
      "  ],\n  \"none\": {}\n}";
  struct pen_json_writer writer;
  const char *text;
  size_t n;
  char buffer[sizeof line];
  /* one byte too few fails, exactly enough does not */
  pen_json_writer_init(&writer, buffer, sizeof line - 1, false);
  write_sample(&writer);
  test_fails(pen_json_finish(&writer, &text, &n), ENOSPC, "longer than");
  pen_json_writer_init(&writer, buffer, sizeof line, false);
  write_sample(&writer);
  test_ok(pen_json_finish(&writer, &text, &n));
  assert_string_equal(text, line);
  assert_int_equal(n, sizeof line - 1);
  pen_json_writer_init(&writer, NULL, 0, true);
  write_sample(&writer);
  test_ok(pen_json_finish(&writer, &text, &n));
  assert_string_equal(text, pretty);
  pen_json_writer_done(&writer);
}

static void test_write_node(void **state)
{
  static const char text[] = "{\"z\": 1, \"a\": [1.5, null, {\"k\": \"v\"}], "
                             "\"e\": 1e-05, \"b\": false}";
  struct pen_json *json = parse(text);
  struct pen_json_writer writer;
  const char *out;
  size_t n;
  pen_json_writer_init(&writer, NULL, 0, false);
  pen_json_put_node(&writer, NULL, json, pen_json_root(json));
  test_ok(pen_json_finish(&writer, &out, &n));
  assert_string_equal(out, text);
  pen_json_writer_done(&writer);
  pen_json_free(&json);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_refused),      cmocka_unit_test(test_depth),
    cmocka_unit_test(test_messages),     cmocka_unit_test(test_integers),
    cmocka_unit_test(test_file),         cmocka_unit_test(test_write_doubles),
    cmocka_unit_test(test_write_text),   cmocka_unit_test(test_write_node),
  };
  return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
