/* avx512.h: 16 numbers at a time: loads, stores and roundings that the AVX-512
 * kernels share.  Only for files built with -mavx512f -mavx512bw -mavx512vl
 * -mavx512dq.  (vcvtneps2bf16 is not used: it drops denormals.) */
#ifndef PEN_KERNELS_CPU_AVX512_H
#define PEN_KERNELS_CPU_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/bf16.h"

/* The first `count` of 16 lanes. */
static inline __mmask16 pen_avx512_first(size_t count)
{
  return count >= 16 ? 0xffff : (__mmask16)((1u << count) - 1);
}

static inline __m512 pen_avx512_one_nan(__m512 x)
{
  __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_mask_mov_ps(
      x, nan, _mm512_castsi512_ps(_mm512_set1_epi32(PEN_NAN_F32_BITS)));
}

static inline __m512 pen_avx512_from_bf16(__m256i half)
{
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Upper halves of the lanes, NaNs made one. */
static inline __m256i pen_avx512_upper(__m512 x, __m512i rounded)
{
  __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
  return _mm256_mask_mov_epi16(half, nan,
                               _mm256_set1_epi16(PEN_NAN_BF16_BITS));
}

/* Ties to even. */
static inline __m256i pen_avx512_to_bf16(__m512 x)
{
  __m512i bits = _mm512_castps_si512(x);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16),
                                 _mm512_set1_epi32(1));
  __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  return pen_avx512_upper(x, _mm512_add_epi32(bits, bias));
}

/* Ties away from zero. */
static inline __m256i pen_avx512_to_bf16_away(__m512 x)
{
  __m512i bits = _mm512_castps_si512(x);
  return pen_avx512_upper(
      x, _mm512_add_epi32(bits, _mm512_set1_epi32(0x8000)));
}

#endif
