/* ref/cast.c: conversions in plain C, by integer arithmetic on the bits; the
 * definition every other level is held against.  Disadvantage: half precision
 * takes a branch per element. */
#include <math.h>

#include "kernels/bf16.h"
#include "kernels/cpu/rows.h"

static void f32_to_bf16(size_t n, const float *src, uint16_t *dst)
{
  for (size_t i = 0; i < n; i++)
    dst[i] = pen_bf16_from_f32(src[i]);
}

static void f32_to_bf16_away(size_t n, const float *src, uint16_t *dst)
{
  for (size_t i = 0; i < n; i++)
    dst[i] = pen_bf16_from_f32_away(src[i]);
}

static void bf16_to_f32(size_t n, const uint16_t *src, float *dst)
{
  for (size_t i = 0; i < n; i++)
    dst[i] = pen_bf16_to_f32(src[i]);
}

/* value / 2^shift, rounded to nearest even; 1 <= shift <= 31. */
static uint32_t shift_even(uint32_t value, unsigned shift)
{
  uint32_t half = UINT32_C(1) << (shift - 1);
  uint32_t odd = (value >> shift) & 1;
  return (value + half - 1 + odd) >> shift;
}

static uint16_t f16_from_f32(float x)
{
  uint32_t bits = pen_f32_bits(x);
  uint32_t sign = bits >> 16 & 0x8000;
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return PEN_NAN_F16_BITS;
  if (magnitude >= 0x47800000) /* 65536 and more, infinity too */
    return (uint16_t)(sign | 0x7c00);
  if (magnitude >= 0x38800000) /* 2^-14: normal; rounding may carry on up */
    return (uint16_t)(sign | shift_even(magnitude - 0x38000000, 13));
  if (magnitude < 0x33000000) /* below half the smallest denormal */
    return (uint16_t)sign;
  uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
  return (uint16_t)(sign | shift_even(mantissa, 126 - (magnitude >> 23)));
}

static void f32_to_f16(size_t n, const float *src, uint16_t *dst)
{
  for (size_t i = 0; i < n; i++)
    dst[i] = f16_from_f32(src[i]);
}

static float f16_to_f32_one(uint16_t half)
{
  uint32_t sign = (uint32_t)(half & 0x8000) << 16;
  uint32_t magnitude = half & 0x7fff;
  if (magnitude > 0x7c00)
    return pen_f32_from_bits(PEN_NAN_F32_BITS);
  if (magnitude == 0x7c00)
    return pen_f32_from_bits(sign | 0x7f800000);
  if (magnitude >= 0x0400)
    return pen_f32_from_bits(sign | ((magnitude << 13) + 0x38000000));
  float x = (float)magnitude * 0x1p-24f; /* exact */
  return pen_f32_from_bits(sign | pen_f32_bits(x));
}

static void f16_to_f32(size_t n, const uint16_t *src, float *dst)
{
  for (size_t i = 0; i < n; i++)
    dst[i] = f16_to_f32_one(src[i]);
}

static void f64_to_f32(size_t n, const double *src, float *dst)
{
  for (size_t i = 0; i < n; i++)
    dst[i] = isnan(src[i]) ? pen_f32_from_bits(PEN_NAN_F32_BITS)
                           : (float)src[i];
}

const struct pen_cast_row pen_cast_scalar = {
  .f32_to_bf16 = f32_to_bf16,
  .f32_to_bf16_away = f32_to_bf16_away,
  .bf16_to_f32 = bf16_to_f32,
  .f32_to_f16 = f32_to_f16,
  .f16_to_f32 = f16_to_f32,
  .f64_to_f32 = f64_to_f32,
};
