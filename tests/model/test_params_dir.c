/* A parameter table and a model directory: what must not load and with which
 * words, and that what was loaded is saved under the same names, element by
 * element, in whatever pieces. */
#include "src/model/params.h"

#include <errno.h>
#include <math.h>

#include "base/rng.h"
#include "io/files.h"
#include "io/hfdir.h"
#include "io/hfdir_write.h"
#include "io/json.h"
#include "src/model/init.h"
#include "tests/test.h"
#include "tests/tmpdir.h"

#define CONFIG(type, more)                                                    \
  "{\n  \"model_type\": \"" type "\",\n  \"hidden_size\": 24,\n"              \
  "  \"intermediate_size\": 40,\n  \"num_hidden_layers\": 2,\n"               \
  "  \"num_attention_heads\": 6,\n  \"num_key_value_heads\": 2,\n"            \
  "  \"head_dim\": 8,\n  \"vocab_size\": 50" more "\n}\n"

#define GPT2                                                                  \
  "{\n  \"model_type\": \"gpt2\",\n  \"n_embd\": 24,\n  \"n_layer\": 2,\n"       \
  "  \"n_head\": 3,\n  \"n_positions\": 16,\n  \"vocab_size\": 50" TIED "\n}\n"

#define TIED ",\n  \"tie_word_embeddings\": true"
#define UNTIED ",\n  \"tie_word_embeddings\": false"
#define BF16 ",\n  \"torch_dtype\": \"bfloat16\""

enum { HEAD_ROWS = 16 };

static void save_all(const struct pen_params *p, struct pen_hfdir_writer *w,
                     uint64_t seed)
{
  float out[8192];
  for (size_t b = 0; b < p->n_blocks; b++) {
    assert_true(p->blocks[b].elems <= 8192);
    test_ok(pen_init_elems(p, seed, b, 0, p->blocks[b].elems, out));
    test_ok(pen_params_save_block(p, w, b, out, PEN_FILE_F32));
  }
}

/* Writes a random model DIR/name with this config; bare: without a prefix to
 * the names. */
static void make_named(const char *name, const char *config_text, bool bare,
                       enum pen_file_dtype dtype, uint64_t max_shard_bytes)
{
  struct pen_model_config config;
  struct pen_params *p = NULL;
  struct pen_hfdir_writer *w = NULL;
  const char *config_path = test_tmp("make.json");
  test_write_file(config_path, config_text, strlen(config_text));
  test_ok(pen_model_config_load(config_path, &config));
  const char *prefix = bare ? "" : config.family->names->prefix;
  test_ok(pen_params_build_named(&config, prefix, HEAD_ROWS, 0, &p));
  test_ok(pen_params_create_dir(p, config_path, dtype, max_shard_bytes,
                                test_tmp(name), true, &w));
  save_all(p, w, 5);
  test_ok(pen_hfdir_commit(&w));
  pen_params_free(&p);
}

static void make(const char *name, const char *config_text,
                 enum pen_file_dtype dtype, uint64_t max_shard_bytes)
{
  make_named(name, config_text, false, dtype, max_shard_bytes);
}

static int open_model(const char *name, bool untie, struct pen_hfdir **ret_dir,
                      struct pen_params **ret_params)
{
  struct pen_model_config config;
  char config_path[PATH_MAX];
  snprintf(config_path, sizeof config_path, "%s/config.json", test_tmp(name));
  test_ok(pen_hfdir_open(test_tmp(name), false, ret_dir));
  test_ok(pen_model_config_load(config_path, &config));
  int rc = pen_params_open(&config, *ret_dir, HEAD_ROWS, untie, ret_params);
  if (rc)
    pen_hfdir_close(ret_dir);
  return rc;
}

/* A directory with the tensors of another, changed by `edit`. */
struct edit {
  const char *drop;                     /* not written */
  const char *add;                      /* written: shape [add_n], zeros */
  const char *reshape;                  /* [a, b] becomes [b, a] */
  const char *as_i8;                    /* format changed */
  const char *copy_to, *copy_from;      /* written as another's bytes */
  bool nudge;                           /* the copy's last byte differs */
};

