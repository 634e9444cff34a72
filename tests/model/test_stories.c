/* A trained model of 260,032 parameters against its float64 reference: the loss
 * of 128 tokens, some logits, and 200 greedy tokens exactly. */
#include <math.h>

#include "io/json.h"
#include "tests/model/driver.h"
#include "tests/tmpdir.h"

#define N_IDS 200
#define N_LOGITS 16

struct golden {
  uint32_t ids[N_IDS];
  double loss, logits_0[N_LOGITS], logits_7[N_LOGITS];
};

static void read_array(const struct pen_json *json, const char *key, size_t n,
                       double *out)
{
  const struct pen_json_node *array;
  test_ok(pen_json_get_array(json, pen_json_root(json), key, &array));
  assert_int_equal(pen_json_size(array), n);
  for (size_t i = 0; i < n; i++)
    test_ok(pen_json_as_double(json, pen_json_item(array, i), &out[i]));
}

static void read_golden(struct golden *g)
{
  struct pen_json *json;
  double ids[N_IDS];
  test_ok(pen_json_load(test_shared("models/stories260K-hf/golden.json"),
                        &json));
  read_array(json, "greedy_ids_200", N_IDS, ids);
  for (size_t i = 0; i < N_IDS; i++)
    g->ids[i] = (uint32_t)ids[i];
  read_array(json, "logits_pos0_first16", N_LOGITS, g->logits_0);
  read_array(json, "logits_pos7_first16", N_LOGITS, g->logits_7);
  test_ok(pen_json_get_double(json, pen_json_root(json), "loss_first_128",
                              &g->loss));
  pen_json_free(&json);
}

static void open_stories(struct driver *d)
{
  char path[4096];
  struct driver_options o = {
      .elem = PEN_ELEM_F32, .gemm = "reference", .n_threads = 2,
      .head_rows = 512, .max_tokens = N_IDS, .max_micros = 1,
      .logits = PEN_LOGITS_ALL};
  snprintf(path, sizeof path, "%s",
           test_shared("models/stories260K-hf/model.safetensors"));
  *strrchr(path, '/') = '\0';
  driver_open(d, path, &o);
}

/* Next-token targets over the first n ids. */
static double loss_of(struct driver *d, const struct golden *g, uint32_t n)
{
  int32_t targets[N_IDS];
  uint32_t doc_begin[2] = {0, n};
  for (size_t t = 0; t < n; t++)
    targets[t] = t + 1 < n ? (int32_t)g->ids[t + 1] : -1;
  driver_set(d, 0, 1, doc_begin, g->ids, targets);
  return driver_forward(d, 0);
}

static void test_loss(void **state)
{
  struct golden g;
  struct driver d;
  read_golden(&g);
  open_stories(&d);
  double loss = loss_of(&d, &g, 128) / 127;
  /* fp32 sums of 64 terms: a few 1e-7 per logit, of logits up to 20. */
  if (!(fabs(loss - g.loss) < 1e-5))
    fail_msg("loss %.9g, not %.9g", loss, g.loss);
  size_t vocab = d.params->config.vocab_size;
  for (size_t i = 0; i < N_LOGITS; i++)
    if (!(fabs((double)d.logits[i] - g.logits_0[i]) < 1e-4) ||
        !(fabs((double)d.logits[7 * vocab + i] - g.logits_7[i]) < 1e-4))
      fail_msg("logit %zu: %.9g and %.9g, not %.9g and %.9g", i,
               (double)d.logits[i], (double)d.logits[7 * vocab + i],
               g.logits_0[i], g.logits_7[i]);
  driver_close(&d);
}

/* Each token is the most likely after those before it; by induction these are
 * the ids that greedy decoding gives. */
static void test_greedy(void **state)
{
  struct golden g;
  struct driver d;
  read_golden(&g);
  open_stories(&d);
  loss_of(&d, &g, N_IDS);
  size_t vocab = d.params->config.vocab_size;
  for (size_t t = 0; t + 1 < N_IDS; t++) {
    const float *row = d.logits + t * vocab;
    size_t best = 0;
    for (size_t i = 1; i < vocab; i++)
      if (row[i] > row[best])
        best = i;
    if (best != g.ids[t + 1])
      fail_msg("token %zu is %zu, not %u", t + 1, best, g.ids[t + 1]);
  }
  driver_close(&d);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_loss),
      cmocka_unit_test(test_greedy),
  };
  return cmocka_run_group_tests_name("stories", tests, NULL, NULL);
}
