/* config.json: the published models, and what must be refused with which
 * words. */
#include "src/model/config.h"

#include <dirent.h>
#include <math.h>

#include "io/json.h"
#include "tests/test.h"
#include "tests/tmpdir.h"

/* A small llama; `more` is put in front and may repeat nothing. */
#define BASE                                                                  \
  "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,"      \
  "\"num_attention_heads\":4,\"vocab_size\":100}"

static int parse_text(const char *text, struct pen_model_config *ret_config)
{
  struct pen_json *json = NULL;
  int rc = pen_json_parse(text, strlen(text), "config.json", &json);
  if (!rc)
    rc = pen_model_config_parse(json, ret_config);
  pen_json_free(&json);
  return rc;
}

static struct pen_model_config parse_good(const char *text)
{
  struct pen_model_config config;
  memset(&config, 0, sizeof config);
  test_ok(parse_text(text, &config));
  return config;
}

static void test_refused(void **state)
{
  static const struct {
    int code;
    const char *text, *says;
  } cases[] = {
    {PEN_EFORMAT, "[]", "config.json: not an object"},
    {PEN_EFORMAT, "{" BASE, "model_type is missing"},
    {PEN_EUNSUPPORTED, "{\"model_type\":\"gpt2\"," BASE,
     "model_type \"gpt2\" is not supported; these are: llama, mistral, qwen2, "
     "qwen3"},
    {PEN_EFORMAT, "{\"model_type\":\"llama\"}", "hidden_size is missing"},
    {PEN_EFORMAT,
     "{\"model_type\":\"llama\",\"hidden_size\":0}",
     "hidden_size must be between 1 and"},
    {PEN_EFORMAT,
     "{\"model_type\":\"llama\",\"hidden_size\":9223372036854775807}",
     "hidden_size must be between 1 and"},
    {PEN_EFORMAT, "{\"model_type\":\"llama\",\"hidden_size\":-64}",
     "hidden_size must be an integer of at least 0, is -64"},
    {PEN_EFORMAT, "{\"model_type\":\"llama\",\"hidden_size\":64.5}",
     "hidden_size must be an integer of at least 0, is 64.5"},
    {PEN_EFORMAT,
     "{\"model_type\":\"llama\",\"num_key_value_heads\":3," BASE,
     "num_attention_heads 4 is not a multiple of num_key_value_heads 3"},
    {PEN_EFORMAT,
     "{\"model_type\":\"llama\",\"hidden_size\":1792,\"intermediate_size\":96,"
     "\"num_hidden_layers\":2,\"num_attention_heads\":24,\"vocab_size\":9}",
     "hidden_size 1792 is not a multiple of num_attention_heads 24 and there "
     "is no head_dim"},
    {PEN_EFORMAT, "{\"model_type\":\"llama\",\"head_dim\":7," BASE,
     "head_dim must be even"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"llama\",\"hidden_act\":\"gelu\"," BASE,
     "hidden_act \"gelu\" is not supported, only silu"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"llama\",\"attention_dropout\":0.1," BASE,
     "attention_dropout 0.1 is not supported, only 0"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"llama\",\"quantization_config\":{}," BASE,
     "quantization_config is not supported"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"llama\",\"torch_dtype\":\"int8\"," BASE,
     "dtype \"int8\" is not supported"},
    {PEN_EFORMAT, "{\"model_type\":\"llama\",\"rms_norm_eps\":-1," BASE,
     "rms_norm_eps must be in [0, 1)"},
    {PEN_EFORMAT, "{\"model_type\":\"llama\",\"rope_theta\":0," BASE,
     "rope_theta must be above 1, is 0"},
    {PEN_EFORMAT, "{\"model_type\":\"llama\",\"rope_scaling\":5," BASE,
     "rope_scaling: must be an object or null"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"longrope\"}," BASE,
     "rope_scaling: rope scaling type \"longrope\" is not supported; default, "
     "linear, dynamic, llama3 and yarn are"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"llama\",\"rope_parameters\":{\"rope_type\":\"su\"},"
     BASE, "rope scaling type \"su\" is not supported"},
    {PEN_EFORMAT,
     "{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\","
     "\"rope_type\":\"yarn\"}," BASE,
     "rope_type is \"yarn\" but type is \"linear\""},
    {PEN_EFORMAT,
     "{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\"}," BASE,
     "rope_scaling.factor is missing"},
    {PEN_EFORMAT,
     "{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\","
     "\"factor\":\"x\"}," BASE,
     "rope_scaling.factor must be a number, is \"x\""},
    {PEN_EFORMAT,
     "{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\","
     "\"factor\":0.5}," BASE, "factor must be at least 1, is 0.5"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\","
     "\"factor\":2,\"beta_fast\":3}," BASE,
     "rope_scaling.beta_fast: not a key of rope scaling type linear"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"llama\",\"rope_parameters\":{\"full_attention\":{}},"
     BASE, "rope_parameters.full_attention: not a key"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"llama\",\"rope_parameters\":{"
     "\"partial_rotary_factor\":0.5}," BASE,
     "partial_rotary_factor 0.5 is not supported"},
    {PEN_EFORMAT,
     "{\"model_type\":\"llama\",\"rope_parameters\":{\"rope_theta\":5e5},"
     "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}," BASE,
     "rope_parameters and rope_scaling say different things"},
    {PEN_EFORMAT,
     "{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"llama3\","
     "\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4}," BASE,
     "high_freq_factor must be above 4, is 4"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"qwen2\",\"use_sliding_window\":true,"
     "\"num_key_value_heads\":2,\"layer_types\":[\"full_attention\","
     "\"chunked_attention\"]," BASE, "\"chunked_attention\" is not supported"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct pen_model_config config = {.n_layers = 77};
    test_fails(parse_text(cases[i].text, &config), cases[i].code,
               cases[i].says);
    assert_int_equal(config.n_layers, 77); /* untouched */
  }
}

/* F9. */
static void test_heads(void **state)
{
  struct pen_model_config c = parse_good(
      "{\"model_type\":\"llama\",\"hidden_size\":1792,\"intermediate_size\":96,"
      "\"num_hidden_layers\":2,\"num_attention_heads\":24,\"vocab_size\":9,"
      "\"head_dim\":128}");
  assert_int_equal(c.head_dim, 128);
  assert_int_equal(c.n_kv_heads, 24);
  c = parse_good("{\"model_type\":\"llama\"," BASE);
  assert_int_equal(c.head_dim, 16);
  assert_int_equal(c.n_kv_heads, 4);
  c = parse_good("{\"model_type\":\"qwen3\",\"num_key_value_heads\":2," BASE);
  assert_int_equal(c.head_dim, 128); /* the family's own default */
  assert_true(c.qk_norm && !c.qkv_bias && !c.o_bias);
  c = parse_good("{\"model_type\":\"mistral\",\"num_key_value_heads\":null,"
                 BASE);
  assert_int_equal(c.n_kv_heads, 4);
  test_fails(parse_text("{\"model_type\":\"mistral\"," BASE, &c), PEN_EFORMAT,
             "num_attention_heads 4 is not a multiple of num_key_value_heads "
             "8");
}

static void test_biases(void **state)
{
  struct pen_model_config c =
      parse_good("{\"model_type\":\"llama\",\"attention_bias\":true," BASE);
  assert_true(c.qkv_bias && c.o_bias && !c.mlp_bias && !c.tied);
  c = parse_good("{\"model_type\":\"llama\",\"mlp_bias\":true,"
                 "\"tie_word_embeddings\":true," BASE);
  assert_true(!c.qkv_bias && !c.o_bias && c.mlp_bias && c.tied);
  c = parse_good("{\"model_type\":\"qwen2\",\"num_key_value_heads\":2," BASE);
  assert_true(c.qkv_bias && !c.o_bias && !c.mlp_bias && !c.qk_norm);
  c = parse_good("{\"model_type\":\"mistral\",\"num_key_value_heads\":2,"
                 "\"attention_bias\":true," BASE);
  assert_true(!c.qkv_bias && !c.o_bias);
}

/* F10: three spellings, one meaning. */
static void test_rope(void **state)
{
  static const char *const spellings[] = {
    "{\"model_type\":\"llama\",\"rope_theta\":500000,\"rope_scaling\":{"
    "\"type\":\"yarn\",\"factor\":4.0,"
    "\"original_max_position_embeddings\":512}," BASE,
    "{\"model_type\":\"llama\",\"rope_theta\":500000.0,\"rope_scaling\":{"
    "\"rope_type\":\"yarn\",\"factor\":4,\"finetuned\":true,"
    "\"original_max_position_embeddings\":512}," BASE,
    "{\"model_type\":\"llama\",\"rope_parameters\":{\"rope_theta\":5e5,"
    "\"rope_type\":\"yarn\",\"type\":\"yarn\",\"factor\":4,"
    "\"original_max_position_embeddings\":512}," BASE,
  };
  for (size_t i = 0; i < 3; i++) {
    struct pen_model_config c = parse_good(spellings[i]);
    assert_int_equal(c.rope.type, PEN_ROPE_YARN);
    assert_true(c.rope.theta == 500000 && c.rope.factor == 4);
    assert_true(c.rope.beta_fast == 32 && c.rope.beta_slow == 1);
    assert_int_equal(c.rope.original_max_positions, 512);
    assert_true(c.rope.truncate);
    /* 0.1 ln 4 + 1 */
    assert_true(fabs(c.rope.attention_factor - 1.1386294361119891) < 1e-15);
  }
  struct pen_model_config c = parse_good(
      "{\"model_type\":\"llama\",\"max_position_embeddings\":999,"
      "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"mscale\":0.5,"
      "\"mscale_all_dim\":2,\"truncate\":false}," BASE);
  assert_int_equal(c.rope.original_max_positions, 999);
  assert_false(c.rope.truncate);
  assert_true(fabs(c.rope.attention_factor -
                   (0.05 * log(40) + 1) / (0.2 * log(40) + 1)) < 1e-15);
  c = parse_good("{\"model_type\":\"llama\",\"rope_scaling\":null,"
                 "\"rope_parameters\":null," BASE);
  assert_int_equal(c.rope.type, PEN_ROPE_DEFAULT);
  assert_true(c.rope.theta == 10000 && c.rope.attention_factor == 1);
  c = parse_good("{\"model_type\":\"llama\",\"rope_scaling\":{"
                 "\"type\":\"dynamic\",\"factor\":2}," BASE);
  test_ok(pen_model_config_check_length(&c, 2048));
  test_fails(pen_model_config_check_length(&c, 2049), PEN_EUNSUPPORTED,
             "dynamic rope scaling changes the model beyond 2048 tokens");
}

static void test_window(void **state)
{
  static const struct {
    const char *text;
    size_t window;
  } cases[] = {
    {"{\"model_type\":\"mistral\",\"num_key_value_heads\":2," BASE, 4096},
    {"{\"model_type\":\"mistral\",\"num_key_value_heads\":2,"
     "\"sliding_window\":null," BASE, 0},
    {"{\"model_type\":\"mistral\",\"num_key_value_heads\":2,"
     "\"sliding_window\":32," BASE, 32},
    {"{\"model_type\":\"llama\",\"sliding_window\":32," BASE, 0},
    {"{\"model_type\":\"qwen2\",\"num_key_value_heads\":2,"
     "\"sliding_window\":32,\"use_sliding_window\":false," BASE, 0},
    {"{\"model_type\":\"qwen2\",\"num_key_value_heads\":2,"
     "\"sliding_window\":32,\"use_sliding_window\":true," BASE, 0},
    {"{\"model_type\":\"qwen2\",\"num_key_value_heads\":2,"
     "\"sliding_window\":32,\"use_sliding_window\":true,"
     "\"max_window_layers\":1," BASE, 32},
    {"{\"model_type\":\"qwen3\",\"num_key_value_heads\":2,"
     "\"sliding_window\":32,\"use_sliding_window\":true,"
     "\"layer_types\":[\"full_attention\",\"sliding_attention\"]," BASE, 32},
    {"{\"model_type\":\"qwen3\",\"num_key_value_heads\":2,"
     "\"sliding_window\":32,\"use_sliding_window\":true,"
     "\"max_window_layers\":0,"
     "\"layer_types\":[\"full_attention\",\"full_attention\"]," BASE, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct pen_model_config c = parse_good(cases[i].text);
    if (c.sliding_window != cases[i].window)
      fail_msg("%s: window %zu, not %zu", cases[i].text, c.sliding_window,
               cases[i].window);
    test_ok(pen_model_config_check_length(&c, 32));
    if (c.sliding_window == 32)
      test_fails(pen_model_config_check_length(&c, 33), PEN_EUNSUPPORTED,
                 "sliding window of 32 tokens and sequences may have 33");
  }
}

static void test_dtype(void **state)
{
  struct pen_model_config c =
      parse_good("{\"model_type\":\"llama\",\"dtype\":\"bfloat16\"," BASE);
  assert_int_equal(c.dtype, PEN_FILE_BF16);
  c = parse_good("{\"model_type\":\"llama\",\"torch_dtype\":\"float16\"," BASE);
  assert_int_equal(c.dtype, PEN_FILE_F16);
  c = parse_good("{\"model_type\":\"llama\"," BASE);
  assert_int_equal(c.dtype, PEN_FILE_NONE);
}

/* Published configs: supported families load, the others are refused by
 * name. */
static void test_published(void **state)
{
  DIR *dir = opendir(test_shared("configs"));
  assert_non_null(dir);
  struct dirent *entry;
  size_t loaded = 0, refused = 0;
  while ((entry = readdir(dir))) {
    char name[512];
    struct pen_model_config config;
    if (!strstr(entry->d_name, ".config.json"))
      continue;
    snprintf(name, sizeof name, "configs/%s", entry->d_name);
    int rc = pen_model_config_load(test_shared(name), &config);
    if (rc) {
      assert_int_equal(rc, -PEN_EUNSUPPORTED);
      assert_non_null(strstr(pen_error_text(), "is not supported; these are"));
      assert_non_null(strstr(pen_error_text(), entry->d_name));
      pen_error_clear();
    }
    loaded += !rc;
    refused += rc != 0;
  }
  closedir(dir);
  printf("# %zu loaded, %zu refused\n", loaded, refused);
  assert_true(loaded >= 13 && refused >= 6);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_refused),  cmocka_unit_test(test_heads),
    cmocka_unit_test(test_biases),   cmocka_unit_test(test_rope),
    cmocka_unit_test(test_window),   cmocka_unit_test(test_dtype),
    cmocka_unit_test(test_published),
  };
  return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