static void edit_specs(const struct pen_hfdir *from, const struct edit *edit,
                       struct pen_safetensors_spec *specs, uint64_t *swapped,
                       size_t *ret_n)
{
  static const uint64_t three[] = {3};
  size_t n = 0;
  for (size_t i = 0; i < pen_hfdir_n_tensors(from); i++) {
    const struct pen_hfdir_tensor *t = pen_hfdir_tensor(from, i);
    if (edit->drop && !strcmp(edit->drop, t->name))
      continue;
    specs[n] = (struct pen_safetensors_spec){t->name, t->dtype, t->rank,
                                             t->shape};
    if (edit->as_i8 && !strcmp(edit->as_i8, t->name))
      specs[n].dtype = PEN_FILE_I8;
    if (edit->reshape && !strcmp(edit->reshape, t->name)) {
      swapped[0] = t->shape[1];
      swapped[1] = t->shape[0];
      specs[n].shape = swapped;
    }
    n++;
  }
  if (edit->add)
    specs[n++] =
        (struct pen_safetensors_spec){edit->add, PEN_FILE_F32, 1, three};
  if (edit->copy_to) {
    const struct pen_hfdir_tensor *t =
        pen_hfdir_tensor(from, pen_hfdir_find(from, edit->copy_from));
    specs[n++] = (struct pen_safetensors_spec){edit->copy_to, t->dtype, t->rank,
                                               t->shape};
  }
  *ret_n = n;
}

static void make_edited(const char *name, const char *from_name,
                        const struct edit *edit)
{
  struct pen_hfdir *from = NULL;
  struct pen_hfdir_writer *w = NULL;
  struct pen_safetensors_spec specs[64];
  static const size_t shards[64];
  static const char *const names[] = {PEN_HFDIR_SINGLE};
  uint64_t swapped[2];
  char bytes[32768] = {0}, path[PATH_MAX];
  struct pen_hfdir_layout layout = {specs, shards, 0, names, 1, false};
  test_ok(pen_hfdir_open(test_tmp(from_name), false, &from));
  edit_specs(from, edit, specs, swapped, &layout.n);
  test_ok(pen_hfdir_create(test_tmp(name), &layout, true, &w));
  for (size_t i = 0; i < layout.n; i++) {
    bool is_copy = edit->copy_to && !strcmp(specs[i].name, edit->copy_to);
    size_t j = pen_hfdir_find(from, is_copy ? edit->copy_from : specs[i].name);
    size_t n = pen_file_dtype_bytes(specs[i].dtype);
    for (size_t d = 0; d < specs[i].rank; d++)
      n *= specs[i].shape[d];
    assert_true(n <= sizeof bytes);
    memset(bytes, 0, n);
    if (j != SIZE_MAX)
      test_ok(pen_hfdir_read_bytes(from, j, 0, n, bytes));
    bytes[n - 1] ^= is_copy && edit->nudge;
    test_ok(pen_hfdir_write_bytes(w, i, 0, bytes, n));
  }
  char *config = NULL;
  size_t n = 0;
  snprintf(path, sizeof path, "%s/config.json", test_tmp(from_name));
  test_ok(pen_files_read_whole(path, 65536, &config, &n));
  test_ok(pen_hfdir_put_file(w, "config.json", config, n));
  free(config);
  test_ok(pen_hfdir_commit(&w));
  pen_hfdir_close(&from);
}

#define UP0 "model.layers.0.mlp.up_proj.weight"
#define EMBED "model.embed_tokens.weight"
#define HEAD "lm_head.weight"

