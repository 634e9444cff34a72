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

#define GPT2                                                                  \
  "\"n_embd\":64,\"n_layer\":2,\"n_head\":4,\"vocab_size\":100}"

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
    {PEN_EUNSUPPORTED, "{\"model_type\":\"bert\"," BASE,
     "model_type \"bert\" is not supported; these are: gemma2, gpt2, llama, "
     "mistral, mixtral, olmo2, phi3, qwen2, qwen3, qwen3_moe"},
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
     "{\"model_type\":\"llama\",\"hidden_act\":\"relu\"," BASE,
     "hidden_act \"relu\" is not supported; silu, gelu, gelu_new and "
     "gelu_pytorch_tanh are"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"gpt2\",\"activation_function\":\"relu\"," GPT2,
     "activation_function \"relu\" is not supported; silu"},
    {PEN_EFORMAT, "{\"model_type\":\"gpt2\"," BASE, "n_embd is missing"},
    {PEN_EFORMAT, "{\"model_type\":\"gpt2\",\"n_embd\":63,\"n_layer\":2,"
     "\"n_head\":4,\"vocab_size\":9}",
     "n_embd 63 is not a multiple of n_head 4"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"gpt2\",\"scale_attn_weights\":false," GPT2,
     "scale_attn_weights false is not supported"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"gpt2\",\"scale_attn_by_inverse_layer_idx\":true," GPT2,
     "scale_attn_by_inverse_layer_idx true is not supported"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"gpt2\",\"add_cross_attention\":true," GPT2,
     "add_cross_attention true is not supported"},
    {PEN_EFORMAT,
     "{\"model_type\":\"gemma2\",\"attn_logit_softcapping\":0," BASE,
     "attn_logit_softcapping must be above 0 or null, is 0"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"gemma2\",\"use_bidirectional_attention\":true," BASE,
     "use_bidirectional_attention true is not supported"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"phi3\",\"resid_pdrop\":0.1," BASE,
     "resid_pdrop 0.1 is not supported, only 0"},
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
     "{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"proportional\"},"
     BASE,
     "rope_scaling: rope scaling type \"proportional\" is not supported; "
     "default, linear, dynamic, llama3, yarn and longrope are"},
    {PEN_EFORMAT,
     "{\"model_type\":\"llama\",\"rope_parameters\":{\"rope_type\":\"su\"},"
     BASE, "rope_parameters.short_factor is missing"},
    {PEN_EFORMAT,
     "{\"model_type\":\"phi3\",\"rope_scaling\":{\"type\":\"longrope\","
     "\"short_factor\":[1,2],\"long_factor\":[1,2,3,4,5,6,7,8]}," BASE,
     "2 numbers where 8 pairs (at most 512) are rotated"},
    {PEN_EFORMAT,
     "{\"model_type\":\"phi3\",\"partial_rotary_factor\":0.5,"
     "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,2,3,0],"
     "\"long_factor\":[1,2,3,4]}," BASE, "short_factor must be above 0, is 0"},
    {PEN_EFORMAT,
     "{\"model_type\":\"phi3\",\"partial_rotary_factor\":1.5," BASE,
     "partial_rotary_factor must be in (0, 1], is 1.5"},
    {PEN_EFORMAT,
     "{\"model_type\":\"phi3\",\"partial_rotary_factor\":0.2," BASE,
     "partial_rotary_factor 0.2 of head_dim 16 is not an even number"},
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
    {PEN_EFORMAT,
     "{\"model_type\":\"mixtral\",\"num_key_value_heads\":2,"
     "\"num_experts_per_tok\":9," BASE,
     "num_experts_per_tok 9 is more than num_local_experts 8"},
    {PEN_EFORMAT,
     "{\"model_type\":\"mixtral\",\"num_key_value_heads\":2,"
     "\"num_local_experts\":0," BASE,
     "num_local_experts must be between 1 and 4096, is 0"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"mixtral\",\"num_local_experts\":4096,"
     "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":999,"
     "\"num_attention_heads\":8,\"vocab_size\":100}",
     "999 layers of num_local_experts 4096 are more than 131072 experts"},
    {PEN_EUNSUPPORTED,
     "{\"model_type\":\"mixtral\",\"router_jitter_noise\":0.1," BASE,
     "router_jitter_noise 0.1 is not supported, only 0"},
    {PEN_EFORMAT,
     "{\"model_type\":\"mixtral\",\"num_key_value_heads\":2,"
     "\"router_aux_loss_coef\":-1," BASE,
     "router_aux_loss_coef must be at least 0, is -1"},
    {PEN_EFORMAT,
     "{\"model_type\":\"qwen3_moe\",\"num_key_value_heads\":2,"
     "\"mlp_only_layers\":[\"x\"]," BASE, "mlp_only_layers"},
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
  assert_true(c.family->qk_norm && !c.qkv_bias && !c.o_bias);
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
  assert_true(c.qkv_bias && !c.o_bias && !c.mlp_bias && !c.family->qk_norm);
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

