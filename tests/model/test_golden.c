/* Whole models against float64 (tests/fixtures): logits, losses and every
 * gradient, with unequal micro-batches accumulated; and what must not change a
 * bit: recompute, threads.
 *
 * Tolerance in fp32: an element is a sum of products whose rounding errors are
 * about 2^-24 each of the largest partial sum; through some ten operations on
 * the way down and up, of sums of about 100 terms that add up like a random
 * walk, sqrt(100) * 10 * 2^-24 = 6e-6 of the tensor's largest element; 1e-5 is
 * asked for.  (transformers in float32 is within 1.5e-6 for logits.) */
#include <math.h>

#include "io/safetensors.h"
#include "tests/model/driver.h"

#define TOLERANCE 1e-5

static const char *const models[] = {
    "llama",          "llama-tied",       "llama-rope-linear",
    "llama-rope-yarn", "llama-rope-llama3", "llama-head-dim",
    "llama-bias",     "mistral",          "qwen2",
    "qwen3"};
#define N_MODELS (sizeof models / sizeof models[0])

#define TOKENS_MAX 64
#define MICROS_MAX 8

struct golden {
  struct pen_safetensors *file;
  size_t n_tokens, n_micros;
  uint32_t ids[TOKENS_MAX], doc_begin[TOKENS_MAX], micro_begin[MICROS_MAX];
  int32_t targets[TOKENS_MAX];
};

/* Reads all of a tensor; returns its elements, 0 when there is none. */
static size_t read_tensor(const struct golden *g, const char *name, void *out,
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

static const char *model_path(const char *name)
{
  static char path[4096];
  snprintf(path, sizeof path, "%s/tests/fixtures/models/%s", test_root(), name);
  return path;
}

static void golden_open(struct golden *g, const char *name)
{
  char path[4200];
  snprintf(path, sizeof path, "%s/golden.safetensors", model_path(name));
  test_ok(pen_safetensors_open(path, false, &g->file));
  g->n_tokens = read_tensor(g, "ids", g->ids, sizeof g->ids);
  assert_int_equal(read_tensor(g, "targets", g->targets, sizeof g->targets),
                   g->n_tokens);
  assert_true(read_tensor(g, "doc_begin", g->doc_begin, sizeof g->doc_begin));
  g->n_micros =
      read_tensor(g, "micro_begin", g->micro_begin, sizeof g->micro_begin) - 1;
  assert_true(g->n_micros > 1);
}

static struct driver_options standard_options(enum pen_elem elem)
{
  struct driver_options o = {
      .elem = elem, .gemm = "reference", .n_threads = 1, .head_rows = 64,
      .max_tokens = TOKENS_MAX, .max_micros = MICROS_MAX,
      .logits = PEN_LOGITS_ALL};
  return o;
}

/* The micro-batch's documents, counted from its own first token. */
static size_t set_micro(struct driver *d, const struct golden *g, size_t micro)
{
  uint32_t begin[TOKENS_MAX];
  size_t first = g->micro_begin[micro], n = g->micro_begin[micro + 1] - first;
  size_t token = g->doc_begin[first];
  for (size_t i = 0; i <= n; i++)
    begin[i] = g->doc_begin[first + i] - (uint32_t)token;
  driver_set(d, micro, n, begin, g->ids + token, g->targets + token);
  return token;
}

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
    size_t n = read_tensor(g, name, want, sizeof want);
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
  static float want[TOKENS_MAX * 512];
  struct driver d;
  struct golden g;
  double want_loss, loss = 0;
  worst = 0;
  golden_open(&g, name);
  driver_open(&d, model_path(name), o);
  size_t vocab = d.params->config.vocab_size;
  assert_int_equal(read_tensor(&g, "logits", want, sizeof want),
                   g.n_tokens * vocab);
  assert_int_equal(read_tensor(&g, "loss_sum", &want_loss, sizeof want_loss),
                   1);
  double scale = largest(want, g.n_tokens * vocab);
  for (size_t micro = 0; micro < g.n_micros; micro++) {
    size_t token = set_micro(&d, &g, micro);
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
  pen_safetensors_close(&g.file);
}

static void test_fp32(void **state)
{
  struct driver_options o = standard_options(PEN_ELEM_F32);
  for (size_t i = 0; i < N_MODELS; i++)
    check_model(models[i], &o, TOLERANCE);
}

static void test_fp32_libraries(void **state)
{
  static const char *const libraries[] = {"openblas", "onednn"};
  for (size_t l = 0; l < 2; l++) {
    struct driver_options o = standard_options(PEN_ELEM_F32);
    const struct pen_gemm_library *library;
    o.gemm = libraries[l];
    if (TEST_SANITIZED ||
        pen_gemm_find(o.gemm, o.elem, &library)) {
      printf("# without %s: %s\n", o.gemm, pen_error_text());
      pen_error_clear();
      continue;
    }
    for (size_t i = 0; i < N_MODELS; i++)
      check_model(models[i], &o, TOLERANCE);
  }
}

/* bf16 keeps 8 bits, so each of some ten roundings per layer, and that of every
 * weight, is off by up to 2^-8 of it; on these random models, whose logits span
 * 30, two layers of that move an element by up to 0.066 of its tensor's largest
 * in PyTorch's bf16.  Twice that, for another order of roundings. */
#define TOLERANCE_BF16 0.13

static void test_bf16(void **state)
{
  struct driver_options o = standard_options(PEN_ELEM_BF16);
  for (size_t i = 0; i < N_MODELS; i++)
    check_model(models[i], &o, TOLERANCE_BF16);
}

/* All losses and gradients of one way to run. */
struct outcome {
  double loss[MICROS_MAX];
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
  driver_open(&d, model_path(name), o);
  for (size_t micro = 0; micro < g.n_micros; micro++) {
    set_micro(&d, &g, micro);
    out->loss[micro] = driver_train(&d, micro);
  }
  for (size_t b = 0; b < d.workload->n_blocks; b++) {
    size_t n = d.workload->blocks[b].elems;
    out->grads = realloc(out->grads, (out->n + n) * sizeof(float));
    memcpy(out->grads + out->n, d.grads[b], n * sizeof(float));
    out->n += n;
  }
  driver_close(&d);
  pen_safetensors_close(&g.file);
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

static void test_recompute(void **state)
{
  for (size_t i = 0; i < 2 * N_MODELS; i++) {
    struct outcome kept, again;
    struct driver_options o = standard_options(
        i < N_MODELS ? PEN_ELEM_F32 : PEN_ELEM_BF16);
    run(models[i % N_MODELS], &o, &kept);
    o.recompute = true;
    run(models[i % N_MODELS], &o, &again);
    assert_same(models[i % N_MODELS], &kept, &again);
  }
}

static void test_threads(void **state)
{
  for (size_t i = 0; i < 2 * N_MODELS; i++) {
    struct outcome one, three;
    struct driver_options o = standard_options(
        i < N_MODELS ? PEN_ELEM_F32 : PEN_ELEM_BF16);
    o.gemm = TEST_SANITIZED ? "reference" : "auto";
    run(models[i % N_MODELS], &o, &one);
    o.n_threads = 3;
    run(models[i % N_MODELS], &o, &three);
    assert_same(models[i % N_MODELS], &one, &three);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fp32),      cmocka_unit_test(test_fp32_libraries),
      cmocka_unit_test(test_bf16),      cmocka_unit_test(test_recompute),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