/* F5, F12, F13: every refusal, with its words. */
static void test_refused(void **state)
{
  static const struct {
    const char *from;
    struct edit edit;
    int code;
    const char *says;
  } cases[] = {
    {"untied", {.drop = UP0}, PEN_EMISMATCH, "tensor " UP0 " is missing"},
    {"untied", {.drop = EMBED}, PEN_EMISMATCH,
     "tensor " EMBED " is missing"},
    {"untied", {.drop = HEAD}, PEN_EMISMATCH,
     "tensor " HEAD " is missing and config.json does not tie it"},
    {"untied", {.add = "model.layers.0.self_attn.q_proj.bias"}, PEN_EMISMATCH,
     "tensor model.layers.0.self_attn.q_proj.bias would not be used by a llama "
     "model"},
    {"untied", {.add = "model.layers.2.self_attn.q_proj.weight"}, PEN_EMISMATCH,
     "tensor model.layers.2.self_attn.q_proj.weight would not be used"},
    {"untied", {.add = "model.layers.0.rotary_emb.inv_freq"}, PEN_EMISMATCH,
     "would not be used"},
    {"untied", {.reshape = UP0}, PEN_EMISMATCH,
     "tensor " UP0 " has shape [24, 40], config.json asks for [40, 24]"},
    {"untied", {.reshape = EMBED}, PEN_EMISMATCH,
     "tensor " EMBED " has shape [24, 50], config.json asks for [50, 24]"},
    {"untied", {.reshape = HEAD}, PEN_EMISMATCH,
     "tensor " HEAD " has shape [24, 50], config.json asks for [50, 24]"},
    {"untied", {.as_i8 = UP0}, PEN_EUNSUPPORTED,
     "tensor " UP0 " is stored as I8"},
    {"tied", {.copy_to = HEAD, .copy_from = EMBED, .nudge = true},
     PEN_EMISMATCH, HEAD " differs from " EMBED "; --untie trains them apart"},
    {"qwen2", {.drop = "model.layers.1.self_attn.k_proj.bias"}, PEN_EMISMATCH,
     "tensor model.layers.1.self_attn.k_proj.bias is missing"},
  };
  make("untied", CONFIG("llama", UNTIED), PEN_FILE_F32, UINT64_MAX);
  make("tied", CONFIG("llama", TIED), PEN_FILE_F32, UINT64_MAX);
  make("qwen2", CONFIG("qwen2", TIED), PEN_FILE_F32, UINT64_MAX);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct pen_hfdir *dir = NULL;
    struct pen_params *p = NULL;
    make_edited("bad", cases[i].from, &cases[i].edit);
    test_fails(open_model("bad", false, &dir, &p), cases[i].code,
               cases[i].says);
    assert_null(p);
  }
}

/* All elements of a model through load_elems, in pieces of `step`. */
static size_t load_model(const char *name, bool untie, size_t step, float *out)
{
  struct pen_hfdir *dir = NULL;
  struct pen_params *p = NULL;
  size_t n = 0;
  test_ok(open_model(name, untie, &dir, &p));
  for (size_t b = 0; b < p->n_blocks; b++) {
    for (size_t at = 0; at < p->blocks[b].elems; at += step) {
      size_t m = p->blocks[b].elems - at < step ? p->blocks[b].elems - at : step;
      for (size_t i = 0; i < m; i++)
        out[n + i] = NAN;
      test_ok(pen_params_load_elems(p, dir, b, at, m, out + n));
      n += m;
    }
  }
  pen_params_free(&p);
  pen_hfdir_close(&dir);
  return n;
}

static float first[65536], second[65536];

/* What pen_init_elems gave is what is read, padding 0, in any pieces. */
static void test_load(void **state)
{
  struct pen_hfdir *dir = NULL;
  struct pen_params *p = NULL;
  make("load", CONFIG("qwen3", UNTIED), PEN_FILE_F32, 4096);
  size_t n = load_model("load", false, SIZE_MAX / 2, first);
  assert_true(n <= 65536);
  for (size_t step = 1; step < 200; step += 37) {
    assert_int_equal(load_model("load", false, step, second), n);
    assert_memory_equal(first, second, n * sizeof *first);
  }
  test_ok(open_model("load", false, &dir, &p));
  assert_true(pen_hfdir_n_shards(dir) > 3);
  size_t at = 0;
  for (size_t b = 0; b < p->n_blocks; b++) {
    test_ok(pen_init_elems(p, 5, b, 0, p->blocks[b].elems, second));
    assert_memory_equal(first + at, second, p->blocks[b].elems * sizeof(float));
    at += p->blocks[b].elems;
  }
  test_fails(pen_params_load_elems(p, dir, 0, p->blocks[0].elems, 1, first),
             EINVAL, "are not in block 0");
  pen_params_free(&p);
  pen_hfdir_close(&dir);
}

static void read_file(const char *dir, const char *name, char **ret_text,
                      size_t *ret_n)
{
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", test_tmp(dir), name);
  test_ok(pen_files_read_whole(path, 1 << 20, ret_text, ret_n));
}

static void check_same_file(const char *a, const char *b, const char *name)
{
  char *x = NULL, *y = NULL;
  size_t n = 0, m = 0;
  read_file(a, name, &x, &n);
  read_file(b, name, &y, &m);
  assert_int_equal(n, m);
  assert_memory_equal(x, y, n);
  free(x);
  free(y);
}

