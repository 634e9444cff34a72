/* penstock's own table: sound rows, dump and file round trip, contradictions.
 */
#include "src/cli/options.h"

#include <errno.h>

#include "src/cli/config_file.h"
#include "src/cli/verb.h"
#include "tests/test.h"
#include "tests/tmpdir.h"

static struct pen_options options;
static struct pen_config config;

static int parse_as(uint32_t verb, const char *name, const char *line,
                    const char *positional)
{
  char copy[8192], *argv[64];
  int argc = 0;
  snprintf(copy, sizeof copy, "%s", line);
  for (char *p = strtok(copy, " "); p; p = strtok(NULL, " "))
    argv[argc++] = p;
  pen_option_done(&options);
  int r = pen_options_init(&options, &config, verb, name);
  return r ? r : pen_options_parse(&options, &config, argc, argv, positional);
}

static int train(const char *line)
{
  char whole[8192];
  snprintf(whole, sizeof whole, "--model m --data d -o run %s", line);
  return parse_as(PEN_VERB_TRAIN, "train", whole, "config");
}

/* Names, aliases and letters are unique where they could be confused, and
 * every verb's bit is known. */
static void test_rows_are_sound(void **state)
{
  test_ok(pen_options_init(&options, &config, PEN_VERB_TRAIN, "train"));
  for (size_t i = 0; i < options.n_options; i++) {
    const struct pen_option *a = &options.table[i];
    assert_true(a->verbs != 0);
    assert_true((a->required & ~a->verbs) == 0);
    assert_true(strlen(a->help) > 0 && strlen(a->help) < 80);
    for (options.verb = 1; !(a->verbs & options.verb);)
      options.verb <<= 1;
    assert_ptr_equal(pen_option_find(&options, a->name), a);
    char aliases[256];
    snprintf(aliases, sizeof aliases, "%s", a->aliases ? a->aliases : "");
    for (char *p = strtok(aliases, ","); p; p = strtok(NULL, ","))
      if (pen_option_find(&options, p) != a)
        fail_msg("--%s is also another option's name", p);
    for (size_t j = 0; j < i; j++) {
      const struct pen_option *b = &options.table[j];
      if (a->letter && a->letter == b->letter && a->verbs & b->verbs)
        fail_msg("-%c is --%s and --%s", a->letter, a->name, b->name);
      if (strcmp(a->name, b->name) == 0 && a->verbs & b->verbs)
        fail_msg("--%s is there twice", a->name);
      if (a->offset == b->offset)
        fail_msg("--%s and --%s share a field", a->name, b->name);
      /* a group stands together, else help shows its heading twice */
      if (j + 1 < i && a->group && b->group && a->group == b->group &&
          options.table[i - 1].group != a->group)
        fail_msg("--%s stands apart from its group", a->name);
    }
  }
}

static void test_issue_command(void **state)
{
  test_ok(parse_as(PEN_VERB_TRAIN, "train",
    "--model ../m --data t.txt --output-dir run --max-steps 300 "
    "--learning-rate 1e-3 --offload-optimizer nvme --nvme-path run/nvme",
    "config"));
  assert_int_equal(config.max_steps, 300);
  assert_true(config.learning_rate == 1e-3);
  assert_int_equal(config.offload_optimizer, PEN_CONFIG_PLACE_NVME);
  assert_string_equal(config.nvme_path.items[0], "run/nvme");
  test_ok(parse_as(PEN_VERB_EVAL, "eval", "--model run/model --data t.txt "
                   "-o json", NULL));
  assert_int_equal(config.output_format, PEN_CONFIG_OUTPUT_JSON);
  test_ok(parse_as(PEN_VERB_GENERATE, "generate", "--model m "
                   "--max-new-tokens 200 --greedy -o json", NULL));
  assert_true(config.greedy);
  test_ok(parse_as(PEN_VERB_INIT, "init", "c.json -o d --seed 7 --dtype fp32",
                   "model-config"));
  assert_string_equal(config.model_config, "c.json");
  assert_string_equal(config.output_dir, "d");
  assert_int_equal(config.dtype, PEN_CONFIG_DTYPE_FP32);
  test_ok(parse_as(PEN_VERB_INSPECT, "inspect", "m", "path"));
  assert_string_equal(config.path, "m");
}

static void test_words(void **state)
{
  test_ok(train("--max-steps -1 --recompute all --lr-scheduler-type wsd"));
  assert_int_equal(config.max_steps, 0);
  assert_true(config.recompute == PEN_CONFIG_RECOMPUTE_ALL);
  assert_int_equal(config.lr_scheduler_type, PEN_CONFIG_SCHEDULE_WSD);
  test_ok(train("--recompute 3 --device-memory 22GiB --host-mode discrete "
                "--seed 18446744073709551615"));
  assert_int_equal(config.recompute, 3);
  assert_true(config.device_memory == (uint64_t)22 << 30);
  assert_true(config.seed == UINT64_MAX);
  test_ok(train("--gradient_checkpointing true --warmup_ratio 0.03"));
  assert_true(config.recompute == PEN_CONFIG_RECOMPUTE_ALL);
  assert_true(config.warmup_steps == 0.03);
  test_fails(train("--offload-gradients none"), PEN_EUSAGE,
             "expected auto | cpu | nvme");
}

