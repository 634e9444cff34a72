/* The option engine on a small table: every type, every way to write it, and
 * what every slip is told. */
#include "base/option.h"

#include "tests/test.h"

enum { RUN = 1, LOOK = 2 };

struct values {
  char *name, *kind, *out;
  struct pen_option_list dirs, speeds, pieces;
  uint64_t count, many, any, bytes, speed;
  double rate;
  bool resume, packing, help;
  int place, format;
};

static const struct pen_option_word auto_words[] = { { "auto", 0 }, { 0 } };
static const struct pen_option_word places[] = {
  { "auto", 0 }, { "cpu_ram", 5 }, { "nvme", 7 }, { 0 },
};
static const struct pen_option_word kinds[] = { { "a", 0 }, { "b", 0 }, { 0 } };

#define AT(field) offsetof(struct values, field)

static const struct pen_option table[] = {
  { "help", NULL, 'h', PEN_OPTION_BOOL, AT(help), NULL, NULL, 0, 0,
    RUN | LOOK, 0, NULL, NULL, "show this" },
  { "name", "model-name", 'n', PEN_OPTION_STRING, AT(name), NULL, NULL, 0, 0,
    RUN, RUN, "things", NULL, "a name" },
  { "kind", NULL, 0, PEN_OPTION_STRING, AT(kind), "a", kinds, 0, 0,
    RUN, 0, "things", NULL, "a kind" },
  { "output-dir", NULL, 'o', PEN_OPTION_STRING, AT(out), NULL, NULL, 0, 0,
    RUN, 0, "things", "DIR", "where" },
  { "output-format", NULL, 'o', PEN_OPTION_ENUM, AT(format), "auto", places,
    0, 0, LOOK, 0, "things", NULL, "how" },
  { "dirs", NULL, 0, PEN_OPTION_LIST, AT(dirs), NULL, NULL, 0, 0,
    RUN, 0, "things", NULL, "directories" },
  { "count", NULL, 'k', PEN_OPTION_U64, AT(count), "auto", auto_words, 1, 100,
    RUN, 0, "numbers", NULL, "a count" },
  { "many", NULL, 0, PEN_OPTION_U64, AT(many), "1", NULL, 1, 0x1p53,
    RUN, 0, "numbers", NULL, "a large count" },
  { "any", NULL, 0, PEN_OPTION_U64, AT(any), "0", NULL, 0, 0,
    RUN, 0, "numbers", NULL, "any number" },
  { "memory-bytes", NULL, 0, PEN_OPTION_SIZE, AT(bytes), "1GiB", auto_words,
    1, 0, RUN, 0, "numbers", NULL, "bytes" },
  { "learning-rate", "lr,alpha", 0, PEN_OPTION_DOUBLE, AT(rate), "5e-5", NULL,
    0, 1, RUN, 0, "numbers", NULL, "a rate" },
  { "speed", NULL, 0, PEN_OPTION_RATE, AT(speed), "auto", auto_words, 1, 0,
    RUN, 0, "numbers", NULL, "a speed" },
  { "resume", NULL, 0, PEN_OPTION_BOOL, AT(resume), NULL, NULL, 0, 0,
    RUN, 0, "numbers", NULL, "go on" },
  { "packing", NULL, 0, PEN_OPTION_BOOL, AT(packing), "true", NULL, 0, 0,
    RUN, 0, "numbers", NULL, "pack" },
  { "place", NULL, 0, PEN_OPTION_ENUM, AT(place), "auto", places, 0, 0,
    RUN, 0, "numbers", NULL, "a place" },
  { "speed", "fastness", 0, PEN_OPTION_COUNTS, AT(speeds), "2-6+2", auto_words,
    1, 99, LOOK, 0, "numbers", NULL, "several of what is one elsewhere" },
  { "pieces", NULL, 0, PEN_OPTION_SIZES, AT(pieces), NULL, NULL, 1, 0, LOOK, 0,
    "numbers", NULL, "sizes" },
};

