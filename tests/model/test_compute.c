/* struct pen_compute where fixtures do not reach: padded vocabulary rows,
 * documents that must not see each other, rows of logits, what is refused, and
 * the bytes a model takes. */
#include <errno.h>
#include <malloc.h>
#include <math.h>

#include "src/model/compute.h"
#include "tests/model/driver.h"

enum { VOCAB = 101, PADDED = 128, MAX_TOKENS = 80, LONG = 70 };

static struct driver_options options_of(enum pen_elem elem, size_t rows)
{
  struct driver_options o = {
      .elem = elem, .gemm = "reference", .n_threads = 2, .head_rows = 64,
      .max_tokens = MAX_TOKENS, .max_micros = 2, .logits = PEN_LOGITS_ALL,
      .random_rows = rows};
  return o;
}

static void open_llama(struct driver *d, const struct driver_options *o)
{
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/fixtures/models/llama", test_root());
  driver_open(d, path, o);
  assert_int_equal(d->params->config.vocab_size, VOCAB);
}

/* Two documents: 5 tokens from `seed`, then the same LONG - 5. */
static void set_two(struct driver *d, uint32_t seed)
{
  uint32_t ids[LONG], doc_begin[] = {0, 5, LONG};
  int32_t targets[LONG];
  for (uint32_t t = 0; t < LONG; t++) {
    ids[t] = (t < 5 ? t * 7 + seed : t * 13) % VOCAB;
    targets[t] = t % 6 == 5 ? -1 : (int32_t)(t * 31 % VOCAB);
  }
  driver_set(d, 0, 2, doc_begin, ids, targets);
}

/* F14: rows past the vocabulary get no probability and no gradient. */
static void test_padded_rows(void **state)
{
  for (int elem = PEN_ELEM_BF16; elem <= PEN_ELEM_F32; elem++) {
    struct driver d;
    struct driver_options o = options_of(elem, PADDED);
    open_llama(&d, &o);
    set_two(&d, 3);
    double loss = driver_train(&d, 0);
    assert_true(isfinite(loss));
    size_t last = d.workload->head_end - 1, dim = d.params->config.hidden_size;
    const struct pen_param_block *info = &d.params->infos[last];
    assert_int_equal(info->rows_valid, VOCAB - 64);
    assert_int_equal(info->rows, PADDED - 64);
    const float *grad = d.grads[last];
    for (size_t i = 0; i < info->rows * dim; i++)
      if (i < info->rows_valid * dim)
        assert_true(isfinite(grad[i]));
      else
        assert_true(grad[i] == 0);
    assert_true(grad[(info->rows_valid - 1) * dim] != 0);
    size_t e = pen_elem_bytes(elem); /* the padded weights are never read */
    memset((char *)d.weights[last] + info->rows_valid * dim * e, 0xff,
           (info->rows - info->rows_valid) * dim * e);
    double again = driver_forward(&d, 0);
    assert_memory_equal(&again, &loss, sizeof loss);
    driver_close(&d);
  }
}

/* G3: what is packed beside a document changes no bit of its logits. */
static void test_documents_apart(void **state)
{
  struct driver d;
  struct driver_options o = options_of(PEN_ELEM_F32, VOCAB);
  open_llama(&d, &o);
  size_t n = LONG * VOCAB;
  float *first = malloc(n * sizeof *first);
  set_two(&d, 3);
  driver_forward(&d, 0);
  memcpy(first, d.logits, n * sizeof *first);
  set_two(&d, 44);
  driver_forward(&d, 0);
  assert_memory_not_equal(first, d.logits, 5 * VOCAB * sizeof *first);
  assert_memory_equal(first + 5 * VOCAB, d.logits + 5 * VOCAB,
                      (LONG - 5) * VOCAB * sizeof *first);
  free(first);
  driver_close(&d);
}

