/* AdamW, on compact state too, and the finishing of gradients have the host's
 * bits, on zeros, denormals, ties, infinities and NaNs too; so have rounding
 * and activations.  The loss is near the host's, and norms have the same bits
 * wherever their rows lie. */
#include <math.h>

#include "base/rng.h"
#include "kernels/bf16.h"
#include "kernels/cuda/launch.h"
#include "kernels/gradient.h"
#include "tests/gpu/table.h"
#include "tests/test.h"

static uint64_t seed;

static const uint32_t specials[] = {
    0x00000000, 0x80000000, /* zeros */
    0x00000001, 0x807fffff, 0x00400000, /* denormals */
    0x00800000, 0x7f7fffff, 0xff7fffff, /* the ends of the normal numbers */
    0x7f800000, 0xff800000, 0x7fc00000, 0xffa00001, /* infinities, NaNs */
    0x3f808000, 0x3f818000, 0xbf808000, 0x3f807fff, 0x3f808001, /* ties */
};

/* n numbers: moderate ones, and every fifth (where wild) a special one. */
static float *numbers(size_t n, uint64_t stream, bool wild)
{
  float *x = aligned_alloc(64, (n * sizeof *x + 127) / 64 * 64);
  assert_non_null(x);
  for (size_t i = 0; i < n; i++) {
    uint32_t pick = pen_rng_u32(seed, stream + 1000, i);
    x[i] = (float)(4 * pen_rng_double(seed, stream, i) - 2);
    if (wild && pick % 5 == 0)
      x[i] = pen_f32_from_bits(
          specials[pick / 5 % (sizeof specials / sizeof specials[0])]);
  }
  return x;
}

static uint16_t *halves(size_t n, uint64_t stream, bool wild)
{
  float *x = numbers(n, stream, wild);
  for (size_t i = 0; i < n; i++)
    ((uint16_t *)x)[i] = pen_bf16_from_f32(x[i]);
  return (uint16_t *)x;
}

static void *copy_of(const void *x, size_t bytes)
{
  void *copy = aligned_alloc(64, (bytes + 127) / 64 * 64);
  assert_non_null(copy);
  return memcpy(copy, x, bytes);
}

/* ---- AdamW ---- */

struct adamw_case {
  enum pen_elem grad, weight;
  bool decays, wild;
  size_t n, offset; /* offset: elements from an aligned address */
};

static void host_adamw(const struct adamw_case *c,
                       const struct pen_adamw_params *params, float *p,
                       float *m, float *v, const void *grad, void *weight)
{
  enum pen_isa isa = PEN_ISA_SCALAR;
  if (c->weight == PEN_ELEM_F32)
    pen_adamw_update_f32(isa, params, c->decays, c->n, p, m, v, grad, weight);
  else if (c->grad == PEN_ELEM_F32)
    pen_adamw_update_bf16_f32grad(isa, params, c->decays, c->n, p, m, v, grad,
                                  weight);
  else
    pen_adamw_update_bf16(isa, params, c->decays, c->n, p, m, v, grad, weight);
}

static void adamw_same(const struct adamw_case *c)
{
  struct pen_adamw_hyper hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95,
                                  .eps = 1e-8, .weight_decay = 0.1};
  struct pen_adamw_params params;
  test_ok(pen_adamw_params_init(&hyper, 3, 0.37f, &params));
  size_t all = c->n + c->offset, bytes = all * sizeof(float);
  float *x[5] = {numbers(all, 1, c->wild), numbers(all, 2, c->wild),
                 numbers(all, 3, false), NULL, numbers(all, 5, false)};
  for (size_t i = 0; i < all; i++)
    x[2][i] = fabsf(x[2][i]); /* second moments */
  x[3] = c->grad == PEN_ELEM_F32 ? numbers(all, 4, c->wild)
                                 : (float *)halves(all, 4, c->wild);
  float *y[5];
  for (size_t i = 0; i < 5; i++)
    y[i] = copy_of(x[i], bytes);
  size_t at = c->offset, grad_at = at * pen_elem_bytes(c->grad);
  size_t weight_at = at * pen_elem_bytes(c->weight);
  host_adamw(c, &params, x[0] + at, x[1] + at, x[2] + at,
             (char *)x[3] + grad_at, (char *)x[4] + weight_at);
  assert_int_equal(pen_cuda_adamw(NULL, &params, c->decays, c->n, y[0] + at,
                                  y[1] + at, y[2] + at, c->grad,
                                  (char *)y[3] + grad_at, c->weight,
                                  (char *)y[4] + weight_at),
                   0);
  for (size_t i = 0; i < 5; i++) {
    assert_memory_equal(x[i], y[i], bytes);
    free(x[i]);
    free(y[i]);
  }
}

