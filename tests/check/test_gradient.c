/* test_gradient.c: what is stored of a gradient, its norm and the factor,
 * against sums in long double. */
#include "tests/check/level.h"

#include <float.h>
#include <math.h>

#include "base/rng.h"
#include "kernels/bf16.h"
#include "kernels/gradient.h"

#define CHUNK 4096
#define N (5 * CHUNK + 777)
#define CHUNKS 6

static enum pen_isa level;
static uint64_t seed;
static float grad[N], extra[N];

static void fill(void)
{
  for (size_t i = 0; i < N; i++) {
    double pair[2];
    pen_rng_normal_pair(seed, 0, i, pair);
    grad[i] = (float)pair[0];
    extra[i] = (float)(pair[1] * 1e-3);
  }
}

/* n / 16 additions to a lane, 4 in the tree; squares are exact. */
static void expect_sum(double got, long double want, size_t n)
{
  long double bound = want * ((long double)n / 16 + 4) * 0x1p-53L;
  if (!(fabsl(got - want) <= bound))
    fail_msg("sum %.17g, not %.17Lg +- %.2Lg", got, want, bound);
}

static void stores_bf16(void **state)
{
  static uint16_t stored[N];
  for (int again = 0; again < 2; again++) { /* then as it stands */
    double sums[CHUNKS];
    fill();
    assert_int_equal(pen_gradient_finish_bf16(level, N, CHUNK,
                                              again ? NULL : grad, stored,
                                              sums), 0);
    for (size_t c = 0; c < CHUNKS; c++) {
      long double want = 0;
      size_t end = (c + 1) * CHUNK < N ? (c + 1) * CHUNK : N;
      for (size_t i = c * CHUNK; i < end; i++) {
        assert_int_equal(stored[i], pen_bf16_from_f32(grad[i]));
        long double x = pen_bf16_to_f32(stored[i]);
        want += x * x;
      }
      expect_sum(sums[c], want, CHUNK);
    }
  }
}

static void measures_f32_as_it_stands(void **state)
{
  static float before[N];
  double sums[CHUNKS];
  fill();
  memcpy(before, grad, sizeof grad);
  assert_int_equal(
      pen_gradient_finish_f32(level, N, CHUNK, NULL, grad, sums), 0);
  for (size_t c = 0; c < CHUNKS; c++) {
    long double want = 0;
    size_t end = (c + 1) * CHUNK < N ? (c + 1) * CHUNK : N;
    for (size_t i = c * CHUNK; i < end; i++) {
      assert_true(grad[i] == before[i]);
      want += (long double)grad[i] * grad[i];
    }
    expect_sum(sums[c], want, CHUNK);
  }
}

/* One call or one per thread and chunk: the same. */
static void cut_at_chunks(void **state)
{
  static uint16_t whole[N], parts[N];
  double whole_sums[CHUNKS], part_sums[CHUNKS];
  fill();
  grad[3 * CHUNK + 5] = INFINITY;
  grad[N - 1] = NAN;
  uint64_t bad = pen_gradient_finish_bf16(level, N, CHUNK, grad, whole,
                                          whole_sums);
  assert_int_equal(bad, 2);
  for (size_t c = CHUNKS; c-- > 0;) {
    size_t at = c * CHUNK;
    bad -= pen_gradient_finish_bf16(level, N - at < CHUNK ? N - at : CHUNK,
                                    CHUNK, grad + at, parts + at, part_sums + c);
  }
  assert_int_equal(bad, 0);
  assert_memory_equal(whole, parts, sizeof whole);
  assert_memory_equal(whole_sums, part_sums, sizeof whole_sums);
}

/* Each is counted, and the sum goes on without it; a finite fp32 number that
 * bf16 cannot hold is one of them. */
static void counts_what_is_not_finite(void **state)
{
  static uint16_t stored[N], clean[N];
  static float whole[N];
  double sums[CHUNKS], clean_sums[CHUNKS];
  const float bad[] = {INFINITY, -INFINITY, NAN, FLT_MAX};
  fill();
  for (size_t i = 0; i < 40; i++)
    grad[i * 517] = 0;
  pen_gradient_finish_bf16(level, N, CHUNK, grad, clean, clean_sums);
  for (size_t i = 0; i < 40; i++)
    grad[i * 517] = bad[i % 4];
  assert_int_equal(
      pen_gradient_finish_bf16(level, N, CHUNK, grad, stored, sums), 40);
  assert_memory_equal(sums, clean_sums, sizeof sums);
  assert_int_equal(stored[2 * 517], PEN_NAN_BF16_BITS);
  assert_int_equal(stored[3 * 517], 0x7f80);
  assert_int_equal(
      pen_gradient_finish_f32(level, N, CHUNK, grad, whole, sums), 30);
}

/* The largest and the smallest numbers: no overflow, nothing lost. */
static void extremes_are_exact(void **state)
{
  const float x[3] = {FLT_MAX, 0x1p-149f, -0x1p-130f};
  for (size_t i = 0; i < 3; i++) {
    float one[33] = {0}, stored[33];
    double sum;
    one[32] = x[i];
    assert_int_equal(
        pen_gradient_finish_f32(level, 33, 64, one, stored, &sum), 0);
    assert_true(sum == (double)x[i] * (double)x[i] && sum > 0);
  }
}

static void total_and_factor(void **state)
{
  static double sums[10007];
  long double want = 0;
  for (size_t i = 0; i < 10007; i++) {
    sums[i] = pen_rng_double(seed, 9, i);
    want += sums[i];
  }
  double total = pen_gradient_total(10007, sums), norm;
  expect_sum(total, want, 10007);
  assert_true(pen_gradient_total(0, sums) == 0);

  assert_true(pen_gradient_factor(16, 0.25, 0, &norm) == 0.25f && norm == 1);
  assert_true(pen_gradient_factor(16, 0.25, 2, &norm) == 0.25f && norm == 1);
  assert_true(pen_gradient_factor(16, 1, 1, &norm) == (float)(1 / 4.000001));
  assert_true(norm == 4);
  assert_true(pen_gradient_factor(0, 0.5, 1, &norm) == 0.5f && norm == 0);
}

static void accumulates_and_scales(void **state)
{
  fill();
  static float sum[N];
  memcpy(sum, grad, sizeof sum);
  pen_gradient_accumulate(level, N, sum, extra);
  for (size_t i = 0; i < N; i++)
    assert_true(sum[i] == grad[i] + extra[i]);
  pen_gradient_scale(level, N, sum, 0.3f);
  for (size_t i = 0; i < N; i++)
    assert_true(sum[i] == (grad[i] + extra[i]) * 0.3f);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(stores_bf16),
    cmocka_unit_test(measures_f32_as_it_stands),
    cmocka_unit_test(cut_at_chunks),
    cmocka_unit_test(counts_what_is_not_finite),
    cmocka_unit_test(extremes_are_exact),
    cmocka_unit_test(total_and_factor),
    cmocka_unit_test(accumulates_and_scales),
  };
  seed = test_seed(3);
  level = test_level();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
