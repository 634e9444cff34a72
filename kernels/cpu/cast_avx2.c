/* cpu/cast_avx2.c: conversions, 8 or 16 elements at a time; the last few go
 * through the plain C row.  The hardware's half precision conversions round as
 * the reference does and ignore denormal modes; only their NaNs are made one.
 * Disadvantage: never stores past the cache, whatever the size. */
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/rows.h"

static void f32_to_bf16(size_t n, const float *src, uint16_t *dst)
{
  size_t i = 0;
  for (; n - i >= 16; i += 16)
    _mm256_storeu_si256((__m256i *)(dst + i),
                        pen_avx2_to_bf16(_mm256_loadu_ps(src + i),
                                         _mm256_loadu_ps(src + i + 8)));
  pen_cast_scalar.f32_to_bf16(n - i, src + i, dst + i);
}

static void f32_to_bf16_away(size_t n, const float *src, uint16_t *dst)
{
  size_t i = 0;
  for (; n - i >= 16; i += 16)
    _mm256_storeu_si256((__m256i *)(dst + i),
                        pen_avx2_to_bf16_away(_mm256_loadu_ps(src + i),
                                              _mm256_loadu_ps(src + i + 8)));
  pen_cast_scalar.f32_to_bf16_away(n - i, src + i, dst + i);
}

static void bf16_to_f32(size_t n, const uint16_t *src, float *dst)
{
  size_t i = 0;
  for (; n - i >= 8; i += 8)
    _mm256_storeu_ps(dst + i, pen_avx2_load_bf16(src + i));
  pen_cast_scalar.bf16_to_f32(n - i, src + i, dst + i);
}

static void f32_to_f16(size_t n, const float *src, uint16_t *dst)
{
  size_t i = 0;
  for (; n - i >= 8; i += 8) {
    /* The default NaN comes out of the conversion as the half's default. */
    __m256 x = pen_avx2_one_nan(_mm256_loadu_ps(src + i));
    _mm_storeu_si128((__m128i *)(dst + i),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  pen_cast_scalar.f32_to_f16(n - i, src + i, dst + i);
}

static void f16_to_f32(size_t n, const uint16_t *src, float *dst)
{
  size_t i = 0;
  for (; n - i >= 8; i += 8) {
    __m128i half = _mm_loadu_si128((const __m128i *)(src + i));
    _mm256_storeu_ps(dst + i, pen_avx2_one_nan(_mm256_cvtph_ps(half)));
  }
  pen_cast_scalar.f16_to_f32(n - i, src + i, dst + i);
}

static void f64_to_f32(size_t n, const double *src, float *dst)
{
  size_t i = 0;
  for (; n - i >= 8; i += 8) {
    __m128 low = _mm256_cvtpd_ps(_mm256_loadu_pd(src + i));
    __m128 high = _mm256_cvtpd_ps(_mm256_loadu_pd(src + i + 4));
    _mm256_storeu_ps(dst + i, pen_avx2_one_nan(_mm256_set_m128(high, low)));
  }
  pen_cast_scalar.f64_to_f32(n - i, src + i, dst + i);
}

const struct pen_cast_row pen_cast_avx2 = {
  .f32_to_bf16 = f32_to_bf16,
  .f32_to_bf16_away = f32_to_bf16_away,
  .bf16_to_f32 = bf16_to_f32,
  .f32_to_f16 = f32_to_f16,
  .f16_to_f32 = f16_to_f32,
  .f64_to_f32 = f64_to_f32,
};