static void test_contradictions(void **state)
{
  test_fails(train("--resume --overwrite"), PEN_EUSAGE, "--overwrite");
  test_fails(train("--offload-params nvme"), PEN_EUSAGE,
             "--offload-params nvme needs --nvme-path");
  test_fails(train("--nvme-memory 1GB"), PEN_EUSAGE, "needs --nvme-path");
  test_fails(train("--optimizer-host-memory 1GB"), PEN_EUSAGE, "needs --nvme-path");
  test_fails(train("--optimizer-host-memory 1GB --offload-optimizer nvme --nvme-path d"),
             PEN_EUSAGE, "--optimizer-host-memory and --offload-optimizer contradict");
  test_fails(train("--min-lr 1 --lr 0.1"), PEN_EUSAGE, "--min-lr 1 is above");
  test_fails(train("--min-lr 1e-6 --lr-scheduler-type constant"), PEN_EUSAGE,
             "no meaning");
  test_fails(train("--eval-steps 3"), PEN_EUSAGE, "needs --eval-data");
  test_fails(train("--device-memory 1GiB"), PEN_EUSAGE, "--host-mode discrete");
  test_fails(train("--num-train-epochs 0"), PEN_EUSAGE, "trains nothing");
  test_fails(train("--durability none --commit-interval 2"), PEN_EUSAGE,
             "--commit-interval");
  test_fails(train("--isa scalar --require-simd"), PEN_EUSAGE,
             "--require-simd");
  test_fails(parse_as(PEN_VERB_GENERATE, "generate",
                      "--model m --greedy --temperature 0.5", NULL), PEN_EUSAGE,
             "--temperature");
  test_fails(parse_as(PEN_VERB_GENERATE, "generate",
                      "--model m --temperature 0 --top-k 5", NULL), PEN_EUSAGE,
             "--temperature 0 and --top-k");
  test_fails(parse_as(PEN_VERB_GENERATE, "generate", "--model m --system s",
                      NULL), PEN_EUSAGE, "--system has no effect without --chat");
  test_fails(parse_as(PEN_VERB_GENERATE, "generate",
                      "--model m --offload-params nvme", NULL), PEN_EUSAGE,
             "needs --nvme-path");
  test_fails(parse_as(PEN_VERB_EVAL, "eval",
                      "--model m --data d --offload-params nvme", NULL),
             PEN_EUSAGE, "needs --nvme-path");
  test_fails(parse_as(PEN_VERB_PLAN, "plan", "--model m --chat-template t", NULL),
             PEN_EUSAGE, "--chat-template has no effect without --data");
  test_ok(parse_as(PEN_VERB_PLAN, "plan", "--model m --chat-template t --data d",
                   NULL));
  test_fails(parse_as(PEN_VERB_TRAIN, "train", "--model m --data d", "config"),
             PEN_EUSAGE, "penstock train needs --output-dir");
}

static char *dumped(uint32_t verb)
{
  char *text = NULL;
  size_t n;
  FILE *f = open_memstream(&text, &n);
  pen_options_dump(&config, verb, f);
  fclose(f);
  return text;
}

static bool yaml_is_built_in(void)
{
  pen_option_done(&options);
  test_ok(pen_options_init(&options, &config, PEN_VERB_TRAIN, "train"));
  int r = pen_config_file_parse("", 0, false, "x", &options);
  pen_error_clear();
  return r == 0;
}

/* dump -> -c -> dump is the same text, with every kind of value set. */
static void test_round_trip(void **state)
{
  if (!yaml_is_built_in())
    test_skip("built without libyaml");
  static const char *const lines[] = {
    "",
    ("--lr 0.1 --adam-epsilon 3.3333333333333331e-9 --nvme-path /a,/b "
     "--offload-optimizer nvme --host-memory 1.5GiB --recompute all --lenient "
     "--warmup-steps 0.03 --max-steps 300 --lr-scheduler-type wsd "
     "--nvme-memory 800GB --group-size 4 --trace \"t\" --min-lr 1e-3"),
    ("--num-train-epochs 1.5 --isa avx2 --gemm reference --eval-data e "
     "--eval-steps 10 --durability none --seed 18446744073709551615"),
  };
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
    test_ok(train(lines[i]));
    char *first = dumped(PEN_VERB_TRAIN);
    const char *path = test_tmp("run.yaml");
    test_write_file(path, first, strlen(first));
    char line[4096];
    snprintf(line, sizeof line, "-c %s", path);
    test_ok(parse_as(PEN_VERB_TRAIN, "train", line, "config"));
    char *second = dumped(PEN_VERB_TRAIN);
    assert_string_equal(first, second);
    test_ok(parse_as(PEN_VERB_TRAIN, "train", path, "config")); /* bare */
    assert_string_equal(config.model, "m");
    free(first);
    free(second);
  }
}

