/* A document that grows over a cache of keys and values has the logits that it
 * has in one piece, bit for bit, where products are summed in one order
 * (--gemm reference); so a token drawn from them is the same one. */
#include "tests/model/driver.h"

#define N_TOKENS 48

static const char *const models[] = {"llama", "llama-head-dim", "llama-bias",
                                     "mistral", "mistral-window", "qwen2",
                                     "qwen3", "gpt2", "olmo2", "phi3",
                                     "gemma2"};

static void open_model(struct driver *d, const char *name, enum pen_elem elem,
                       size_t max_tokens)
{
  char path[4096];
  struct driver_options o = {
      .elem = elem, .gemm = "reference", .n_threads = 2, .head_rows = 32,
      .max_tokens = max_tokens, .max_micros = 1, .cache_tokens = N_TOKENS,
      .recompute = true, .logits = PEN_LOGITS_ALL};
  snprintf(path, sizeof path, "%s/tests/fixtures/models/%s", test_root(), name);
  driver_open(d, path, &o);
}

static void some_ids(uint32_t *ids, size_t vocab)
{
  for (size_t t = 0; t < N_TOKENS; t++)
    ids[t] = (uint32_t)((t * t * 7 + 3 * t + 5) % vocab);
}

static void in_pieces(const char *name, enum pen_elem elem, size_t piece)
{
  struct driver whole, grown;
  uint32_t ids[N_TOKENS], doc_begin[] = {0, N_TOKENS};
  open_model(&whole, name, elem, N_TOKENS);
  open_model(&grown, name, elem, piece);
  size_t vocab = whole.params->config.vocab_size, n;
  some_ids(ids, vocab);
  driver_set(&whole, 0, 1, doc_begin, ids, NULL);
  driver_forward(&whole, 0);
  for (size_t at = 0; at < N_TOKENS; at += n) {
    n = piece < N_TOKENS - at ? piece : N_TOKENS - at;
    driver_set_cached(&grown, at, n, ids + at);
    driver_forward(&grown, 0);
    const float *want = whole.logits + at * vocab;
    for (size_t i = 0; i < n * vocab; i++)
      if (memcmp(&grown.logits[i], &want[i], sizeof *want) != 0)
        fail_msg("%s in %s, pieces of %zu: logit %zu of token %zu is %.9g, not "
                 "%.9g", name, pen_elem_name(elem), piece, i % vocab,
                 at + i / vocab, (double)grown.logits[i], (double)want[i]);
  }
  driver_close(&whole);
  driver_close(&grown);
}

static void test_same_logits(void **state)
{
  for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
    in_pieces(models[i], PEN_ELEM_F32, 1);
    in_pieces(models[i], PEN_ELEM_F32, 7);
    in_pieces(models[i], PEN_ELEM_BF16, 1);
    in_pieces(models[i], PEN_ELEM_BF16, 20);
  }
}

/* What was cached behind the place a document goes on from has no effect. */
static void test_taken_back(void **state)
{
  struct driver d;
  uint32_t ids[N_TOKENS];
  open_model(&d, "llama", PEN_ELEM_F32, N_TOKENS);
  size_t vocab = d.params->config.vocab_size, bytes = vocab * sizeof(float);
  float *want = malloc(bytes);
  some_ids(ids, vocab);
  driver_set_cached(&d, 0, 20, ids);
  driver_forward(&d, 0);
  memcpy(want, d.logits + 19 * vocab, bytes);
  driver_set_cached(&d, 10, 30, ids + 15);
  driver_forward(&d, 0);
  driver_set_cached(&d, 10, 10, ids + 10);
  driver_forward(&d, 0);
  assert_memory_equal(want, d.logits + 9 * vocab, bytes);
  free(want);
  driver_close(&d);
}

static void test_refused(void **state)
{
  struct driver d;
  uint32_t ids[4] = {0}, positions[4] = {46, 47, 48, 49}, begin[] = {0, 3};
  struct pen_model_micro m = {.n_tokens = 3, .ids = ids,
                              .positions = positions, .n_docs = 1,
                              .doc_begin = begin, .cached = true};
  open_model(&d, "llama", PEN_ELEM_F32, N_TOKENS);
  test_fails(pen_model_set_micro(d.model, 0, &m, PEN_LOGITS_NONE),
             PEN_EMISMATCH, "position 48");
  positions[2] = 4;
  test_fails(pen_model_set_micro(d.model, 0, &m, PEN_LOGITS_NONE),
             PEN_EMISMATCH, "from position 46 on cannot join a cache of 48");
  driver_close(&d);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_logits),
      cmocka_unit_test(test_taken_back),
      cmocka_unit_test(test_refused),
  };
  return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
