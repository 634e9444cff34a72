/* cpu/gradient_avx512.c: gradients, 16 elements at a time: the 16 lanes of the
 * norm are two registers of doubles.  The last few elements go through masks;
 * lanes switched off add +0, which changes no sum of squares.
 * Disadvantage: two dependent chains of additions; memory is slower still. */
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/sum_lanes.h"

static void accumulate(size_t n, float *sum, const float *add)
{
  for (size_t i = 0; i < n; i += 16) {
    __mmask16 k = pen_avx512_first(n - i);
    __m512 x = _mm512_add_ps(_mm512_maskz_loadu_ps(k, sum + i),
                             _mm512_maskz_loadu_ps(k, add + i));
    _mm512_mask_storeu_ps(sum + i, k, pen_avx512_one_nan(x));
  }
}

static void scale(size_t n, float *x, float factor)
{
  const __m512 by = _mm512_set1_ps(factor);
  for (size_t i = 0; i < n; i += 16) {
    __mmask16 k = pen_avx512_first(n - i);
    __m512 y = _mm512_mul_ps(_mm512_maskz_loadu_ps(k, x + i), by);
    _mm512_mask_storeu_ps(x + i, k, pen_avx512_one_nan(y));
  }
}

struct sums {
  __m512d low, high; /* lanes 0 to 7, 8 to 15 */
  uint64_t nonfinite;
};

static inline void count16(struct sums *s, __m512 x)
{
  const __m512i exponent = _mm512_set1_epi32(0x7f800000);
  __mmask16 finite = _mm512_cmpneq_epi32_mask(
      _mm512_and_si512(_mm512_castps_si512(x), exponent), exponent);
  s->nonfinite += 16 - (unsigned)__builtin_popcount(finite);
  x = _mm512_maskz_mov_ps(finite, x);
  __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
  __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
  s->low = _mm512_add_pd(s->low, _mm512_mul_pd(low, low));
  s->high = _mm512_add_pd(s->high, _mm512_mul_pd(high, high));
}

static inline void finish_sums(const struct sums *s, double *sumsq,
                               uint64_t *nonfinite)
{
  double lanes[PEN_SUM_LANES];
  _mm512_storeu_pd(lanes, s->low);
  _mm512_storeu_pd(lanes + 8, s->high);
  *sumsq = pen_sum_lanes_total(lanes);
  *nonfinite += s->nonfinite;
}

static void finish_bf16(size_t n, const float *grad, uint16_t *stored,
                        double *sumsq, uint64_t *nonfinite)
{
  struct sums s = {_mm512_setzero_pd(), _mm512_setzero_pd(), 0};
  for (size_t i = 0; i < n; i += 16) {
    __mmask16 k = pen_avx512_first(n - i);
    __m256i half;
    if (grad) {
      half = pen_avx512_to_bf16(_mm512_maskz_loadu_ps(k, grad + i));
      _mm256_mask_storeu_epi16(stored + i, k, half);
    } else {
      half = _mm256_maskz_loadu_epi16(k, stored + i);
    }
    count16(&s, pen_avx512_from_bf16(half));
  }
  finish_sums(&s, sumsq, nonfinite);
}

static void finish_f32(size_t n, const float *grad, float *stored,
                       double *sumsq, uint64_t *nonfinite)
{
  struct sums s = {_mm512_setzero_pd(), _mm512_setzero_pd(), 0};
  for (size_t i = 0; i < n; i += 16) {
    __mmask16 k = pen_avx512_first(n - i);
    const float *from = grad ? grad : stored;
    __m512 x = pen_avx512_one_nan(_mm512_maskz_loadu_ps(k, from + i));
    _mm512_mask_storeu_ps(stored + i, k, x);
    count16(&s, x);
  }
  finish_sums(&s, sumsq, nonfinite);
}

const struct pen_gradient_row pen_gradient_avx512 = {
  .accumulate = accumulate,
  .scale = scale,
  .finish_bf16 = finish_bf16,
  .finish_f32 = finish_f32,
};
