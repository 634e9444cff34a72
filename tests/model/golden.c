/* golden.c: reads the fixture models.
 *
 * Disadvantage: fails through cmocka, so only for test programs. */
#include "tests/model/golden.h"

const char *const golden_models[] = {
    "llama",          "llama-tied",       "llama-rope-linear",
    "llama-rope-yarn", "llama-rope-llama3", "llama-head-dim",
    "llama-bias",     "mistral",          "mistral-window",
    "qwen2",          "qwen3",            "gpt2",
    "gpt2-gelu",      "olmo2",            "phi3",
    "gemma2",         "mixtral",          "qwen3-moe",
    "qwen3-moe-step", NULL};

size_t golden_read(const struct golden *g, const char *name, void *out,
                   size_t max_bytes)
{
  size_t i = pen_safetensors_find(g->file, name);
  if (i == SIZE_MAX)
    return 0;
  const struct pen_safetensors_tensor *t = pen_safetensors_tensor(g->file, i);
  if (t->bytes > max_bytes)
    fail_msg("%s has %llu bytes", name, (unsigned long long)t->bytes);
  test_ok(pen_safetensors_read(g->file, i, 0, t->bytes, out));
  return t->elems;
}

const char *golden_path(const char *name)
{
  static char path[4096];
  snprintf(path, sizeof path, "%s/tests/fixtures/models/%s", test_root(), name);
  return path;
}

void golden_open(struct golden *g, const char *name)
{
  char path[4200];
  snprintf(path, sizeof path, "%s/golden.safetensors", golden_path(name));
  test_ok(pen_safetensors_open(path, false, &g->file));
  g->n_tokens = golden_read(g, "ids", g->ids, sizeof g->ids);
  assert_int_equal(golden_read(g, "targets", g->targets, sizeof g->targets),
                   g->n_tokens);
  assert_true(golden_read(g, "doc_begin", g->doc_begin, sizeof g->doc_begin));
  g->n_micros =
      golden_read(g, "micro_begin", g->micro_begin, sizeof g->micro_begin) - 1;
  assert_true(g->n_micros > 1);
}

struct driver_options golden_options(enum pen_elem elem)
{
  struct driver_options o = {
      .elem = elem, .gemm = "reference", .n_threads = 1, .head_rows = 64,
      .max_tokens = GOLDEN_TOKENS_MAX, .max_micros = GOLDEN_MICROS_MAX,
      .logits = PEN_LOGITS_ALL};
  return o;
}

size_t golden_set(struct driver *d, const struct golden *g, size_t micro)
{
  uint32_t begin[GOLDEN_TOKENS_MAX];
  size_t first = g->micro_begin[micro], n = g->micro_begin[micro + 1] - first;
  size_t token = g->doc_begin[first];
  for (size_t i = 0; i <= n; i++)
    begin[i] = g->doc_begin[first + i] - (uint32_t)token;
  driver_set(d, micro, n, begin, g->ids + token, g->targets + token);
  return token;
}

void golden_close(struct golden *g)
{
  pen_safetensors_close(&g->file);
}
