/* Operations of kernels/ops.h: every instruction set, precision and number of
 * threads gives plain C's bits.  bf16 results must be the fp32 results rounded
 * once, since all is computed in fp32 from the same (bf16-valued) inputs: no
 * tolerance is needed.  Where bf16 rounds between products, too, plain C's bf16
 * is held to fp32 within a bound, and other levels to plain C's bf16. */
#include <math.h>

#include "tests/check/level.h"
#include "tests/check/trial.h"

static uint64_t seed;
static enum pen_isa level;

static void compare(const struct trial_case *c, size_t variant,
                    enum pen_isa isa, enum pen_elem elem, size_t n_threads)
{
  struct trial reference, other;
  char what[128];
  snprintf(what, sizeof what, "%s variant %zu, %s %s, %zu threads", c->name,
           variant, pen_isa_name(isa), pen_elem_name(elem), n_threads);
  trial_begin(&reference, PEN_ISA_SCALAR,
              c->rounds_inside ? elem : PEN_ELEM_F32, &pen_gemm_reference, 1,
              seed + variant);
  trial_begin(&other, isa, elem, &pen_gemm_reference, n_threads,
              seed + variant);
  c->run(&reference, variant);
  c->run(&other, variant);
  trial_assert_same(&reference, &other, what);
  trial_end(&reference);
  trial_end(&other);
}

/* PEN_TEST_QUICK: two shapes of each, for emulated CPUs. */
static void each(enum pen_isa isa, enum pen_elem elem, size_t n_threads)
{
  size_t most = getenv("PEN_TEST_QUICK") ? 2 : SIZE_MAX;
  for (const struct trial_case *c = trial_cases; c->name; c++)
    for (size_t variant = 0; variant < c->n_variants && variant < most;
         variant++)
      compare(c, variant, isa, elem, n_threads);
}

static void test_fp32(void **state)
{
  each(level, PEN_ELEM_F32, 1);
}

static void test_bf16(void **state)
{
  each(level, PEN_ELEM_BF16, 1);
}

/* Terms of a sum are off by 2^-9 of themselves, and so is the result when it
 * is stored.  The operands are random, and the magnitudes of a sum's terms add
 * up to no more than a few times the array's greatest element. */
#define ROUNDED_WITHIN 0x1p-7f

static void compare_rounded(const struct trial_case *c, size_t variant)
{
  struct trial exact, rounded;
  trial_begin(&exact, PEN_ISA_SCALAR, PEN_ELEM_F32, &pen_gemm_reference, 1,
              seed + variant);
  trial_begin(&rounded, PEN_ISA_SCALAR, PEN_ELEM_BF16, &pen_gemm_reference, 1,
              seed + variant);
  c->run(&exact, variant);
  c->run(&rounded, variant);
  for (size_t i = 0; i < exact.n_arrays; i++) {
    float most = 0;
    for (size_t j = 0; exact.arrays[i].is_result && j < exact.arrays[i].n; j++)
      most = fmaxf(most, fabsf(trial_result(&exact, i, j)));
    for (size_t j = 0; exact.arrays[i].is_result && j < exact.arrays[i].n; j++) {
      float x = trial_result(&exact, i, j), y = trial_result(&rounded, i, j);
      if (isnan(x) && isnan(y)) /* between rows: untouched */
        continue;
      if (!(fabsf(x - y) <= ROUNDED_WITHIN * most))
        fail_msg("%s variant %zu: array %zu element %zu is %.9g in bf16 and "
                 "%.9g in fp32, of at most %.9g", c->name, variant, i, j,
                 (double)y, (double)x, (double)most);
    }
  }
  trial_end(&exact);
  trial_end(&rounded);
}

static void test_rounded_inside(void **state)
{
  if (getenv("PEN_TEST_QUICK"))
    skip(); /* plain C is judged where it is fast */
  for (const struct trial_case *c = trial_cases; c->name; c++)
    for (size_t i = 0; c->rounds_inside && i < c->n_variants; i++)
      compare_rounded(c, i);
}

static void test_threads(void **state)
{
  each(level, PEN_ELEM_F32, 2);
  each(level, PEN_ELEM_BF16, 3);
}