static void test_last_logits(void **state)
{
  struct driver all, last;
  struct driver_options o = options_of(PEN_ELEM_BF16, VOCAB);
  open_llama(&all, &o);
  o.logits = PEN_LOGITS_LAST;
  open_llama(&last, &o);
  set_two(&all, 3);
  set_two(&last, 3);
  driver_forward(&all, 0);
  driver_forward(&last, 0);
  assert_int_equal(pen_model_logit_rows(all.model, 0), LONG);
  assert_int_equal(pen_model_logit_rows(last.model, 0), 2);
  for (size_t i = 0; i < VOCAB; i++) {
    assert_true(last.logits[i] == all.logits[4 * VOCAB + i]);
    assert_true(last.logits[VOCAB + i] == all.logits[(LONG - 1) * VOCAB + i]);
  }
  driver_close(&all);
  driver_close(&last);
}

/* What is not finite is counted, in stored values. */
static void test_finish(void **state)
{
  struct driver d;
  struct driver_options o = options_of(PEN_ELEM_BF16, VOCAB);
  open_llama(&d, &o);
  size_t block = d.workload->body_begin;
  size_t n = d.workload->blocks[block].elems;
  size_t chunks = (n + PEN_NORM_CHUNK_ELEMS - 1) / PEN_NORM_CHUNK_ELEMS;
  float *grad = calloc(n, sizeof *grad);
  uint16_t *stored = malloc(n * 2);
  double *sums = malloc(chunks * sizeof *sums);
  uint64_t bad = 7;
  struct pen_finish_result result = {sums, &bad};
  for (size_t i = 0; i < n; i++)
    grad[i] = (float)i + 0.5f;
  grad[n - 1] = NAN;
  grad[3] = INFINITY;
  test_ok(d.compute->finish(d.compute->ctx, block, grad, stored, &result));
  assert_int_equal(bad, 2);
  assert_int_equal(stored[1], 0x3fc0); /* 1.5 */
  free(grad);
  free(stored);
  free(sums);
  driver_close(&d);
}

/* A block of embedding and head: what keep_rows and finish_rows store is the
 * whole sum of both, rounded once, with its norm; and without a head's part the
 * rows alone. */
static void rows_are_added(bool has_head)
{
  struct driver d;
  struct driver_options o = options_of(PEN_ELEM_BF16, VOCAB);
  open_llama(&d, &o);
  const struct pen_compute *c = d.compute;
  const struct pen_compute_rows *rows = &d.model->rows;
  set_two(&d, 3);
  size_t dim = d.model->params->config.hidden_size, taken = 0;
  float *sums = malloc(d.workload->rows_bytes);
  float *kept = malloc(d.workload->rows_bytes);
  for (size_t i = 0; i < rows->n * dim; i++)
    sums[i] = ldexpf((float)(i % 251) - 100, -12);
  for (size_t b = d.workload->rows_begin; b < d.workload->rows_end; b++) {
    const struct pen_param_block *info = &d.model->params->infos[b];
    size_t n = d.workload->blocks[b].elems;
    float *grad = malloc(n * sizeof *grad);
    uint16_t *got = malloc(n * 2), *want = malloc(n * 2);
    double sum, want_sum;
    uint64_t bad = 7, want_bad = 9;
    assert_true(n <= PEN_NORM_CHUNK_ELEMS);
    for (size_t k = 0; k < n; k++)
      grad[k] = has_head ? ldexpf((float)(k % 127) - 60, -5) : 0;
    if (has_head)
      test_ok(c->keep_rows(c->ctx, b, grad, got, kept));
    test_ok(c->finish_rows(c->ctx, b, sums, has_head ? kept : NULL, got,
                           &(struct pen_finish_result){&sum, &bad}));
    for (size_t i = 0; i < rows->n; i++)
      if (rows->ids[i] - info->row_begin < info->rows)
        for (size_t k = 0; k < dim; k++, taken++)
          grad[(rows->ids[i] - info->row_begin) * dim + k] += sums[i * dim + k];
    test_ok(c->finish(c->ctx, b, grad, want,
                      &(struct pen_finish_result){&want_sum, &want_bad}));
    assert_memory_equal(got, want, n * 2);
    assert_true(sum == want_sum && sum > 0);
    assert_true(bad == 0 && want_bad == 0);
    free(grad);
    free(got);
    free(want);
  }
  assert_int_equal(taken, rows->n * dim);
  free(sums);
  free(kept);
  driver_close(&d);
}