static void each_adamw(void *ctx)
{
  static const size_t sizes[][2] = {{1, 0}, {4, 0}, {1027, 0}, {1027, 3}};
  for (size_t i = 0; i < 4; i++)
    for (unsigned k = 0; k < 12; k++) {
      struct adamw_case c = {.grad = k % 3 ? PEN_ELEM_F32 : PEN_ELEM_BF16,
                             .weight = k % 3 == 2 ? PEN_ELEM_F32
                                                  : PEN_ELEM_BF16,
                             .decays = k / 3 % 2, .wild = k / 6,
                             .n = sizes[i][0], .offset = sizes[i][1]};
      adamw_same(&c);
    }
}

static void test_adamw(void **state)
{
  table_each_order(each_adamw, NULL);
}

/* ---- compact state ---- */

/* A few steps of elements from `first` on, by the host and by the kernels. */
static void state_same(const struct pen_state_format *format, size_t n,
                       uint64_t first, bool decays, bool wild)
{
  struct pen_adamw_hyper hyper = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95,
                                  .eps = 1e-8, .weight_decay = 0.1};
  size_t bytes = pen_state_bytes(format, n), half_bytes = n * sizeof(uint16_t);
  float *p = numbers(n, 1, wild), *m = numbers(n, 2, wild);
  float *v = numbers(n, 3, wild);
  for (size_t i = 0; i < n; i++)
    v[i] = fabsf(v[i]);
  void *want = aligned_alloc(64, (bytes + 127) / 64 * 64);
  uint16_t *half = aligned_alloc(64, half_bytes);
  struct pen_state_part part = {want, n, 0, n};
  pen_state_pack(format, PEN_ISA_SCALAR, &part, half, p, m, v);
  void *got = copy_of(want, bytes), *got_half = copy_of(half, half_bytes);
  uint16_t *weight = aligned_alloc(64, half_bytes);
  for (uint64_t step = 1; step <= 3; step++) {
    struct pen_adamw_params params;
    void *arrays[PEN_STATE_ARRAYS_MAX];
    uint16_t *grad = halves(n, 10 + step, wild);
    test_ok(pen_adamw_params_init(&hyper, step, 0.37f, &params));
    struct pen_state_update u = {
        .isa = PEN_ISA_SCALAR, .params = &params, .part = part,
        .decay_end = decays ? n : 0, .key = pen_rng_u64(seed, step, 4),
        .first = first, .elem = PEN_ELEM_BF16, .grad = grad, .weight = half};
    pen_state_update(format, &u);
    u.part.arrays = got;
    u.weight = got_half;
    pen_state_find_arrays(format, &u.part, arrays);
    assert_int_equal(pen_cuda_state_update(NULL, format->kind, &u, arrays,
                                           weight), 0);
    assert_memory_equal(got, want, bytes);
    assert_memory_equal(got_half, half, half_bytes);
    assert_memory_equal(weight, half, half_bytes);
    free(grad);
  }
  void *all[] = {p, m, v, want, half, got, got_half, weight};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    free(all[i]);
}