#define N_OPTIONS (sizeof table / sizeof table[0])

static struct values values;
static struct pen_options options;
static int n_notes;

static void note(const char *alias, const char *canonical) { n_notes++; }

static void start(uint32_t verb, const char *verb_name)
{
  pen_option_done(&options);
  test_ok(pen_option_init(&options, table, N_OPTIONS, &values, sizeof values));
  options.verb = verb;
  options.verb_name = verb_name;
  options.note_alias = note;
  n_notes = 0;
}

/* Parses the words of `line`; they must outlive the call only. */
static int parse_as(uint32_t verb, const char *verb_name, const char *line,
                    const char *positional)
{
  char copy[512], *argv[32];
  int argc = 0;
  snprintf(copy, sizeof copy, "%s", line);
  for (char *p = strtok(copy, " "); p; p = strtok(NULL, " "))
    argv[argc++] = p;
  start(verb, verb_name);
  return pen_option_parse(&options, argc, argv, positional);
}

static int parse(const char *line) { return parse_as(RUN, "run", line, NULL); }

static void test_defaults(void **state)
{
  test_ok(parse(""));
  assert_null(values.name);
  assert_string_equal(values.kind, "a");
  assert_int_equal(values.dirs.n_items, 0);
  assert_int_equal(values.count, 0);
  assert_int_equal(values.bytes, 1 << 30);
  assert_true(values.rate == 5e-5);
  assert_false(values.resume);
  assert_true(values.packing);
  assert_int_equal(values.place, 0);
}

static void test_forms(void **state)
{
  test_ok(parse("--name x -k 7 --memory_bytes=24GiB --lr 0.5 --resume "
                "--no-packing --place cpu-ram --dirs /a,/b --kind b -o dir"));
  assert_string_equal(values.name, "x");
  assert_int_equal(values.count, 7);
  assert_int_equal(values.bytes, (uint64_t)24 << 30);
  assert_true(values.rate == 0.5);
  assert_true(values.resume);
  assert_false(values.packing);
  assert_int_equal(values.place, 5);
  assert_int_equal(values.dirs.n_items, 2);
  assert_string_equal(values.dirs.items[1], "/b");
  assert_string_equal(values.kind, "b");
  assert_string_equal(values.out, "dir");
  test_ok(parse("-k9 -n=y --no_packing --resume false --count=auto --alpha 1"));
  assert_int_equal(values.count, 0);
  assert_string_equal(values.name, "y");
  assert_false(values.packing);
  assert_false(values.resume);
  test_ok(parse("--packing False --packing True --count 5 --count 6"));
  assert_true(values.packing);
  assert_int_equal(values.count, 6); /* the last one holds */
  test_ok(parse("--name=--odd"));
  assert_string_equal(values.name, "--odd");
}

static void test_letter_depends_on_verb(void **state)
{
  test_ok(parse_as(LOOK, "look", "-o nvme", NULL));
  assert_int_equal(values.format, 7);
  assert_null(values.out);
  test_fails(parse_as(LOOK, "look", "-k 3", NULL), PEN_EUSAGE,
             "unknown option -k");
  test_fails(parse_as(LOOK, "look", "--count 3", NULL), PEN_EUSAGE,
             "--count is not an option of penstock look");
}

static void test_alias_is_noted_once(void **state)
{
  test_ok(parse("--lr 0.1 --lr 0.2 --alpha 0.3"));
  assert_int_equal(n_notes, 1);
  test_ok(parse("--learning_rate 0.1 -k 3"));
  assert_int_equal(n_notes, 0);
}

