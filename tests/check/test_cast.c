/* test_cast.c: conversions against rounding done in double: scale by the
 * target's spacing, round to an integer, scale back. */
#include "tests/check/level.h"

#include <math.h>

#include "base/rng.h"
#include "kernels/bf16.h"
#include "kernels/cast.h"

#define N 65536

static enum pen_isa level;
static uint64_t seed;

struct format {
  int mantissa_bits, exponent_min; /* exponent of the smallest normal */
  double largest;
};
static const struct format bf16 = {7, -126, 0x1.fep127};
static const struct format f16 = {10, -14, 65504};

/* x in the format, with ties to even or away; NaN stays NaN. */
static double rounded(const struct format *f, double x, bool away)
{
  if (isnan(x) || isinf(x) || x == 0)
    return x;
  int exponent = ilogb(x);
  if (exponent < f->exponent_min)
    exponent = f->exponent_min;
  double q = ldexp(x, f->mantissa_bits - exponent);
  q = ldexp(away ? round(q) : rint(q), exponent - f->mantissa_bits);
  return fabs(q) > f->largest ? copysign(INFINITY, x) : copysign(q, x);
}

static double f16_value(uint16_t half)
{
  int exponent = half >> 10 & 31, mantissa = half & 1023;
  double x = exponent == 31  ? (mantissa ? NAN : INFINITY)
             : exponent == 0 ? ldexp(mantissa, -24)
                             : ldexp(1024 + mantissa, exponent - 25);
  return half & 0x8000 ? -x : x;
}

/* Equal as numbers, with the sign of zeros; one NaN only. */
static void expect(double got, bool is_the_nan, double want, float src)
{
  if (isnan(want) ? is_the_nan : got == want && signbit(got) == signbit(want))
    return;
  fail_msg("%a (0x%08x) became %a, not %a", (double)src, pen_f32_bits(src), got,
           want);
}

/* Every upper half with lower halves around ties: all that can go wrong. */
static void fill(float *x, uint32_t round)
{
  static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff,
                                 0x1000, 0x2fff, 0xf000};
  size_t n_low = sizeof low / sizeof low[0];
  for (uint32_t i = 0; i < N; i++)
    x[i] = pen_f32_from_bits(
        i << 16 | (round < n_low ? low[round]
                                 : pen_rng_u32(seed, round, i) & 0xffff));
}

static void to_bf16(void **state)
{
  static float x[N];
  static uint16_t even[N], away[N];
  for (uint32_t round = 0; round < 12; round++) {
    fill(x, round);
    pen_cast_f32_to_bf16(level, N, x, even);
    pen_cast_f32_to_bf16_away(level, N, x, away);
    for (size_t i = 0; i < N; i++) {
      expect(pen_bf16_to_f32(even[i]), even[i] == PEN_NAN_BF16_BITS,
             rounded(&bf16, x[i], false), x[i]);
      expect(pen_bf16_to_f32(away[i]), away[i] == PEN_NAN_BF16_BITS,
             rounded(&bf16, x[i], true), x[i]);
    }
  }
}

static void to_f16(void **state)
{
  static float x[N];
  static uint16_t half[N];
  for (uint32_t round = 0; round < 12; round++) {
    fill(x, round);
    pen_cast_f32_to_f16(level, N, x, half);
    for (size_t i = 0; i < N; i++)
      expect(f16_value(half[i]), half[i] == PEN_NAN_F16_BITS,
             rounded(&f16, x[i], false), x[i]);
  }
}

static void from_f16_and_back(void **state)
{
  static float x[N];
  static uint16_t half[N], back[N];
  for (uint32_t i = 0; i < N; i++)
    half[i] = (uint16_t)i;
  pen_cast_f16_to_f32(level, N, half, x);
  pen_cast_f32_to_f16(level, N, x, back);
  for (uint32_t i = 0; i < N; i++) {
    bool nan = isnan(f16_value(half[i]));
    expect(x[i], pen_f32_bits(x[i]) == PEN_NAN_F32_BITS, f16_value(half[i]),
           x[i]);
    assert_int_equal(back[i], nan ? PEN_NAN_F16_BITS : half[i]);
  }
}

/* bf16 half and low 16 bits give the fp32 number back: ties away make it a
 * bijection on all but NaN. */
static void from_bf16_and_back(void **state)
{
  static float x[N];
  static uint16_t half[N], even[N], away[N];
  for (uint32_t i = 0; i < N; i++)
    half[i] = (uint16_t)i;
  pen_cast_bf16_to_f32(level, N, half, x);
  pen_cast_f32_to_bf16(level, N, x, even);
  pen_cast_f32_to_bf16_away(level, N, x, away);
  for (uint32_t i = 0; i < N; i++) {
    assert_int_equal(pen_f32_bits(x[i]), i << 16);
    assert_int_equal(even[i], isnan(x[i]) ? PEN_NAN_BF16_BITS : half[i]);
    assert_int_equal(away[i], even[i]);
  }
  for (uint32_t round = 0; round < 9; round++) {
    fill(x, round);
    pen_cast_f32_to_bf16_away(level, N, x, away);
    for (size_t i = 0; i < N; i++) {
      uint32_t bits = pen_f32_bits(x[i]);
      uint32_t low = bits & 0xffff;
      uint32_t again = ((uint32_t)away[i] - (low >> 15)) << 16 | low;
      if (!isnan(x[i]))
        assert_int_equal(again, bits);
    }
  }
}

static void from_f64(void **state)
{
  static double x[N];
  static float y[N];
  for (size_t i = 0; i < N; i++) {
    double near = pen_f32_from_bits(pen_rng_u32(seed, 50, i));
    uint64_t bits;
    memcpy(&bits, &near, sizeof bits);
    /* a quarter each: exact, tie, just above, any */
    uint64_t low[] = {0, 0x10000000, 0x10000001, pen_rng_u32(seed, 51, i)};
    bits |= low[i % 4] & 0x1fffffff;
    memcpy(&x[i], &bits, sizeof bits);
  }
  pen_cast_f64_to_f32(level, N, x, y);
  const struct format f32 = {23, -126, 0x1.fffffep127};
  for (size_t i = 0; i < N; i++)
    expect(y[i], pen_f32_bits(y[i]) == PEN_NAN_F32_BITS,
           rounded(&f32, x[i], false), y[i]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(to_bf16),           cmocka_unit_test(to_f16),
    cmocka_unit_test(from_f16_and_back), cmocka_unit_test(from_bf16_and_back),
    cmocka_unit_test(from_f64),
  };
  seed = test_seed(2);
  level = test_level();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
