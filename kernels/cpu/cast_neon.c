/* cpu/cast_neon.c: conversions, 4 elements at a time; the last few through the
 * plain C row.  Half precision uses the hardware's conversion, which follows
 * the default mode set at entry; only NaNs are made one.
 * Disadvantage: 64-bit loads and stores on the 16-bit side. */
#include "kernels/cpu/neon.h"
#include "kernels/cpu/rows.h"

#define STEP 4

static void f32_to_bf16(size_t n, const float *src, uint16_t *dst)
{
  size_t i = 0;
  for (; n - i >= STEP; i += STEP)
    vst1_u16(dst + i, pen_neon_to_bf16(vld1q_f32(src + i)));
  pen_cast_scalar.f32_to_bf16(n - i, src + i, dst + i);
}

static void f32_to_bf16_away(size_t n, const float *src, uint16_t *dst)
{
  size_t i = 0;
  for (; n - i >= STEP; i += STEP)
    vst1_u16(dst + i, pen_neon_to_bf16_away(vld1q_f32(src + i)));
  pen_cast_scalar.f32_to_bf16_away(n - i, src + i, dst + i);
}

static void bf16_to_f32(size_t n, const uint16_t *src, float *dst)
{
  size_t i = 0;
  for (; n - i >= STEP; i += STEP)
    vst1q_f32(dst + i, pen_neon_load_bf16(src + i));
  pen_cast_scalar.bf16_to_f32(n - i, src + i, dst + i);
}

static void f32_to_f16(size_t n, const float *src, uint16_t *dst)
{
  size_t i = 0;
  for (; n - i >= STEP; i += STEP) {
    /* The default NaN comes out of the conversion as the half's default. */
    float32x4_t x = pen_neon_one_nan(vld1q_f32(src + i));
    vst1_u16(dst + i, vreinterpret_u16_f16(vcvt_f16_f32(x)));
  }
  pen_cast_scalar.f32_to_f16(n - i, src + i, dst + i);
}

static void f16_to_f32(size_t n, const uint16_t *src, float *dst)
{
  size_t i = 0;
  for (; n - i >= STEP; i += STEP) {
    float16x4_t half = vreinterpret_f16_u16(vld1_u16(src + i));
    vst1q_f32(dst + i, pen_neon_one_nan(vcvt_f32_f16(half)));
  }
  pen_cast_scalar.f16_to_f32(n - i, src + i, dst + i);
}

static void f64_to_f32(size_t n, const double *src, float *dst)
{
  size_t i = 0;
  for (; n - i >= STEP; i += STEP) {
    float32x2_t low = vcvt_f32_f64(vld1q_f64(src + i));
    float32x2_t high = vcvt_f32_f64(vld1q_f64(src + i + 2));
    vst1q_f32(dst + i, pen_neon_one_nan(vcombine_f32(low, high)));
  }
  pen_cast_scalar.f64_to_f32(n - i, src + i, dst + i);
}

const struct pen_cast_row pen_cast_neon = {
  .f32_to_bf16 = f32_to_bf16,
  .f32_to_bf16_away = f32_to_bf16_away,
  .bf16_to_f32 = bf16_to_f32,
  .f32_to_f16 = f32_to_f16,
  .f16_to_f32 = f16_to_f32,
  .f64_to_f32 = f64_to_f32,
};