/* Loads a model and exports it like its source, in pieces of `step`. */
static void export_like(const char *from, const char *to, bool untie,
                        enum pen_file_dtype dtype, size_t step)
{
  struct pen_hfdir *dir = NULL;
  struct pen_params *p = NULL;
  struct pen_hfdir_writer *w = NULL;
  test_ok(open_model(from, untie, &dir, &p));
  test_ok(pen_params_create_dir_like(p, dir, dtype, test_tmp(to), true, &w));
  for (size_t b = 0; b < p->n_blocks; b++)
    for (size_t at = 0; at < p->blocks[b].elems; at += step) {
      size_t m = p->blocks[b].elems - at < step ? p->blocks[b].elems - at : step;
      test_ok(pen_params_load_elems(p, dir, b, at, m, first));
      test_ok(pen_params_save_elems(p, w, b, at, m, first, PEN_FILE_F32));
    }
  test_ok(pen_hfdir_commit(&w));
  pen_params_free(&p);
  pen_hfdir_close(&dir);
}

static void check_same_tensors(const char *a, const char *b)
{
  struct pen_hfdir *x = NULL, *y = NULL;
  static char p[32768], q[32768];
  test_ok(pen_hfdir_open(test_tmp(a), false, &x));
  test_ok(pen_hfdir_open(test_tmp(b), false, &y));
  assert_int_equal(pen_hfdir_n_tensors(x), pen_hfdir_n_tensors(y));
  assert_int_equal(pen_hfdir_n_shards(x), pen_hfdir_n_shards(y));
  for (size_t i = 0; i < pen_hfdir_n_tensors(x); i++) {
    const struct pen_hfdir_tensor *t = pen_hfdir_tensor(x, i);
    size_t j = pen_hfdir_find(y, t->name);
    assert_true(j != SIZE_MAX);
    const struct pen_hfdir_tensor *u = pen_hfdir_tensor(y, j);
    assert_int_equal(t->dtype, u->dtype);
    assert_int_equal(t->rank, u->rank);
    assert_memory_equal(t->shape, u->shape, t->rank * sizeof *t->shape);
    assert_string_equal(pen_hfdir_shard_name(x, t->shard),
                        pen_hfdir_shard_name(y, u->shard));
    assert_true(t->bytes <= sizeof p);
    test_ok(pen_hfdir_read_bytes(x, i, 0, t->bytes, p));
    test_ok(pen_hfdir_read_bytes(y, j, 0, u->bytes, q));
    assert_memory_equal(p, q, t->bytes);
  }
  pen_hfdir_close(&x);
  pen_hfdir_close(&y);
}

/* F12, F15, E15: the exported set is the imported one, byte for byte, for each
 * format, single or sharded, with biases, buffers and a head stored twice. */
static void test_export(void **state)
{
  static const struct {
    const char *config;
    enum pen_file_dtype dtype;
    uint64_t max_shard_bytes;
    struct edit edit;
    bool bare;
  } cases[] = {
    {CONFIG("llama", UNTIED BF16), PEN_FILE_BF16, UINT64_MAX, {0}, false},
    {CONFIG("qwen2", TIED), PEN_FILE_F16, 3000, {0}, false},
    {CONFIG("qwen3", TIED), PEN_FILE_F32, 1, {0}, false},
    {CONFIG("mistral", UNTIED BF16), PEN_FILE_BF16, 5000, {0}, false},
    {CONFIG("llama", TIED), PEN_FILE_F32, UINT64_MAX,
     {.copy_to = HEAD, .copy_from = EMBED}, false},
    {CONFIG("llama", ",\n  \"attention_bias\": true,\n  \"mlp_bias\": true"),
     PEN_FILE_BF16, UINT64_MAX,
     {.add = "model.layers.1.self_attn.rotary_emb.inv_freq"}, false},
    {CONFIG("phi3", UNTIED BF16), PEN_FILE_BF16, 4000, {0}, false},
    {CONFIG("olmo2", UNTIED), PEN_FILE_F32, UINT64_MAX, {0}, false},
    {GPT2, PEN_FILE_F32, UINT64_MAX, {.add = "transformer.h.1.attn.bias"}, false},
    {GPT2, PEN_FILE_F32, UINT64_MAX, {.add = "h.1.attn.bias"}, true},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    make_named("base", cases[i].config, cases[i].bare, cases[i].dtype,
               cases[i].max_shard_bytes);
    const char *from = "base";
    if (cases[i].edit.copy_to || cases[i].edit.add) {
      make_edited("edited", "base", &cases[i].edit);
      from = "edited";
    }
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/tokenizer.json", test_tmp(from));
    test_write_file(path, "{\"t\":1}", 7);
    export_like(from, "out", false, PEN_FILE_NONE, 64 + 131 * i);
    check_same_tensors(from, "out");
    check_same_file(from, "out", "config.json");
    check_same_file(from, "out", "tokenizer.json");
  }
}

