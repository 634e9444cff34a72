/* D16: tokens times vocabulary just above 2^31 and above 2^32: loss and
 * gradients of the last token and the last id, against a closed form.
 *
 * x[t] = (1, 0, ...) and W[v] = (a_v, 0, ...), so every token's logits are a:
 * loss = ln sum e^a - a_target; dx[t][0] = sum p a - a_target; dW[v][0] = T p_v
 * - (times that v is a target). */
#include <math.h>

#include "kernels/ops.h"
#include "src/model/head.h"
#include "tests/test.h"

enum { DIM = 16 };

struct large {
  size_t tokens, vocab;
  float *x, *w, *dx, *grad, *stats;
  int32_t *targets;
};

static float a_of(size_t v)
{
  return (float)(v * 2654435761u % 1024) / 256; /* [0, 4), exact */
}

static void fill(struct large *l, size_t tokens, size_t vocab)
{
  *l = (struct large){tokens, vocab, calloc(tokens * DIM, sizeof(float)),
                      calloc(vocab * DIM, sizeof(float)),
                      malloc(tokens * DIM * sizeof(float)),
                      calloc(vocab * DIM, sizeof(float)),
                      malloc(tokens * PEN_XENT_ROWS * sizeof(float)),
                      malloc(tokens * sizeof(int32_t))};
  for (size_t t = 0; t < tokens; t++) {
    l->x[t * DIM] = 1;
    l->targets[t] = (int32_t)(vocab - 1 - t * 977 % vocab);
  }
  for (size_t v = 0; v < vocab; v++)
    l->w[v * DIM] = a_of(v);
}

static void assert_near(const char *what, double got, double want, double size)
{
  /* 17,000 equal terms, each sum rounded the same way: 17000 / 2^25 */
  if (!(fabs(got - want) <= 5.1e-4 * size))
    fail_msg("%s is %.9g, not %.9g", what, got, want);
}

static void check(const struct large *l, double loss)
{
  double sum = 0, mean = 0, want = 0;
  for (size_t v = 0; v < l->vocab; v++)
    sum += exp((double)a_of(v));
  for (size_t v = 0; v < l->vocab; v++)
    mean += exp((double)a_of(v)) / sum * (double)a_of(v);
  for (size_t t = 0; t < l->tokens; t++)
    want += log(sum) - (double)a_of((size_t)l->targets[t]);
  assert_near("loss", loss, want, want);
  for (size_t i = 0; i < 3; i++) {
    size_t t = i == 0 ? 0 : l->tokens - i, v = i == 0 ? 0 : l->vocab - i;
    double times = 0;
    for (size_t u = 0; u < l->tokens; u++)
      times += (size_t)l->targets[u] == v;
    assert_near("dx", (double)l->dx[t * DIM],
                mean - (double)a_of((size_t)l->targets[t]), 4);
    assert_near("dW", (double)l->grad[v * DIM],
                (double)l->tokens * exp((double)a_of(v)) / sum - times, 1);
  }
}

/* Both passes; saved: pen_head_saved_bytes, or NULL. */
static double run(struct large *l, float *saved)
{
  size_t tokens = l->tokens, vocab = l->vocab;
  struct pen_stream s = {.isa = pen_isa_detect(), .gemm = &pen_gemm_reference};
  const struct pen_ops *ops = pen_ops_host(s.isa, PEN_ELEM_F32);
  double loss;
  test_ok(pen_pool_create(2, "large", &s.pool));
  s.scratch = aligned_alloc(64, 2 * PEN_STREAM_SCRATCH_BYTES);
  size_t bytes = pen_head_work_bytes(PEN_ELEM_F32, DIM, tokens);
  struct pen_head_call c = {
      .ops = ops, .stream = &s, .hidden = DIM, .n_ids = vocab,
      .is_first = true, .tokens = tokens, .targets = l->targets, .w = l->w,
      .x = l->x, .work = aligned_alloc(64, bytes)};
  ops->xent_begin(&s, tokens, l->stats);
  pen_head_forward(&c, l->stats, saved);
  ops->xent_loss(&s, tokens, l->targets, l->stats, &loss);
  pen_head_backward(&c, l->stats, saved, l->dx, l->grad);
  test_ok(pen_stream_take_status(&s));
  pen_pool_free(&s.pool);
  free(s.scratch);
  free(c.work);
  return loss;
}

static void release(struct large *l)
{
  free(l->x);
  free(l->w);
  free(l->dx);
  free(l->grad);
  free(l->stats);
  free(l->targets);
}

static void run_and_check(size_t tokens, size_t vocab)
{
  struct large l;
  fill(&l, tokens, vocab);
  check(&l, run(&l, NULL));
  release(&l);
}

/* Several chunks each way, the last ones not full; every logit another one. */
static void test_kept_logits(void **state)
{
  enum { TOKENS = 2060, VOCAB = 4107 };
  float *saved = malloc(pen_head_saved_bytes(VOCAB, TOKENS));
  struct large kept, again;
  (void)state;
  fill(&kept, TOKENS, VOCAB);
  fill(&again, TOKENS, VOCAB);
  for (size_t t = 0; t < TOKENS; t++)
    kept.x[t * DIM + 1] = again.x[t * DIM + 1] = (float)t / TOKENS;
  for (size_t v = 0; v < VOCAB; v++)
    kept.w[v * DIM + 1] = again.w[v * DIM + 1] = (float)v / VOCAB;
  assert_true(run(&kept, saved) == run(&again, NULL));
  assert_memory_equal(kept.dx, again.dx, TOKENS * DIM * sizeof(float));
  assert_memory_equal(kept.grad, again.grad, VOCAB * DIM * sizeof(float));
  release(&kept);
  release(&again);
  free(saved);
}

static void test_above_2_31(void **state)
{
  assert_true((size_t)16400 * 131072 > (size_t)1 << 31);
  run_and_check(16400, 131072);
}

static void test_above_2_32(void **state)
{
  assert_true((size_t)17000 * 252700 > (size_t)1 << 32);
  run_and_check(17000, 252700);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_kept_logits),
      cmocka_unit_test(test_above_2_31),
      cmocka_unit_test(test_above_2_32),
  };
  return cmocka_run_group_tests_name("head large", tests, NULL, NULL);
}