static void test_slips(void **state)
{
  test_fails(parse("--learnin-rate 1"), PEN_EUSAGE,
             "unknown option --learnin-rate; did you mean --learning-rate?");
  test_fails(parse("--learning 1"), PEN_EUSAGE, "--learning-rate?");
  test_fails(parse("--alhpa 1"), PEN_EUSAGE, "--learning-rate?");
  test_fails(parse("--zzzzzzzz 1"), PEN_EUSAGE, "see penstock run --help");
  test_fails(parse("--count"), PEN_EUSAGE, "--count needs a value");
  test_fails(parse("--count --resume"), PEN_EUSAGE, "--count needs a value");
  test_fails(parse("--count 0"), PEN_EUSAGE,
             "--count: \"0\" is not allowed; expected auto | a whole number "
             "from 1 to 100");
  test_fails(parse("--count 101"), PEN_EUSAGE, "101");
  test_fails(parse("--count -1"), PEN_EUSAGE, "-1");
  test_fails(parse("--count 1.5"), PEN_EUSAGE, "1.5");
  test_fails(parse("--count 99999999999999999999"), PEN_EUSAGE, "9999");
  test_fails(parse("--many 0"), PEN_EUSAGE, "from 1 to 9007199254740992");
  test_fails(parse("--any 99999999999999999999"), PEN_EUSAGE, "below 2^64");
  test_fails(parse("--lr fast"), PEN_EUSAGE, "--lr: \"fast\"");
  test_fails(parse("--lr nan"), PEN_EUSAGE, "nan");
  test_fails(parse("--lr 0x1"), PEN_EUSAGE, "0x1");
  test_fails(parse("--lr 1e999"), PEN_EUSAGE, "1e999");
  test_fails(parse("--lr 1.5"), PEN_EUSAGE, "from 0 to 1");
  test_fails(parse("--memory-bytes 3parsecs"), PEN_EUSAGE,
             "expected auto | a size such as 24GiB");
  test_fails(parse("--place ram"), PEN_EUSAGE,
             "expected auto | cpu_ram | nvme");
  test_fails(parse("--kind c"), PEN_EUSAGE, "expected a | b");
  test_fails(parse("--name="), PEN_EUSAGE, "--name");
  test_fails(parse("--dirs /a,,/b"), PEN_EUSAGE, "/a,,/b");
  test_fails(parse("--no-packing=true"), PEN_EUSAGE, "takes no value");
  test_fails(parse("--no-name"), PEN_EUSAGE, "unknown option --no-name");
  test_fails(parse("--resume=maybe"), PEN_EUSAGE, "true or false");
  test_fails(parse("stray"), PEN_EUSAGE, "unexpected argument \"stray\"");
}

static void test_positional(void **state)
{
  test_ok(parse_as(RUN, "run", "-k 3 that --resume", "name"));
  assert_string_equal(values.name, "that");
  test_ok(parse_as(RUN, "run", "-- --that", "name"));
  assert_string_equal(values.name, "--that");
  test_fails(parse_as(RUN, "run", "one two", "name"), PEN_EUSAGE,
             "second argument \"two\"");
}

static void test_required(void **state)
{
  test_ok(parse("-k 3"));
  test_fails(pen_option_check_required(&options), PEN_EUSAGE,
             "penstock run needs --name");
  test_ok(parse("-n x"));
  test_ok(pen_option_check_required(&options));
}

static int set_key(const char *key, const char *text)
{
  char *item = (char *)text;
  return pen_option_set_key(&options, key, &item, 1, false);
}

static void test_file_is_weaker(void **state)
{
  test_ok(parse("--count 7"));
  test_ok(set_key("count", "8"));
  test_ok(set_key("lr", "0.25"));
  assert_int_equal(values.count, 7);
  assert_true(values.rate == 0.25);
  assert_int_equal(pen_option_source(&options, "count"),
                   PEN_OPTION_COMMAND_LINE);
  assert_int_equal(pen_option_source(&options, "learning-rate"),
                   PEN_OPTION_FILE);
  char *items[] = { (char *)"a,b", (char *)"c" };
  test_ok(pen_option_set_key(&options, "dirs", items, 2, true));
  assert_string_equal(values.dirs.items[0], "a,b");
}