/* F15: another dtype is in the files and in the config alike; the rest of the
 * config stays. */
static void test_export_dtype(void **state)
{
  char *text = NULL;
  size_t n = 0;
  make("wide", CONFIG("llama", UNTIED ",\n  \"rms_norm_eps\": 1e-05"),
       PEN_FILE_F32, UINT64_MAX);
  export_like("wide", "narrow", false, PEN_FILE_BF16, 1000);
  static const char expect[] = CONFIG(
      "llama", UNTIED ",\n  \"rms_norm_eps\": 1e-05" BF16);
  read_file("narrow", "config.json", &text, &n);
  assert_int_equal(n, sizeof expect - 2); /* but the last line's end */
  assert_memory_equal(text, expect, n);
  free(text);
  struct pen_hfdir *dir = NULL;
  test_ok(pen_hfdir_open(test_tmp("narrow"), false, &dir));
  for (size_t i = 0; i < pen_hfdir_n_tensors(dir); i++)
    assert_int_equal(pen_hfdir_tensor(dir, i)->dtype, PEN_FILE_BF16);
  pen_hfdir_close(&dir);
  n = load_model("wide", false, 5000, first);
  assert_int_equal(load_model("narrow", false, 5000, second), n);
  for (size_t i = 0; i < n; i++) /* half of bf16's 2^-8 */
    assert_true(fabsf(first[i] - second[i]) <= fabsf(first[i]) * 0x1p-8f);
}

/* F6: a head of its own in a tied model's files, trained apart when asked. */
static void test_untie(void **state)
{
  struct edit edit = {.copy_to = HEAD, .copy_from = EMBED, .nudge = true};
  struct pen_model_config config;
  struct pen_hfdir *dir = NULL;
  struct pen_params *p = NULL;
  make("tied", CONFIG("llama", TIED), PEN_FILE_F32, UINT64_MAX);
  make_edited("own", "tied", &edit);
  export_like("own", "apart", true, PEN_FILE_NONE, 1000);
  check_same_tensors("own", "apart");
  test_ok(pen_model_config_load(test_tmp("apart/config.json"), &config));
  assert_false(config.tied);
  test_ok(open_model("apart", false, &dir, &p));
  assert_false(p->config.tied);
  pen_params_free(&p);
  pen_hfdir_close(&dir);
  test_fails(open_model("tied", true, &dir, &p), PEN_EMISMATCH,
             "--untie needs a lm_head.weight of its own");
}

/* F14: the file has more rows than the config's vocabulary. */
static void test_padded_rows(void **state)
{
  struct pen_hfdir *dir = NULL;
  struct pen_params *p = NULL;
  static const char small[] = CONFIG("llama", TIED);
  char text[sizeof small];
  make("rows", small, PEN_FILE_F32, UINT64_MAX);
  strcpy(text, small);
  memcpy(strstr(text, "50"), "37", 2);
  test_write_file(test_tmp("rows/config.json"), text, strlen(text));
  test_ok(open_model("rows", false, &dir, &p));
  assert_int_equal(p->vocab_rows, 50);
  assert_int_equal(p->infos[p->head_begin + 2].rows_valid, 5);
  assert_int_equal(p->infos[p->head_begin + 3].rows_valid, 0);
  pen_params_free(&p);
  pen_hfdir_close(&dir);
  export_like("rows", "kept", false, PEN_FILE_NONE, 100);
  check_same_tensors("rows", "kept");
  struct pen_model_config config;
  test_ok(pen_model_config_load(test_tmp("kept/config.json"), &config));
  assert_int_equal(config.vocab_size, 37);
  assert_int_equal(config.dtype, PEN_FILE_F32); /* was not said before */
  memcpy(strstr(text, "37"), "51", 2);
  test_write_file(test_tmp("rows/config.json"), text, strlen(text));
  test_fails(open_model("rows", false, &dir, &p), PEN_EMISMATCH,
             "has shape [50, 24], config.json asks for [51, 24]");
}

/* Standard deviation and mean of what a new model gets, and that no element
 * depends on the pieces. */
