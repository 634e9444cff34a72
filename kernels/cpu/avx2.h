/* avx2.h: 8 numbers at a time: loads, stores and roundings that the AVX2
 * kernels share.  Only for files built with -mavx2 -mfma -mf16c. */
#ifndef PEN_KERNELS_CPU_AVX2_H
#define PEN_KERNELS_CPU_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/bf16.h"

static inline __m256 pen_avx2_one_nan(__m256 x)
{
  return _mm256_blendv_ps(
      x, _mm256_castsi256_ps(_mm256_set1_epi32(PEN_NAN_F32_BITS)),
      _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

static inline __m256 pen_avx2_load_bf16(const uint16_t *half)
{
  __m128i x = _mm_loadu_si128((const __m128i *)half);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

/* The upper halves of 2 x 8 lanes in order. */
static inline __m256i pen_avx2_upper(__m256 x0, __m256i rounded0, __m256 x1,
                                     __m256i rounded1)
{
  const __m256 nan = _mm256_castsi256_ps(
      _mm256_set1_epi32((int)PEN_NAN_BF16_BITS << 16));
  __m256 y0 = _mm256_blendv_ps(_mm256_castsi256_ps(rounded0), nan,
                               _mm256_cmp_ps(x0, x0, _CMP_UNORD_Q));
  __m256 y1 = _mm256_blendv_ps(_mm256_castsi256_ps(rounded1), nan,
                               _mm256_cmp_ps(x1, x1, _CMP_UNORD_Q));
  __m256i half = _mm256_packus_epi32(
      _mm256_srli_epi32(_mm256_castps_si256(y0), 16),
      _mm256_srli_epi32(_mm256_castps_si256(y1), 16));
  return _mm256_permute4x64_epi64(half, 0xd8);
}

static inline __m256i pen_avx2_round_even(__m256 x)
{
  __m256i bits = _mm256_castps_si256(x);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16),
                                 _mm256_set1_epi32(1));
  return _mm256_add_epi32(bits,
                          _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
}

/* 16 lanes, ties to even. */
static inline __m256i pen_avx2_to_bf16(__m256 x0, __m256 x1)
{
  return pen_avx2_upper(x0, pen_avx2_round_even(x0), x1,
                        pen_avx2_round_even(x1));
}

/* 16 lanes, ties away from zero. */
static inline __m256i pen_avx2_to_bf16_away(__m256 x0, __m256 x1)
{
  const __m256i half = _mm256_set1_epi32(0x8000);
  return pen_avx2_upper(x0, _mm256_add_epi32(_mm256_castps_si256(x0), half),
                        x1, _mm256_add_epi32(_mm256_castps_si256(x1), half));
}

#endif
