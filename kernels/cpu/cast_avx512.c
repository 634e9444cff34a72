/* cpu/cast_avx512.c: conversions, 16 elements at a time; the last few through
 * masks.  The hardware's half precision conversions round as the reference
 * does and ignore denormal modes; only their NaNs are made one.
 * Disadvantage: never stores past the cache, whatever the size. */
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/rows.h"

static void f32_to_bf16(size_t n, const float *src, uint16_t *dst)
{
  for (size_t i = 0; i < n; i += 16) {
    __mmask16 k = pen_avx512_first(n - i);
    __m512 x = _mm512_maskz_loadu_ps(k, src + i);
    _mm256_mask_storeu_epi16(dst + i, k, pen_avx512_to_bf16(x));
  }
}

static void f32_to_bf16_away(size_t n, const float *src, uint16_t *dst)
{
  for (size_t i = 0; i < n; i += 16) {
    __mmask16 k = pen_avx512_first(n - i);
    __m512 x = _mm512_maskz_loadu_ps(k, src + i);
    _mm256_mask_storeu_epi16(dst + i, k, pen_avx512_to_bf16_away(x));
  }
}

static void bf16_to_f32(size_t n, const uint16_t *src, float *dst)
{
  for (size_t i = 0; i < n; i += 16) {
    __mmask16 k = pen_avx512_first(n - i);
    __m256i half = _mm256_maskz_loadu_epi16(k, src + i);
    _mm512_mask_storeu_ps(dst + i, k, pen_avx512_from_bf16(half));
  }
}

static void f32_to_f16(size_t n, const float *src, uint16_t *dst)
{
  for (size_t i = 0; i < n; i += 16) {
    __mmask16 k = pen_avx512_first(n - i);
    __m512 x = _mm512_maskz_loadu_ps(k, src + i);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    __m256i half = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT |
                                          _MM_FROUND_NO_EXC);
    half = _mm256_mask_mov_epi16(half, nan,
                                 _mm256_set1_epi16(PEN_NAN_F16_BITS));
    _mm256_mask_storeu_epi16(dst + i, k, half);
  }
}

static void f16_to_f32(size_t n, const uint16_t *src, float *dst)
{
  for (size_t i = 0; i < n; i += 16) {
    __mmask16 k = pen_avx512_first(n - i);
    __m256i half = _mm256_maskz_loadu_epi16(k, src + i);
    _mm512_mask_storeu_ps(dst + i, k,
                          pen_avx512_one_nan(_mm512_cvtph_ps(half)));
  }
}

static void f64_to_f32(size_t n, const double *src, float *dst)
{
  const __m256 one_nan =
      _mm256_castsi256_ps(_mm256_set1_epi32(PEN_NAN_F32_BITS));
  for (size_t i = 0; i < n; i += 8) {
    __mmask8 k = (__mmask8)(pen_avx512_first(n - i) & 0xff);
    __m512d x = _mm512_maskz_loadu_pd(k, src + i);
    __mmask8 nan = _mm512_cmp_pd_mask(x, x, _CMP_UNORD_Q);
    __m256 y = _mm256_mask_mov_ps(_mm512_cvtpd_ps(x), nan, one_nan);
    _mm256_mask_storeu_ps(dst + i, k, y);
  }
}

const struct pen_cast_row pen_cast_avx512 = {
  .f32_to_bf16 = f32_to_bf16,
  .f32_to_bf16_away = f32_to_bf16_away,
  .bf16_to_f32 = bf16_to_f32,
  .f32_to_f16 = f32_to_f16,
  .f16_to_f32 = f16_to_f32,
  .f64_to_f32 = f64_to_f32,
};
