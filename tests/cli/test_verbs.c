/* init, inspect and verify as a user runs them: exit codes, words, and numbers
 * that agree with each other and with the published counts. */
#include <inttypes.h>
#include <sys/wait.h>

#include "io/files.h"
#include "io/json.h"
#include "tests/test.h"
#include "tests/tmpdir.h"

#define CONFIG                                                                \
  "{\"model_type\":\"qwen2\",\"hidden_size\":32,\"intermediate_size\":48,"    \
  "\"num_hidden_layers\":2,\"num_attention_heads\":4,"                        \
  "\"num_key_value_heads\":2,\"vocab_size\":300,"                             \
  "\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\"}"

static char output[1 << 20]; /* of the last run, both streams */

/* Runs penstock with these words; returns its exit code. */
static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...)
{
  char words[4096], command[8192];
  va_list args;
  va_start(args, format);
  vsnprintf(words, sizeof words, format, args);
  va_end(args);
  const char *build = getenv("PEN_BUILD");
  snprintf(command, sizeof command, "%s/src/cli/penstock %s 2>&1",
           build ? build : ".", words);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  size_t n = fread(output, 1, sizeof output - 1, pipe);
  output[n] = '\0';
  int status = pclose(pipe);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void says(const char *part)
{
  if (!strstr(output, part))
    fail_msg("\"%s\" does not say \"%s\"", output, part);
}

/* A whole number of the last run's JSON. */
static size_t number(const char *key)
{
  struct pen_json *json = NULL;
  size_t value = 0;
  test_ok(pen_json_parse(output, strlen(output), "output", &json));
  test_ok(pen_json_get_size(json, pen_json_root(json), key, &value));
  pen_json_free(&json);
  return value;
}

static void read_weights(const char *name, char **ret_bytes, size_t *ret_n)
{
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/model.safetensors", test_tmp(name));
  test_ok(pen_files_read_whole(path, 1 << 24, ret_bytes, ret_n));
}

static bool are_same(const char *a, const char *b)
{
  char *x = NULL, *y = NULL;
  size_t n = 0, m = 0;
  read_weights(a, &x, &n);
  read_weights(b, &y, &m);
  bool same = n == m && !memcmp(x, y, n);
  free(x);
  free(y);
  return same;
}

static void test_init(void **state)
{
  const char *config = test_tmp("c.json");
  test_write_file(config, CONFIG, sizeof CONFIG - 1);
  assert_int_equal(run("init %s -o %s --seed 3", config, test_tmp("a")), 0);
  assert_int_equal(run("init %s -o %s --seed 3", config, test_tmp("b")), 0);
  assert_int_equal(run("init %s -o %s --seed 4", config, test_tmp("d")), 0);
  assert_true(are_same("a", "b"));
  assert_false(are_same("a", "d"));
  assert_int_equal(run("init %s -o %s", config, test_tmp("a")), 1);
  says("choose another or --overwrite");
  assert_int_equal(run("init %s -o %s --seed 4 --overwrite", config,
                       test_tmp("a")), 0);
  assert_true(are_same("a", "d"));
  assert_int_equal(run("init %s", config), 2);
  assert_int_equal(run("init %s -o %s", test_tmp("none.json"), test_tmp("e")),
                   1);
  assert_false(pen_files_exists(test_tmp("e")));

  assert_int_equal(run("inspect -o json %s", test_tmp("d")), 0);
  /* 300 x 32 + 2 layers + norm; a layer: 32 x (32 + 16 + 16 + 32) + 64 biases
   * + 3 x 32 x 48 + 64 */
  size_t expect = 9600 + 2 * (3072 + 64 + 4608 + 64) + 32;
  assert_int_equal(number("parameters"), expect);
  assert_int_equal(number("tensors"), 2 + 2 * 12);
  assert_int_equal(run("inspect -o json %s", config), 0);
  assert_int_equal(number("parameters"), expect);
  assert_int_equal(run("inspect %s", test_tmp("d")), 0);
  says("qwen2");
  says("tied to the embedding");

  assert_int_equal(run("init %s -o %s --untie --vocab-size 100 --dtype fp32",
                       config, test_tmp("f")), 0);
  assert_int_equal(run("verify -o json %s", test_tmp("f")), 0);
  assert_int_equal(number("parameters"), expect - 9600 + 2 * 3200);
  assert_int_equal(run("inspect %s", test_tmp("f")), 0);
  says("100 tokens, 100 rows, head of its own");
  says("F32");
}

/* verify finds what only reading finds, and inspect what opening finds. */
static void test_damage(void **state)
{
  const char *config = test_tmp("c.json");
  char *bytes = NULL;
  size_t n = 0;
  test_write_file(config, CONFIG, sizeof CONFIG - 1);
  assert_int_equal(run("init %s -o %s --overwrite", config, test_tmp("x")), 0);
  assert_int_equal(run("verify %s", test_tmp("x")), 0);
  says("whole; 26 tensors, all finite");
  read_weights("x", &bytes, &n);
  const char *file = test_tmp("x/model.safetensors");
  char last[2] = {bytes[n - 2], bytes[n - 1]};
  memcpy(bytes + n - 2, "\x80\x7f", 2); /* bf16 infinity */
  test_write_file(file, bytes, n);
  assert_int_equal(run("inspect %s", test_tmp("x")), 0);
  assert_int_equal(run("verify %s", test_tmp("x")), 1);
  says("has 1 of ");
  says("that are not finite");
  memcpy(bytes + n - 2, last, 2);
  test_write_file(file, bytes, n - 1);
  assert_int_equal(run("inspect %s", test_tmp("x")), 1);
  says("1 bytes are missing; download or copy it again");
  bytes[n] = 0;
  test_write_file(file, bytes, n + 1);
  assert_int_equal(run("verify %s", test_tmp("x")), 1);
  says("1 bytes after the last tensor");
  assert_int_equal(run("verify --lenient %s", test_tmp("x")), 0);
  says("warning: ");
  says("1 bytes after the last tensor are ignored");
  assert_int_equal(run("verify %s", file), 1);
  assert_int_equal(run("inspect --lenient --log-level error -o json %s",
                       file), 0);
  assert_int_equal(number("bytes"), n + 1);
  free(bytes);
}

static void test_paths(void **state)
{
  assert_int_equal(run("inspect %s", test_tmp("nothing")), 1);
  says("No such file or directory");
  assert_int_equal(run("inspect"), 2);
  assert_int_equal(run("verify HuggingFaceTB/SmolLM2-135M"), 1);
  says("hf download HuggingFaceTB/SmolLM2-135M --local-dir SmolLM2-135M");
  test_write_file(test_tmp("ids.u16"), "\1\0\2\0\3\0", 6);
  assert_int_equal(run("inspect -o json %s", test_tmp("ids.u16")), 0);
  assert_int_equal(number("tokens"), 3);
  assert_int_equal(run("verify %s", test_tmp("ids.u16")), 0);
  says("3 tokens (u16, which has no checksum)");
  assert_int_equal(run("init /etc -o %s", test_tmp("y")), 1);
  says("/etc/config.json");
}

/* What others wrote is told by how it begins, and not read as bytes. */
static void test_foreign_files(void **state)
{
  const char *path = test_tmp("m.gguf");
  /* One tensor "t" of 3 x 4 F32 at 0, keys general.alignment 16 and k, a list of
   * two strings: the header has 142 bytes, data begin at 144. */
  static const char gguf[144 + 48] =
      "GGUF\3\0\0\0" "\1\0\0\0\0\0\0\0" "\2\0\0\0\0\0\0\0"
      "\21\0\0\0\0\0\0\0" "general.alignment" "\4\0\0\0" "\20\0\0\0"
      "\1\0\0\0\0\0\0\0" "k" "\11\0\0\0" "\10\0\0\0" "\2\0\0\0\0\0\0\0"
      "\1\0\0\0\0\0\0\0" "a" "\2\0\0\0\0\0\0\0" "bc"
      "\1\0\0\0\0\0\0\0" "t" "\2\0\0\0" "\3\0\0\0\0\0\0\0"
      "\4\0\0\0\0\0\0\0" "\0\0\0\0" "\0\0\0\0\0\0\0\0";
  test_write_file(path, gguf, sizeof gguf);
  assert_int_equal(run("verify %s", path), 2);
  says("is a GGUF file; verify reads");
  assert_int_equal(run("inspect -o json %s", path), 0);
  assert_int_equal(number("tensors"), 1);
  assert_int_equal(number("keys"), 2);
  assert_int_equal(run("inspect %s", path), 0);
  says("version 3, for llama.cpp");
  /* In the counts, a key, the list of tensors, the tensor's last element. */
  static const size_t cuts[] = {20, 90, 130, sizeof gguf - 1};
  for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
    test_write_file(path, gguf, cuts[i]);
    assert_int_equal(run("inspect %s", path), 1);
    says("is cut off");
  }
  test_write_file(path, "GGUF\7\0\0\0................", 24);
  assert_int_equal(run("inspect %s", path), 1);
  says("GGUF of version 7");
  test_write_file(test_tmp("pytorch_model.bin"), "PK\3\4....", 8);
  assert_int_equal(run("verify %s", test_tmp("pytorch_model.bin")), 1);
  says("is a zip archive or a pickle, such as PyTorch saves");
  says("safe_serialization=True");
  test_write_file(test_tmp("text.txt"), "some words", 10);
  assert_int_equal(run("verify %s", test_tmp("text.txt")), 2);
  says("is text, or nothing known; verify reads");
  assert_int_equal(run("inspect %s", test_tmp("text.txt")), 0);
  assert_int_equal(run("inspect /dev/null"), 2);
  says("is neither a file nor a folder");
}