static void test_file_slips(void **state)
{
  start(RUN, "run");
  char *items[] = { (char *)"3", (char *)"4" };
  test_fails(set_key("cuont", "3"), PEN_EUSAGE,
             "unknown key cuont; did you mean count?");
  test_fails(set_key("help", "true"), PEN_EUSAGE, "makes no sense in a file");
  test_fails(pen_option_set_key(&options, "count", items, 2, true), PEN_EUSAGE,
             "not a list");
  test_ok(set_key("lr", "0.25"));
  test_fails(set_key("learning_rate", "0.5"), PEN_EUSAGE, "given twice");
  test_ok(set_key("output_format", "nvme")); /* another verb's: ignored */
  assert_int_equal(values.format, 0);
  test_fails(set_key("output_format", "xml"), PEN_EUSAGE, "xml"); /* checked */
}

static char *dumped(void)
{
  char *text = NULL;
  size_t n;
  FILE *f = open_memstream(&text, &n);
  pen_option_dump(&options, f);
  fclose(f);
  return text;
}

static void test_dump(void **state)
{
  test_ok(parse("--name a\"\\b --lr 0.1 --count 7 --memory-bytes 24GiB "
                "--place cpu_ram --dirs /a,/b --resume --speed 7GB/s"));
  char *text = dumped();
  assert_string_equal(text,
    "# things\n"
    "name: \"a\\\"\\\\b\"\n"
    "kind: \"a\"\n"
    "dirs: [\"/a\", \"/b\"]\n"
    "# numbers\n"
    "count: 7\n"
    "many: 1\n"
    "any: 0\n"
    "memory-bytes: 24GiB\n"
    "learning-rate: 0.1\n"
    "speed: 7GB/s\n"
    "resume: true\n"
    "packing: true\n"
    "place: cpu_ram\n");
  free(text);
}

static void test_rates(void **state)
{
  test_ok(parse("--speed 7GB/s"));
  assert_int_equal(values.speed, 7000000000);
  test_ok(parse("--speed 7GB"));
  assert_int_equal(values.speed, 7000000000);
  test_fails(parse("--speed 7GB/h"), PEN_EUSAGE, "bytes a second such as");
  test_fails(parse("--speed /s"), PEN_EUSAGE, "bytes a second such as");
  test_fails(parse("--memory-bytes 7GB/s"), PEN_EUSAGE, "a size such as");
}

static void hold_numbers(const struct pen_option_list *list, size_t n,
                         const uint64_t *want)
{
  assert_int_equal(list->n_items, n);
  for (size_t i = 0; i < n; i++)
    assert_int_equal(pen_option_list_number(list, i), want[i]);
}
#define HOLD(list, ...)                                                       \
  hold_numbers(&(list),                                                       \
               sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t),          \
               (uint64_t[]){__VA_ARGS__})

static void test_numbers(void **state)
{
  test_ok(parse_as(LOOK, "look", "", NULL));
  HOLD(values.speeds, 2, 4, 6);
  test_ok(parse_as(LOOK, "look", "--speed 1,7-9,1-9*3,10-13+2 --pieces "
                   "64KiB-1MiB*4,3,1KiB-3KiB+1KiB", NULL));
  HOLD(values.speeds, 1, 7, 8, 9, 1, 3, 9, 10, 12);
  HOLD(values.pieces, 65536, 262144, 1048576, 3, 1024, 2048, 3072);
  test_ok(parse_as(LOOK, "look", "--fastness 5", NULL));
  HOLD(values.speeds, 5);
  test_ok(parse_as(LOOK, "look", "--speed auto", NULL));
  assert_int_equal(values.speeds.n_items, 0);
  static const char *const wrong[] = {
    "1,,2", "0", "100", "1-100", "8-1", "1-8*1", "1-8*0", "1-8+0", "1-8/2", "-8",
    "1-", "1-8*", "1-8+x", "x", "1KiB", "1-8*2+1", "1,auto", "1-70",
    "99999999999999999999", "1-99999999999999999999" };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char line[64];
    snprintf(line, sizeof line, "--speed=%s", wrong[i]);
    test_fails(parse_as(LOOK, "look", line, NULL), PEN_EUSAGE,
               "whole numbers and ranges such as 1,2,4 or 1-8*2");
  }
  test_fails(parse_as(LOOK, "look", "--pieces 0-4KiB", NULL), PEN_EUSAGE,
             "sizes and ranges");
  test_fails(parse_as(LOOK, "look", "--pieces 1-9e", NULL), PEN_EUSAGE, "1-9e");
  char *items[] = { (char *)"1", (char *)"3-4" };
  start(LOOK, "look");
  test_ok(pen_option_set_key(&options, "speed", items, 2, true));
  HOLD(values.speeds, 1, 3, 4);
  char *text = dumped();
  assert_non_null(strstr(text, "speed: [\"1\", \"3\", \"4\"]"));
  free(text);
}