/* A document in one piece, and token by token or in pieces over a cache; with
 * capped scores and in a window, where these are not 0. */
static void cached_is_attention(enum pen_elem elem, size_t heads,
                                size_t kv_heads, size_t dim, size_t piece,
                                float softcap, uint32_t window)
{
  enum { N = 150 };
  uint32_t first_key[N];
  struct trial t;
  const size_t lengths[] = {N, 0};
  trial_begin(&t, level, elem, &pen_gemm_reference, 2, seed);
  trial_documents(lengths, first_key);
  for (uint32_t i = window; window && i < N; i++)
    first_key[i] = i + 1 - window;
  size_t e = pen_elem_bytes(elem), ld = (heads + 2 * kv_heads) * dim;
  size_t ldo = heads * dim, n;
  const char *q = trial_in(&t, N * ld, -3, 3);
  const char *k = q + heads * dim * e, *v = k + kv_heads * dim * e;
  char *whole = trial_out(&t, N * ldo), *pieces = trial_out(&t, N * ldo);
  size_t cached = pen_attention_cache_elems(N, kv_heads, dim);
  void *keys = trial_out(&t, cached), *values = trial_out(&t, cached);
  struct pen_attention a = {
      .tokens = N, .heads = heads, .kv_heads = kv_heads, .dim = dim,
      .scale = 0.3f, .softcap = softcap, .first_key = first_key, .ldq = ld,
      .ldk = ld, .ldv = ld, .ldo = ldo};
  t.ops->attention(&t.stream, &a, q, k, v, whole,
                   trial_work_f32(&t, heads * N));
  for (size_t at = 0; at < N; at += n) {
    n = piece < N - at ? piece : N - at;
    struct pen_attention_cache c = {
        .tokens = n, .heads = heads, .kv_heads = kv_heads, .dim = dim,
        .scale = 0.3f, .softcap = softcap, .first = at, .capacity = N,
        .window = window, .ldq = ld, .ldk = ld, .ldv = ld, .ldo = ldo};
    t.ops->attention_cached(&t.stream, &c, q + at * ld * e, k + at * ld * e,
                            v + at * ld * e, keys, values,
                            pieces + at * ldo * e);
  }
  for (size_t i = 0; i < N * ldo; i++)
    if (memcmp(whole + i * e, pieces + i * e, e) != 0)
      fail_msg("%zu:%zu heads of %zu in %s, pieces of %zu: element %zu is "
               "%.9g, not %.9g", heads, kv_heads, dim, pen_elem_name(elem),
               piece, i, (double)trial_get(&t, pieces, i),
               (double)trial_get(&t, whole, i));
  trial_end(&t);
}

static void test_cached_attention(void **state)
{
  for (enum pen_elem elem = PEN_ELEM_BF16; elem <= PEN_ELEM_F32; elem++) {
    cached_is_attention(elem, 4, 2, 16, 1, 0, 0);
    cached_is_attention(elem, 6, 2, 14, 33, 0, 0);
    cached_is_attention(elem, 2, 1, 80, 64, 0, 0);
    cached_is_attention(elem, 70, 1, 8, 150, 0, 0);
    cached_is_attention(elem, 4, 2, 16, 20, 3, 70);
    cached_is_attention(elem, 4, 2, 16, 20, 0, 7);
  }
}

static void test_shapes_refused(void **state)
{
  test_ok(pen_ops_check_shape(8, 4, 128));
  test_fails(pen_ops_check_shape(8, 4, 7), PEN_EUNSUPPORTED, "even");
  test_fails(pen_ops_check_shape(8, 4, 4096), PEN_EUNSUPPORTED, "4096");
  test_fails(pen_ops_check_shape(8, 3, 64), PEN_EUNSUPPORTED, "multiple");
}

int main(void)
{
  seed = test_seed(20240601);
  level = test_level();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fp32),
      cmocka_unit_test(test_bf16),
      cmocka_unit_test(test_rounded_inside),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_cached_attention),
      cmocka_unit_test(test_shapes_refused),
  };
  return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