/* A filled hub cache is used as it lies. */
static void test_hub_cache(void **state)
{
  const char *config = test_tmp("c.json");
  test_write_file(config, CONFIG, sizeof CONFIG - 1);
  test_ok(pen_files_make_dirs(test_tmp("hub/models--org--name/refs")));
  test_write_file(test_tmp("hub/models--org--name/refs/main"), "abc", 3);
  setenv("HF_HUB_CACHE", test_tmp("hub"), 1);
  assert_int_equal(run("inspect org/name"), 1);
  says("hf download org/name");
  assert_int_equal(
      run("init %s -o %s", config,
          test_tmp("hub/models--org--name/snapshots/abc")), 0);
  assert_int_equal(run("inspect org/name"), 0);
  says("qwen2");
  unsetenv("HF_HUB_CACHE");
}

static void test_published(void **state)
{
  struct pen_json *json = NULL;
  const struct pen_json_node *counts, *node;
  const char *name;
  void *iter = NULL;
  size_t n_checked = 0;
  test_ok(pen_json_load(test_shared("configs/expected-parameters.json"),
                        &json));
  test_ok(pen_json_get_object(json, pen_json_root(json), "parameters",
                              &counts));
  while (pen_json_next(counts, &iter, &name, &node)) {
    char path[256];
    size_t expect = 0;
    snprintf(path, sizeof path, "configs/%s.config.json", name);
    test_ok(pen_json_as_size(json, node, &expect));
    if (run("inspect -o json %s", test_shared(path))) {
      says("is not supported; these are: ");
      continue;
    }
    assert_int_equal(number("parameters"), expect);
    n_checked++;
  }
  pen_json_free(&json);
  assert_true(n_checked >= 13);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_init),      cmocka_unit_test(test_damage),
    cmocka_unit_test(test_paths),     cmocka_unit_test(test_hub_cache),
    cmocka_unit_test(test_published), cmocka_unit_test(test_foreign_files),
  };
  return cmocka_run_group_tests_name("verbs", tests, NULL, NULL);
}