/* Phi's: half of each head, factors for short and for long sequences. */
static void test_longrope(void **state)
{
  struct pen_model_config c = parse_good(
      "{\"model_type\":\"phi3\",\"partial_rotary_factor\":0.5,"
      "\"max_position_embeddings\":131072,"
      "\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,1.5,2,3],"
      "\"long_factor\":[4,5,6,7.25]}," BASE);
  assert_int_equal(c.rope.type, PEN_ROPE_LONGROPE);
  assert_int_equal(c.rope.dim, 8);
  assert_int_equal(c.rope.original_max_positions, 4096);
  assert_true(c.rope.factor == 32);
  /* sqrt(1 + ln 32 / ln 4096) */
  assert_true(fabs(c.rope.attention_factor - 1.1902380714238083) < 1e-15);
  assert_true(c.rope.short_factors[1] == 1.5 && c.rope.long_factors[3] == 7.25);
  c = parse_good("{\"model_type\":\"phi3\"," BASE);
  assert_int_equal(c.rope.type, PEN_ROPE_DEFAULT);
  assert_int_equal(c.rope.dim, 16);
}

static void test_gpt2(void **state)
{
  struct pen_model_config c = parse_good(
      "{\"model_type\":\"gpt2\",\"attn_pdrop\":0.1,\"n_inner\":null," GPT2);
  assert_int_equal(c.intermediate_size, 256);
  assert_int_equal(c.n_kv_heads, 4);
  assert_int_equal(c.max_positions, 1024);
  assert_int_equal(c.activation, PEN_ACTIVATION_GELU_TANH);
  assert_int_equal(c.rope.dim, 0);
  assert_true(c.tied && c.norm_eps == 1e-5);
  test_ok(pen_model_config_check_length(&c, 1024));
  test_fails(pen_model_config_check_length(&c, 1025), PEN_EUNSUPPORTED,
             "learned 1024 positions and sequences may have 1025 tokens; use "
             "--max-length 1024 or less");
}

static void test_gemma2(void **state)
{
  struct pen_model_config c = parse_good("{\"model_type\":\"gemma2\"," BASE);
  assert_true(c.tied && c.attention_cap == 50 && c.final_cap == 30);
  assert_true(c.query_scale == 1.0 / 16);
  assert_int_equal(c.head_dim, 256);
  c = parse_good("{\"model_type\":\"gemma2\",\"final_logit_softcapping\":null,"
                 "\"query_pre_attn_scalar\":64,\"hidden_act\":\"silu\"," BASE);
  assert_true(c.attention_cap == 50 && c.final_cap == 0);
  assert_true(c.query_scale == 1.0 / 8);
  assert_int_equal(c.activation, PEN_ACTIVATION_GELU_TANH);
}

