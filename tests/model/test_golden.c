/* Whole models against float64 (tests/fixtures): logits, losses and every
 * gradient, with unequal micro-batches accumulated.
 *
 * Tolerance in fp32: an element is a sum of products whose rounding errors are
 * about 2^-24 each of the largest partial sum; through some ten operations on
 * the way down and up, of sums of about 100 terms that add up like a random
 * walk, sqrt(100) * 10 * 2^-24 = 6e-6 of the tensor's largest element; 1e-5 is
 * asked for.  (transformers in float32 is within 1.5e-6 for logits.) */
#include <math.h>

#include "tests/model/golden.h"

#define TOLERANCE 1e-5

static double worst; /* of the present model, for the log */

static void assert_close(const char *model, const char *what, const float *got,
                         const float *want, size_t n, double scale,
                         double tolerance)
{
  for (size_t i = 0; i < n; i++) {
    double off = fabs((double)got[i] - (double)want[i]) / scale;
    worst = fmax(worst, off);
    if (!(off <= tolerance)) /* NaN fails */
      fail_msg("%s %s element %zu: %.9g, not %.9g; scale %g", model, what, i,
               (double)got[i], (double)want[i], scale);
  }
}

static double largest(const float *x, size_t n)
{
  double m = 0;
  for (size_t i = 0; i < n; i++)
    m = fmax(m, fabs((double)x[i]));
  return m;
}

static void check_gradients(const struct driver *d, const struct golden *g,
                            const char *model, double tolerance)
{
  static float want[1 << 16];
  const struct pen_params *p = d->params;
  for (size_t i = 0; i < p->n_tensors; i++) {
    char name[256];
    const struct pen_param_tensor *t = &p->tensors[i];
    snprintf(name, sizeof name, "grad.%s", t->name);
    size_t n = golden_read(g, name, want, sizeof want);
    if (!n)
      fail_msg("%s: no %s", model, name);
    double scale = largest(want, n);
    for (size_t j = t->first_param; j < t->first_param + t->n_params; j++) {
      const struct pen_param *piece = &p->params[j];
      assert_close(model, name, d->grads[piece->block] + piece->offset,
                   want + piece->row_begin * piece->cols,
                   piece->rows * piece->cols, scale, tolerance);
    }
  }
}

static void check_model(const char *name, const struct driver_options *o,
                        double tolerance)
{
  static float want[GOLDEN_TOKENS_MAX * 512];
  struct driver d;
  struct golden g;
  double want_loss, loss = 0;
  worst = 0;
  golden_open(&g, name);
  driver_open(&d, golden_path(name), o);
  size_t vocab = d.params->config.vocab_size;
  assert_int_equal(golden_read(&g, "logits", want, sizeof want),
                   g.n_tokens * vocab);
  assert_int_equal(golden_read(&g, "loss_sum", &want_loss, sizeof want_loss),
                   1);
  double scale = largest(want, g.n_tokens * vocab);
  for (size_t micro = 0; micro < g.n_micros; micro++) {
    size_t token = golden_set(&d, &g, micro);
    loss += driver_train(&d, micro);
    assert_close(name, "logits", d.logits, want + token * vocab,
                 pen_model_logit_rows(d.model, micro) * vocab, scale,
                 tolerance);
  }
  if (!(fabs(loss - want_loss) <= tolerance * want_loss))
    fail_msg("%s: loss %.9g, not %.9g", name, loss, want_loss);
  check_gradients(&d, &g, name, tolerance);
  printf("# %s %s %s: within %.2g of the scale\n", name,
         pen_elem_name(o->elem), o->gemm, worst);
  driver_close(&d);
  golden_close(&g);
}

static void test_fp32(void **state)
{
  struct driver_options o = golden_options(PEN_ELEM_F32);
  for (size_t i = 0; golden_models[i]; i++)
    check_model(golden_models[i], &o, TOLERANCE);
}

static void test_fp32_libraries(void **state)
{
  static const char *const libraries[] = {"openblas", "onednn"};
  for (size_t l = 0; l < 2; l++) {
    struct driver_options o = golden_options(PEN_ELEM_F32);
    const struct pen_gemm_library *library;
    o.gemm = libraries[l];
    if (TEST_SANITIZED ||
        pen_gemm_find(o.gemm, o.elem, &library)) {
      printf("# without %s: %s\n", o.gemm, pen_error_text());
      pen_error_clear();
      continue;
    }
    for (size_t i = 0; golden_models[i]; i++)
      check_model(golden_models[i], &o, TOLERANCE);
  }
}

/* bf16 keeps 8 bits, so each of some ten roundings per layer, and that of every
 * weight, is off by up to 2^-8 of it; on these random models, whose logits span
 * 30, two layers of that move an element by up to 0.066 of its tensor's largest
 * in PyTorch's bf16.  Twice that, for another order of roundings.  An expert's
 * gradients are sums over the few tokens that go to it, whose errors average out
 * less: by up to 0.106 there. */
#define TOLERANCE_BF16 0.13
#define TOLERANCE_BF16_EXPERTS 0.21

static void test_bf16(void **state)
{
  struct driver_options o = golden_options(PEN_ELEM_BF16);
  for (size_t i = 0; golden_models[i]; i++) {
    bool experts = strstr(golden_models[i], "mixtral") ||
                   strstr(golden_models[i], "moe");
    check_model(golden_models[i], &o,
                experts ? TOLERANCE_BF16_EXPERTS : TOLERANCE_BF16);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fp32),
      cmocka_unit_test(test_fp32_libraries),
      cmocka_unit_test(test_bf16),
  };
  return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
