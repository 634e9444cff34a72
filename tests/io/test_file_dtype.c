/* Conversions of stored number formats against their definition: every f16 and
 * bf16 value, and the rounding of what lies between two of them. */
#include "io/file_dtype.h"

#include <math.h>

#include "tests/test.h"

/* The value of a small float from its fields. */
static double value_of(uint16_t bits, int exponent_bits, int fraction_bits)
{
  int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  int fraction = bits & ((1 << fraction_bits) - 1);
  double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction ? (double)NAN : sign * (double)INFINITY;
  return exponent ? sign * ldexp(1 + ldexp(fraction, -fraction_bits),
                                 exponent - bias)
                  : sign * ldexp(fraction, 1 - bias - fraction_bits);
}

static void check_all(enum pen_file_dtype dtype, int exponent_bits,
                      int fraction_bits)
{
  for (uint32_t bits = 0; bits < 65536; bits++) {
    uint16_t half = (uint16_t)bits, back = 0;
    float value = 7;
    double expect = value_of(half, exponent_bits, fraction_bits);
    test_ok(pen_file_dtype_to_f32(dtype, &half, 1, &value));
    test_ok(pen_file_dtype_from_f32(dtype, &value, 1, &back, NULL));
    if (isnan(expect)) {
      assert_true(isnan(value));
      assert_true(isnan(value_of(back, exponent_bits, fraction_bits)));
      continue;
    }
    assert_true((double)value == expect);
    assert_int_equal(!signbit(value), !signbit(expect));
    assert_int_equal(back, half);
  }
}

static void test_exact(void **state)
{
  check_all(PEN_FILE_F16, 5, 10);
  check_all(PEN_FILE_BF16, 8, 7);
}

/* Between neighbours: just below the middle, the middle, just above it. */
static void test_rounding(void **state)
{
  for (uint16_t bits = 0; bits < 0x7bff; bits++) {
    float low = (float)value_of(bits, 5, 10);
    float middle = (float)((low + value_of((uint16_t)(bits + 1), 5, 10)) / 2);
    float in[3] = {nextafterf(middle, 0), middle, nextafterf(middle, INFINITY)};
    uint16_t out[3];
    test_ok(pen_file_dtype_from_f32(PEN_FILE_F16, in, 3, out, NULL));
    assert_int_equal(out[0], bits);
    assert_int_equal(out[1], bits + (bits & 1)); /* to even */
    assert_int_equal(out[2], bits + 1);
  }
  for (uint16_t bits = 0; bits < 0x7f7f; bits++) {
    uint32_t wide = (uint32_t)bits << 16 | 0x8000;
    float in[2];
    uint16_t out[2];
    memcpy(&in[1], &wide, 4);
    in[0] = nextafterf(in[1], 0);
    test_ok(pen_file_dtype_from_f32(PEN_FILE_BF16, in, 2, out, NULL));
    assert_int_equal(out[0], bits);
    assert_int_equal(out[1], bits + 1); /* ties away from zero */
  }
}

static void test_overflow(void **state)
{
  float in[5] = {65519.9f, 65520.0f, -1e30f, INFINITY, 3.3961776e38f};
  uint16_t out[5];
  size_t overflow = 0;
  test_ok(pen_file_dtype_from_f32(PEN_FILE_F16, in, 5, out, &overflow));
  assert_int_equal(overflow, 3);
  assert_int_equal(out[0], 0x7bff);
  assert_int_equal(out[2], 0xfc00);
  test_ok(pen_file_dtype_from_f32(PEN_FILE_BF16, in, 5, out, &overflow));
  assert_int_equal(overflow, 1); /* the last rounds up to 2^128 */
}

static void test_names(void **state)
{
  assert_int_equal(pen_file_dtype_find("BF16"), PEN_FILE_BF16);
  assert_int_equal(pen_file_dtype_find("bf16"), PEN_FILE_NONE);
  assert_int_equal(pen_file_dtype_find("none"), PEN_FILE_NONE);
  assert_int_equal(pen_file_dtype_find_torch("float16"), PEN_FILE_F16);
  assert_int_equal(pen_file_dtype_find_torch(""), PEN_FILE_NONE);
  float value = 0;
  test_fails(pen_file_dtype_to_f32(PEN_FILE_I8, "", 1, &value),
             PEN_EUNSUPPORTED, "cannot use I8 numbers");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_exact),
    cmocka_unit_test(test_rounding),
    cmocka_unit_test(test_overflow),
    cmocka_unit_test(test_names),
  };
  return cmocka_run_group_tests_name("file_dtype", tests, NULL, NULL);
}