static void each_state(void *ctx)
{
  static const struct pen_state_format *const formats[] = {
      &pen_state_split32, &pen_state_bf16, &pen_state_int8};
  for (size_t i = 0; i < 3; i++)
    for (unsigned k = 0; k < 4; k++) {
      state_same(formats[i], 64, 0, k % 2, k / 2);
      state_same(formats[i], 64 * 19, ((uint64_t)1 << 32) - 128, k % 2, k / 2);
    }
}

static void test_state(void **state)
{
  table_each_order(each_state, NULL);
}

/* ---- finishing gradients ---- */

static void finish_same(enum pen_elem elem, size_t n, size_t chunk, bool again)
{
  float *grad = numbers(n, 1, true);
  size_t chunks = (n + chunk - 1) / chunk, bytes = n * pen_elem_bytes(elem);
  double *sums = malloc(chunks * sizeof *sums);
  double *want = malloc(chunks * sizeof *want);
  void *stored = malloc(bytes), *want_stored = malloc(bytes);
  uint64_t bad = 77, want_bad;
  if (elem == PEN_ELEM_BF16)
    want_bad = pen_gradient_finish_bf16(PEN_ISA_SCALAR, n, chunk, grad,
                                        want_stored, want);
  else
    want_bad = pen_gradient_finish_f32(PEN_ISA_SCALAR, n, chunk, grad,
                                       want_stored, want);
  if (again)
    memcpy(stored, want_stored, bytes);
  table_of(elem)->gradient_finish(NULL, n, chunk, again ? NULL : grad, stored,
                                  sums, &bad);
  assert_int_equal(bad, want_bad);
  assert_memory_equal(stored, want_stored, bytes);
  assert_memory_equal(sums, want, chunks * sizeof *sums);
  free(grad);
  free(sums);
  free(want);
  free(stored);
  free(want_stored);
}