/* The windows of both layers. */
static void test_window(void **state)
{
  static const struct {
    const char *text;
    size_t first, second;
  } cases[] = {
    {"{\"model_type\":\"mistral\",\"num_key_value_heads\":2," BASE, 4096, 4096},
    {"{\"model_type\":\"mistral\",\"num_key_value_heads\":2,"
     "\"sliding_window\":null," BASE, 0, 0},
    {"{\"model_type\":\"mistral\",\"num_key_value_heads\":2,"
     "\"sliding_window\":32," BASE, 32, 32},
    {"{\"model_type\":\"phi3\"," BASE, 0, 0},
    {"{\"model_type\":\"phi3\",\"sliding_window\":32," BASE, 32, 32},
    {"{\"model_type\":\"llama\",\"sliding_window\":32," BASE, 0, 0},
    {"{\"model_type\":\"gemma2\"," BASE, 4096, 0},
    {"{\"model_type\":\"gemma2\",\"sliding_window\":32,"
     "\"layer_types\":[\"full_attention\",\"sliding_attention\"]," BASE, 0, 32},
    {"{\"model_type\":\"qwen2\",\"num_key_value_heads\":2,"
     "\"sliding_window\":32,\"use_sliding_window\":false," BASE, 0, 0},
    {"{\"model_type\":\"qwen2\",\"num_key_value_heads\":2,"
     "\"sliding_window\":32,\"use_sliding_window\":true," BASE, 0, 0},
    {"{\"model_type\":\"qwen2\",\"num_key_value_heads\":2,"
     "\"sliding_window\":32,\"use_sliding_window\":true,"
     "\"max_window_layers\":1," BASE, 0, 32},
    {"{\"model_type\":\"qwen3\",\"num_key_value_heads\":2,"
     "\"sliding_window\":32,\"use_sliding_window\":true,"
     "\"layer_types\":[\"sliding_attention\",\"full_attention\"]," BASE, 32, 0},
    {"{\"model_type\":\"qwen3\",\"num_key_value_heads\":2,"
     "\"sliding_window\":32,\"use_sliding_window\":true,"
     "\"max_window_layers\":0,"
     "\"layer_types\":[\"full_attention\",\"full_attention\"]," BASE, 0, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct pen_model_config c = parse_good(cases[i].text);
    size_t first = pen_model_config_window(&c, 0);
    size_t second = pen_model_config_window(&c, 1);
    if (first != cases[i].first || second != cases[i].second)
      fail_msg("%s: windows %zu and %zu, not %zu and %zu", cases[i].text, first,
               second, cases[i].first, cases[i].second);
  }
  struct pen_model_config c;
  test_fails(parse_text("{\"model_type\":\"qwen2\",\"num_key_value_heads\":2,"
                        "\"use_sliding_window\":true,"
                        "\"layer_types\":[\"full_attention\"]," BASE, &c),
             PEN_EFORMAT, "layer_types: 1 types for num_hidden_layers 2");
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

#define QWEN3_MOE "{\"model_type\":\"qwen3_moe\",\"num_key_value_heads\":2,"

/* Which layers have experts, how many, and what becomes of their weights. */
static void test_experts(void **state)
{
  struct pen_model_config c = parse_good(
      "{\"model_type\":\"mixtral\",\"num_key_value_heads\":2," BASE);
  assert_true(pen_model_config_is_sparse(&c, 0));
  assert_true(pen_model_config_is_sparse(&c, 1));
  assert_int_equal(c.n_experts, 8);
  assert_int_equal(c.experts_per_token, 2);
  assert_int_equal(c.expert_size, c.intermediate_size);
  assert_true(c.normalises_experts && c.balance_coef == 0);
  c = parse_good(QWEN3_MOE "\"num_local_experts\":16,\"mlp_only_layers\":[0,9],"
                 "\"moe_intermediate_size\":24,\"output_router_logits\":true,"
                 BASE);
  assert_false(pen_model_config_is_sparse(&c, 0));
  assert_true(pen_model_config_is_sparse(&c, 1));
  assert_int_equal(c.n_experts, 16);
  assert_int_equal(c.experts_per_token, 8);
  assert_int_equal(c.expert_size, 24);
  assert_true(!c.normalises_experts && c.balance_coef == 0.001);
  c = parse_good(QWEN3_MOE "\"norm_topk_prob\":true,\"decoder_sparse_step\":2,"
                 "\"sliding_window\":7,\"use_sliding_window\":true," BASE);
  assert_false(pen_model_config_is_sparse(&c, 0));
  assert_true(pen_model_config_is_sparse(&c, 1));
  assert_true(c.normalises_experts);
  assert_int_equal(pen_model_config_window(&c, 0), 7);
  c = parse_good("{\"model_type\":\"llama\"," BASE);
  assert_false(pen_model_config_is_sparse(&c, 0));
  assert_int_equal(c.n_experts, 0);
}

/* Published configs. */
static void test_published(void **state)
{
  DIR *dir = opendir(test_shared("configs"));
  assert_non_null(dir);
  struct dirent *entry;
  size_t loaded = 0;
  while ((entry = readdir(dir))) {
    char name[512];
    struct pen_model_config config;
    if (!strstr(entry->d_name, ".config.json"))
      continue;
    snprintf(name, sizeof name, "configs/%s", entry->d_name);
    test_ok(pen_model_config_load(test_shared(name), &config));
    loaded++;
  }
  closedir(dir);
  assert_int_equal(loaded, 19);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_refused),  cmocka_unit_test(test_heads),
    cmocka_unit_test(test_biases),   cmocka_unit_test(test_rope),
    cmocka_unit_test(test_longrope), cmocka_unit_test(test_gpt2),
    cmocka_unit_test(test_gemma2),
    cmocka_unit_test(test_window),   cmocka_unit_test(test_dtype),
    cmocka_unit_test(test_experts),  cmocka_unit_test(test_published),
  };
  return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