static void test_init(void **state)
{
  uint64_t seed = test_seed(9);
  struct pen_model_config config = {
    .family = pen_family_find("qwen2"), .hidden_size = 24,
    .intermediate_size = 40, .n_layers = 1, .n_heads = 6, .n_kv_heads = 2,
    .head_dim = 7, .vocab_size = 50, .init_std = 0.02, .qkv_bias = true};
  struct pen_params *p = NULL;
  test_ok(pen_params_build(&config, HEAD_ROWS, 60, &p));
  double sum = 0, squares = 0;
  size_t n_normal = 0;
  for (size_t b = 0; b < p->n_blocks; b++) {
    size_t n = p->blocks[b].elems;
    test_ok(pen_init_elems(p, seed, b, 0, n, first));
    for (size_t at = 0; at < n; at += 61) {
      size_t m = n - at < 61 ? n - at : 61;
      test_ok(pen_init_elems(p, seed, b, at, m, second));
      assert_memory_equal(first + at, second, m * sizeof *second);
    }
    for (size_t i = 0; i < p->infos[b].n_params; i++) {
      const struct pen_param *q = &p->params[p->infos[b].first_param + i];
      bool is_bias = q->role >= PEN_ROLE_Q_BIAS && q->role <= PEN_ROLE_V_BIAS;
      for (size_t e = 0; e < q->rows * q->cols; e++) {
        float value = first[q->offset + e];
        if (q->cols == 1)
          assert_true(value == (is_bias ? 0.0f : 1.0f));
        else if (p->infos[b].kind >= PEN_BLOCK_EMBED &&
                 q->row_begin + e / q->cols >= 50)
          assert_true(value == 0);
        else {
          sum += value;
          squares += (double)value * value;
          n_normal++;
        }
      }
    }
  }
  /* six standard errors of mean and variance */
  double n = (double)n_normal;
  assert_true(fabs(sum / n) < 6 * 0.02 / sqrt(n));
  assert_true(fabs(squares / n / 0.0004 - 1) < 6 * sqrt(2 / n));
  pen_params_free(&p);
}

/* The trained model: loads, every element finite, and exports as it was. */
static void test_stories(void **state)
{
  const char *path = test_shared("models/stories260K-hf");
  char config_path[PATH_MAX];
  struct pen_model_config config;
  struct pen_hfdir *dir = NULL;
  struct pen_params *p = NULL;
  struct pen_hfdir_writer *w = NULL;
  snprintf(config_path, sizeof config_path, "%s/config.json", path);
  test_ok(pen_model_config_load(config_path, &config));
  test_ok(pen_hfdir_open(path, false, &dir));
  test_ok(pen_params_open(&config, dir, 100, false, &p));
  assert_int_equal(p->n_elems, 260032);
  test_ok(pen_params_create_dir_like(p, dir, PEN_FILE_NONE, test_tmp("stories"),
                                     false, &w));
  for (size_t b = 0; b < p->n_blocks; b++) {
    size_t n = p->blocks[b].elems;
    assert_true(n <= 65536);
    test_ok(pen_params_load_elems(p, dir, b, 0, n, first));
    for (size_t i = 0; i < n; i++)
      assert_true(isfinite(first[i]));
    test_ok(pen_params_save_block(p, w, b, first, PEN_FILE_F32));
  }
  test_ok(pen_hfdir_commit(&w));
  pen_params_free(&p);
  pen_hfdir_close(&dir);
  assert_true(pen_files_exists(test_tmp("stories/tokenizer_config.json")));
  /* against the source by its full path */
  struct pen_hfdir *back = NULL;
  test_ok(pen_hfdir_open(path, false, &dir));
  test_ok(pen_hfdir_open(test_tmp("stories"), false, &back));
  assert_int_equal(pen_hfdir_n_tensors(dir), pen_hfdir_n_tensors(back));
  for (size_t i = 0; i < pen_hfdir_n_tensors(dir); i++) {
    const struct pen_hfdir_tensor *t = pen_hfdir_tensor(dir, i);
    size_t j = pen_hfdir_find(back, t->name);
    assert_true(j != SIZE_MAX);
    test_ok(pen_hfdir_read_bytes(dir, i, 0, t->bytes, first));
    test_ok(pen_hfdir_read_bytes(back, j, 0, t->bytes, second));
    assert_memory_equal(first, second, t->bytes);
  }
  pen_hfdir_close(&dir);
  pen_hfdir_close(&back);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_refused),      cmocka_unit_test(test_load),
    cmocka_unit_test(test_export),       cmocka_unit_test(test_export_dtype),
    cmocka_unit_test(test_untie),        cmocka_unit_test(test_padded_rows),
    cmocka_unit_test(test_init),         cmocka_unit_test(test_stories),
  };
  return cmocka_run_group_tests_name("params_dir", tests, NULL, NULL);
}