static void each_finish(void *ctx)
{
  static const size_t sizes[][2] = {{1, 65536}, {17, 16}, {4097, 4096},
                                    {5000, 1600}, {70000, 65536}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    for (unsigned k = 0; k < 4; k++)
      finish_same(k % 2 ? PEN_ELEM_F32 : PEN_ELEM_BF16, sizes[i][0],
                  sizes[i][1], k / 2);
}

static void test_finish(void **state)
{
  table_each_order(each_finish, NULL);
}

/* ---- special numbers through elementwise kernels ---- */

static void same_or_nan(enum pen_elem elem, size_t n, const void *a,
                        const void *b)
{
  for (size_t i = 0; i < n; i++) {
    bool bf16 = elem == PEN_ELEM_BF16;
    float x = bf16 ? pen_bf16_to_f32(((const uint16_t *)a)[i])
                   : ((const float *)a)[i];
    float y = bf16 ? pen_bf16_to_f32(((const uint16_t *)b)[i])
                   : ((const float *)b)[i];
    if (pen_f32_bits(x) != pen_f32_bits(y) && !(isnan(x) && isnan(y)))
      fail_msg("element %zu: %a is not %a", i, (double)y, (double)x);
  }
}

static void each_special(void *ctx)
{
  enum { N = 1000 };
  struct pen_pool *pool;
  test_ok(pen_pool_create(1, "flat", &pool));
  struct pen_stream s = {.pool = pool, .isa = PEN_ISA_SCALAR};
  for (unsigned k = 0; k < 2; k++) {
    enum pen_elem elem = k ? PEN_ELEM_F32 : PEN_ELEM_BF16;
    const struct pen_ops *host = pen_ops_host(PEN_ISA_SCALAR, elem);
    const struct pen_ops *ops = table_of(elem);
    float *x = numbers(N, 1, true), want[N], got[N];
    void *a = k ? (void *)numbers(N, 2, true) : (void *)halves(N, 2, true);
    void *b = k ? (void *)numbers(N, 3, false) : (void *)halves(N, 3, false);
    host->from_f32(&s, N, x, want);
    ops->from_f32(NULL, N, x, got);
    same_or_nan(elem, N, want, got);
    host->add(&s, N, a, b, want);
    ops->add(NULL, N, a, b, got);
    same_or_nan(elem, N, want, got);
    for (int f = 0; f <= PEN_ACTIVATION_GELU; f++) {
      host->glu(&s, (enum pen_activation)f, 1, N, a, b, N, want);
      ops->glu(NULL, (enum pen_activation)f, 1, N, a, b, N, got);
      same_or_nan(elem, N, want, got);
    }
    free(x);
    free(a);
    free(b);
  }
  pen_pool_free(&pool);
}

static void test_specials(void **state)
{
  table_each_order(each_special, NULL);
}

/* ---- the loss ---- */

static void each_loss(void *ctx)
{
  static const size_t counts[] = {1, 255, 256, 1000};
  struct pen_stream s = {.isa = PEN_ISA_SCALAR};
  for (size_t i = 0; i < 4; i++) {
    size_t n = counts[i];
    float *stats = numbers(PEN_XENT_ROWS * n, 1, false);
    int32_t *targets = malloc(n * sizeof *targets);
    for (size_t t = 0; t < n; t++) {
      targets[t] = t % 3 == 1 ? -1 : 5;
      stats[PEN_XENT_SUM * n + t] = 1 + fabsf(stats[PEN_XENT_SUM * n + t]);
    }
    double want, got = NAN;
    pen_ops_host(PEN_ISA_SCALAR, PEN_ELEM_F32)
        ->xent_loss(&s, n, targets, stats, &want);
    table_of(PEN_ELEM_F32)->xent_loss(NULL, n, targets, stats, &got);
    /* n terms below 8, each off by an ulp of double, in another order. */
    assert_true(fabs(want - got) <= 8 * (double)(n * n) * 0x1p-53);
    free(stats);
    free(targets);
  }
}

static void test_loss(void **state)
{
  table_each_order(each_loss, NULL);
}

/* ---- norms, wherever their rows lie ---- */

enum { ROWS = 5 };

static void *at_offset(const void *x, size_t n, enum pen_elem elem,
                       size_t offset)
{
  size_t e = pen_elem_bytes(elem);
  char *memory = aligned_alloc(64, ((n + offset) * e + 63) / 64 * 64);
  assert_non_null(memory);
  memcpy(memory + offset * e, x, n * e);
  return memory;
}

static void norm_anywhere(enum pen_elem elem, size_t dim)
{
  size_t e = pen_elem_bytes(elem), n = ROWS * dim;
  struct pen_heads shape = {ROWS, 1, dim};
  void *x = elem == PEN_ELEM_F32 ? (void *)numbers(n, 1, false)
                                 : (void *)halves(n, 1, false);
  char *y[2];
  float rstd[2][ROWS];
  for (size_t offset = 0; offset < 2; offset++) {
    char *in = at_offset(x, n, elem, offset), *w = at_offset(x, dim, elem, 0);
    y[offset] = at_offset(x, n, elem, offset);
    table_of(elem)->rmsnorm(NULL, &shape, in + offset * e, dim, w, 0, 1e-5f,
                            y[offset] + offset * e, dim, rstd[offset]);
    free(in);
    free(w);
  }
  assert_memory_equal(rstd[0], rstd[1], sizeof rstd[0]);
  assert_memory_equal(y[0], y[1] + e, n * e);
  free(y[0]);
  free(y[1]);
  free(x);
}

static void each_norm(void *ctx)
{
  static const size_t dims[] = {8, 120, 512, 1024, 2056};
  for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
    norm_anywhere(PEN_ELEM_BF16, dims[i]);
    norm_anywhere(PEN_ELEM_F32, dims[i]);
  }
}

static void test_norm_anywhere(void **state)
{
  table_each_order(each_norm, NULL);
}

int main(void)
{
  seed = test_seed(20240601);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_adamw),
      cmocka_unit_test(test_state),
      cmocka_unit_test(test_finish),
      cmocka_unit_test(test_specials),
      cmocka_unit_test(test_loss),
      cmocka_unit_test(test_norm_anywhere),
  };
  return cmocka_run_group_tests_name("gpu flat", tests, NULL, NULL);
}
