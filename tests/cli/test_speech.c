/* Bytes as characters, whole ones only; and an answer that ends before a stop
 * text, none of which is told. */
#include "src/cli/speech.h"
#include "tests/test.h"

#define BROKEN "\xef\xbf\xbd"

/* What a model of bytes says, id by id: `want` has what each adds. */
static void says(const char *bytes, size_t n, const char *const *want,
                 const char *rest)
{
  struct pen_speech s = {.model = "none", .has_bytes = true};
  const char *text;
  test_ok(pen_speech_begin(&s, NULL, 0));
  for (size_t i = 0; i < n; i++) {
    uint32_t id = (unsigned char)bytes[i];
    test_ok(pen_speech_add(&s, &id, 1, &text));
    if (strcmp(text, want[i]) != 0)
      fail_msg("byte %zu (%02x) adds \"%s\", not \"%s\"", i, id, text, want[i]);
  }
  test_ok(pen_speech_end(&s, &text));
  assert_string_equal(text, rest);
  pen_speech_close(&s);
}

static void test_characters(void **state)
{
  says("a\xc3\xa9\xe2\x82\xac", 6,
       (const char *[]){"a", "", "\xc3\xa9", "", "", "\xe2\x82\xac"}, "");
  says("\xf0\x9f\x98\x80", 4,
       (const char *[]){"", "", "", "\xf0\x9f\x98\x80"}, "");
}

static void test_broken(void **state)
{
  says("\xff\x80z", 3, (const char *[]){BROKEN, BROKEN, "z"}, "");
  says("\xe2\x82z", 3, (const char *[]){"", "", BROKEN "z"}, "");
  says("\xe2\xc3\xa9", 3, (const char *[]){"", BROKEN, "\xc3\xa9"}, "");
  says("\xc0\x80", 2, (const char *[]){BROKEN, BROKEN}, "");
  says("\xed\xa0\x80", 3, (const char *[]){"", BROKEN BROKEN, BROKEN}, "");
  says("\xf4\x90", 2, (const char *[]){"", BROKEN BROKEN}, "");
  says("", 1, (const char *[]){BROKEN}, "");
  says("\xe2\x82", 2, (const char *[]){"", ""}, BROKEN);
}

/* Pieces told with a stop text; what the file has after each. */
static void tells(const char *stop, const char *const *pieces,
                  const char *const *want, size_t n, bool stops)
{
  char *told = NULL;
  size_t told_bytes;
  bool stopped = false;
  struct pen_telling t = {.stop = stop,
                          .file = open_memstream(&told, &told_bytes)};
  for (size_t i = 0; i < n; i++) {
    assert_false(stopped);
    test_ok(pen_telling_add(&t, pieces[i], &stopped));
    fflush(t.file);
    if (strcmp(told, want[i]) != 0)
      fail_msg("after piece %zu \"%s\" is told, not \"%s\"", i, told, want[i]);
  }
  assert_int_equal(stopped, stops);
  pen_telling_end(&t);
  assert_string_equal(told, want[n]);
  assert_string_equal(t.text, want[n]);
  fclose(t.file);
  free(told);
  pen_telling_done(&t);
}

static void test_stop(void **state)
{
  tells(NULL, (const char *[]){"a", "b"}, (const char *[]){"a", "ab", "ab"}, 2,
        false);
  tells("END", (const char *[]){"xE", "N", "Dy"},
        (const char *[]){"x", "x", "x", "x"}, 3, true);
  tells("END", (const char *[]){"xE", "NE", "ND"},
        (const char *[]){"x", "xEN", "xEN", "xEN"}, 3, true);
  tells("END", (const char *[]){"aENDbEND"}, (const char *[]){"a", "a"}, 1, true);
  tells("aab", (const char *[]){"a", "a", "a", "b"},
        (const char *[]){"", "", "a", "a", "a"}, 4, true);
  tells("END", (const char *[]){"xEN"}, (const char *[]){"x", "xEN"}, 1, false);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_characters),
      cmocka_unit_test(test_broken),
      cmocka_unit_test(test_stop),
  };
  return cmocka_run_group_tests_name("speech", tests, NULL, NULL);
}