static int from_text(const char *text, bool is_json)
{
  pen_option_done(&options);
  test_ok(pen_options_init(&options, &config, PEN_VERB_TRAIN, "train"));
  return pen_config_file_parse(text, strlen(text), is_json,
                               is_json ? "run.json" : "run.yaml", &options);
}

static void test_yaml(void **state)
{
  if (!yaml_is_built_in())
    test_skip("built without libyaml");
  test_ok(from_text("# a run\nmodel: m\nlearning_rate: 2.0e-4\n\n"
                    "nvme_path:\n  - /a,b\n  - /c\ntrace: ~\neval-data:\n"
                    "data: \"with space\"\nlenient: yes\n", false));
  assert_true(config.learning_rate == 2e-4);
  assert_string_equal(config.nvme_path.items[0], "/a,b");
  assert_int_equal(config.nvme_path.n_items, 2);
  assert_string_equal(config.data, "with space");
  assert_null(config.trace);
  assert_null(config.eval_data);
  assert_true(config.lenient);
  test_ok(from_text("", false));
  test_ok(from_text("# nothing\n", false));
}

static void test_yaml_slips(void **state)
{
  if (!yaml_is_built_in())
    test_skip("built without libyaml");
  test_fails(from_text("model: m\n\nlerning-rate: 1\n", false), PEN_EUSAGE,
             "run.yaml:3: unknown key lerning-rate; did you mean "
             "learning-rate?");
  test_fails(from_text("model: m\nmax-steps: many\n", false), PEN_EUSAGE,
             "run.yaml:2: --max-steps: \"many\"");
  test_fails(from_text("model: m\nmodel: n\n", false), PEN_EUSAGE,
             "run.yaml:2: key model");
  test_fails(from_text("model:\n  a: b\n", false), PEN_EUSAGE,
             "run.yaml:1: model must be one value");
  test_fails(from_text("model: [a]\n", false), PEN_EUSAGE, "not a list");
  test_fails(from_text("nvme-path: [[a]]\n", false), PEN_EUSAGE, "run.yaml:1");
  test_fails(from_text("- a\n- b\n", false), PEN_EUSAGE, "run.yaml:1");
  test_fails(from_text("a: b\n c: [\n", false), PEN_EUSAGE, "run.yaml:");
  test_fails(from_text("model: m\n---\nmodel: n\n", false), PEN_EUSAGE,
             "one document");
  test_fails(from_text("overwrite: true\n", false), PEN_EUSAGE, "overwrite");
}

static void test_json(void **state)
{
  test_ok(from_text("{\"model\": \"m\", \"learning_rate\": 0.1, "
                    "\"max_steps\": 30, \"lenient\": true, \"trace\": null, "
                    "\"nvme_path\": [\"/a,b\", \"/c\"]}", true));
  assert_true(config.learning_rate == 0.1);
  assert_int_equal(config.max_steps, 30);
  assert_true(config.lenient);
  assert_null(config.trace);
  assert_string_equal(config.nvme_path.items[0], "/a,b");
  test_fails(from_text("{\"modle\": 1}", true), PEN_EUSAGE,
             "run.json: unknown key modle; did you mean model?");
  test_fails(from_text("{\"model\": {}}", true), PEN_EUSAGE, "run.json");
  test_fails(from_text("{\"model\": ", true), PEN_EUSAGE, "run.json");
  test_fails(from_text("[1]", true), PEN_EUSAGE, "run.json");
}

static void test_file_fails(void **state)
{
  char line[4096];
  test_fails(train("-c /nonexistent/run.yaml"), PEN_EUSAGE,
             "/nonexistent/run.yaml");
  char *zeros = calloc(1, PEN_CONFIG_FILE_BYTES_MAX + 1);
  test_write_file(test_tmp("big.json"), zeros,
                  PEN_CONFIG_FILE_BYTES_MAX + 1);
  free(zeros);
  snprintf(line, sizeof line, "-c %s", test_tmp("big.json"));
  test_fails(train(line), PEN_EUSAGE, "larger than");
}

static int done(void **state)
{
  pen_option_done(&options);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_rows_are_sound),
    cmocka_unit_test(test_issue_command),
    cmocka_unit_test(test_words),
    cmocka_unit_test(test_contradictions),
    cmocka_unit_test(test_round_trip),
    cmocka_unit_test(test_yaml),
    cmocka_unit_test(test_yaml_slips),
    cmocka_unit_test(test_json),
    cmocka_unit_test(test_file_fails),
  };
  return cmocka_run_group_tests(tests, NULL, done);
}
