/* What must not change a bit of a whole model's losses and gradients: recompute
 * and threads. */
#include "tests/model/golden.h"

/* All losses and gradients of one way to run. */
struct outcome {
  double loss[GOLDEN_MICROS_MAX];
  size_t n;
  float *grads;
};

static void run(const char *name, const struct driver_options *o,
                struct outcome *out)
{
  struct driver d;
  struct golden g;
  memset(out, 0, sizeof *out);
  golden_open(&g, name);
  driver_open(&d, golden_path(name), o);
  for (size_t micro = 0; micro < g.n_micros; micro++) {
    golden_set(&d, &g, micro);
    out->loss[micro] = driver_train(&d, micro);
  }
  for (size_t b = 0; b < d.workload->n_blocks; b++) {
    size_t n = d.workload->blocks[b].elems;
    out->grads = realloc(out->grads, (out->n + n) * sizeof(float));
    memcpy(out->grads + out->n, d.grads[b], n * sizeof(float));
    out->n += n;
  }
  driver_close(&d);
  golden_close(&g);
}

static void assert_same(const char *name, struct outcome *a, struct outcome *b)
{
  assert_int_equal(a->n, b->n);
  if (memcmp(a->loss, b->loss, sizeof a->loss) ||
      memcmp(a->grads, b->grads, a->n * sizeof(float)))
    fail_msg("%s: other bits", name);
  free(a->grads);
  free(b->grads);
}

static void each_model(void (*check)(const char *name, enum pen_elem elem))
{
  for (size_t i = 0; golden_models[i]; i++) {
    check(golden_models[i], PEN_ELEM_F32);
    check(golden_models[i], PEN_ELEM_BF16);
  }
}

static void check_recompute(const char *name, enum pen_elem elem)
{
  struct outcome kept, again;
  struct driver_options o = golden_options(elem);
  run(name, &o, &kept);
  o.recompute = true;
  run(name, &o, &again);
  assert_same(name, &kept, &again);
}

static void test_recompute(void **state)
{
  each_model(check_recompute);
}

static void check_threads(const char *name, enum pen_elem elem)
{
  struct outcome one, three;
  struct driver_options o = golden_options(elem);
  o.gemm = TEST_SANITIZED ? "reference" : "auto";
  run(name, &o, &one);
  o.n_threads = 3;
  run(name, &o, &three);
  assert_same(name, &one, &three);
}

static void test_threads(void **state)
{
  each_model(check_threads);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_recompute),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests_name("same bits", tests, NULL, NULL);
}