static void test_rows(void **state)
{
  rows_are_added(true);
  rows_are_added(false);
}

static void test_batches_refused(void **state)
{
  struct driver d;
  struct driver_options o = options_of(PEN_ELEM_F32, VOCAB);
  uint32_t ids[MAX_TOKENS + 1] = {0}, positions[MAX_TOKENS + 1] = {0};
  int32_t targets[MAX_TOKENS + 1] = {0};
  uint32_t begin[] = {0, 3, 8}, short_begin[] = {0, 3, 7};
  uint32_t empty_begin[] = {0, 0, 8};
  struct pen_model_micro m = {8, ids, positions, targets, 2, begin, false};
  open_llama(&d, &o);
  test_ok(pen_model_set_micro(d.model, 1, &m, PEN_LOGITS_NONE));
  test_fails(pen_model_set_micro(d.model, 2, &m, PEN_LOGITS_NONE),
             PEN_EMISMATCH, "at most 2");
  m.doc_begin = short_begin;
  test_fails(pen_model_set_micro(d.model, 0, &m, PEN_LOGITS_NONE),
             PEN_EMISMATCH, "tile");
  m.doc_begin = empty_begin;
  test_fails(pen_model_set_micro(d.model, 0, &m, PEN_LOGITS_NONE),
             PEN_EMISMATCH, "tile");
  m.doc_begin = begin;
  ids[6] = VOCAB;
  test_fails(pen_model_set_micro(d.model, 0, &m, PEN_LOGITS_NONE),
             PEN_EMISMATCH, "token 6 has id 101");
  ids[6] = 0;
  targets[2] = VOCAB;
  test_fails(pen_model_set_micro(d.model, 0, &m, PEN_LOGITS_NONE),
             PEN_EMISMATCH, "target 101");
  targets[2] = -1;
  positions[1] = MAX_TOKENS;
  test_fails(pen_model_set_micro(d.model, 0, &m, PEN_LOGITS_NONE),
             PEN_EMISMATCH, "position 80");
  positions[1] = 0;
  m.n_tokens = MAX_TOKENS + 1;
  test_fails(pen_model_set_micro(d.model, 0, &m, PEN_LOGITS_NONE),
             PEN_EMISMATCH, "81 tokens");
  driver_close(&d);
}

/* The plan's number is what is allocated, to a few malloc headers. */
static void test_host_bytes(void **state)
{
  if (TEST_SANITIZED)
    test_skip("sanitizers bring an allocator of their own");
  struct driver d;
  struct driver_options o = options_of(PEN_ELEM_F32, VOCAB);
  open_llama(&d, &o);
  struct pen_model_options m = {
      .elem = PEN_ELEM_F32, .gemm = "reference", .isa = pen_isa_detect(),
      .max_tokens = 3000, .max_micros = 5, .max_logit_rows = 7};
  struct pen_model *model;
  size_t planned;
  test_ok(pen_model_host_bytes(d.params, &m, 2, &planned));
  struct mallinfo2 before = mallinfo2();
  test_ok(pen_model_create(d.params, &m, d.pool, d.update_pool, &model));
  struct mallinfo2 after = mallinfo2();
  size_t got = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
  /* What malloc keeps at hand for small sizes counts as in use before, too. */
  if (got > planned + 8192 || got + 8192 < planned)
    fail_msg("%zu bytes allocated, %zu planned", got, planned);
  pen_model_free(&model);
  m.max_tokens = SIZE_MAX / 4;
  test_fails(pen_model_host_bytes(d.params, &m, 2, &planned), EOVERFLOW,
             "cannot count");
  driver_close(&d);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_padded_rows),
      cmocka_unit_test(test_documents_apart),
      cmocka_unit_test(test_last_logits),
      cmocka_unit_test(test_finish),
      cmocka_unit_test(test_rows),
      cmocka_unit_test(test_batches_refused),
      cmocka_unit_test(test_host_bytes),
  };
  return cmocka_run_group_tests_name("compute", tests, NULL, NULL);
}