static void test_two_bare_arguments(void **state)
{
  test_ok(parse_as(RUN, "run", "one two", "name,output-dir"));
  assert_string_equal(values.name, "one");
  assert_string_equal(values.out, "two");
  test_ok(parse_as(RUN, "run", "one", "name,output-dir"));
  assert_null(values.out);
  test_fails(parse_as(RUN, "run", "one two three", "name,output-dir"),
             PEN_EUSAGE, "unexpected third argument \"three\"");
}

/* Changing the copy leaves the original alone, and the other way round. */
static void test_copy(void **state)
{
  struct values other;
  struct pen_options copy;
  test_ok(parse("--name x --dirs /a,/b --count 7"));
  test_ok(pen_option_copy(&copy, &options, &other, sizeof other));
  assert_string_equal(other.name, "x");
  assert_true(other.name != values.name);
  assert_int_equal(other.dirs.n_items, 2);
  assert_true(other.dirs.items != values.dirs.items);
  test_ok(pen_option_set(&copy, pen_option_find(&copy, "name"), "name", "y",
                         PEN_OPTION_COMMAND_LINE));
  test_ok(pen_option_set(&copy, pen_option_find(&copy, "count"), "count", "8",
                         PEN_OPTION_COMMAND_LINE));
  assert_string_equal(values.name, "x");
  assert_int_equal(values.count, 7);
  assert_string_equal(other.name, "y");
  assert_int_equal(other.count, 8);
  assert_int_equal(pen_option_source(&copy, "dirs"), PEN_OPTION_COMMAND_LINE);
  pen_option_done(&copy);
  assert_string_equal(values.dirs.items[1], "/b");
}

static void test_help(void **state)
{
  start(RUN, "run");
  char *text = NULL;
  size_t n;
  FILE *f = open_memstream(&text, &n);
  pen_option_help(&options, f);
  fclose(f);
  for (size_t i = 0; i < N_OPTIONS; i++) {
    char name[80];
    snprintf(name, sizeof name, "--%s", table[i].name);
    if (pen_option_find(&options, table[i].name)->verbs & RUN)
      assert_non_null(strstr(text, name));
    else
      assert_null(strstr(text, name));
  }
  assert_non_null(strstr(text, "--count auto|N"));
  assert_non_null(strstr(text, "(also --lr --alpha)"));
  assert_non_null(strstr(text, "(required)"));
  free(text);
}

static int done(void **state)
{
  pen_option_done(&options);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_defaults),
    cmocka_unit_test(test_forms),
    cmocka_unit_test(test_letter_depends_on_verb),
    cmocka_unit_test(test_alias_is_noted_once),
    cmocka_unit_test(test_slips),
    cmocka_unit_test(test_positional),
    cmocka_unit_test(test_required),
    cmocka_unit_test(test_file_is_weaker),
    cmocka_unit_test(test_file_slips),
    cmocka_unit_test(test_dump),
    cmocka_unit_test(test_rates), cmocka_unit_test(test_numbers),
    cmocka_unit_test(test_two_bare_arguments),
    cmocka_unit_test(test_copy),
    cmocka_unit_test(test_help),
  };
  return cmocka_run_group_tests(tests, NULL, done);
}
