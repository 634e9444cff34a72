/* cpu/gradient_avx2.c: gradients, 16 elements at a time: the 16 lanes of the
 * norm are four registers of doubles.  The last few elements of a chunk are
 * added to the lanes one by one, in the same order.
 * Disadvantage: that end is plain C, up to 15 elements of a chunk. */
#include <math.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/sum_lanes.h"

static void accumulate(size_t n, float *sum, const float *add)
{
  size_t i = 0;
  for (; n - i >= 8; i += 8)
    _mm256_storeu_ps(sum + i,
                     pen_avx2_one_nan(_mm256_add_ps(_mm256_loadu_ps(sum + i),
                                                    _mm256_loadu_ps(add + i))));
  pen_gradient_scalar.accumulate(n - i, sum + i, add + i);
}

static void scale(size_t n, float *x, float factor)
{
  const __m256 by = _mm256_set1_ps(factor);
  size_t i = 0;
  for (; n - i >= 8; i += 8)
    _mm256_storeu_ps(
        x + i, pen_avx2_one_nan(_mm256_mul_ps(_mm256_loadu_ps(x + i), by)));
  pen_gradient_scalar.scale(n - i, x + i, factor);
}

struct sums {
  __m256d lanes[4];
  uint64_t nonfinite;
};

/* which: 0 for the first 8 of 16 elements, 2 for the others. */
static inline void count8(struct sums *s, int which, __m256 x)
{
  const __m256i exponent = _mm256_set1_epi32(0x7f800000);
  __m256 bad = _mm256_castsi256_ps(_mm256_cmpeq_epi32(
      _mm256_and_si256(_mm256_castps_si256(x), exponent), exponent));
  s->nonfinite += (unsigned)__builtin_popcount(_mm256_movemask_ps(bad));
  x = _mm256_andnot_ps(bad, x);
  __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
  __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
  s->lanes[which] = _mm256_add_pd(s->lanes[which], _mm256_mul_pd(low, low));
  s->lanes[which + 1] =
      _mm256_add_pd(s->lanes[which + 1], _mm256_mul_pd(high, high));
}

static inline void store_lanes(const struct sums *s,
                               double lanes[PEN_SUM_LANES])
{
  for (int i = 0; i < 4; i++)
    _mm256_storeu_pd(lanes + 4 * i, s->lanes[i]);
}

static void finish_bf16(size_t n, const float *grad, uint16_t *stored,
                        double *sumsq, uint64_t *nonfinite)
{
  struct sums s = {0};
  double lanes[PEN_SUM_LANES];
  size_t i = 0;
  for (; n - i >= 16; i += 16) {
    if (grad)
      _mm256_storeu_si256((__m256i *)(stored + i),
                          pen_avx2_to_bf16(_mm256_loadu_ps(grad + i),
                                           _mm256_loadu_ps(grad + i + 8)));
    count8(&s, 0, pen_avx2_load_bf16(stored + i));
    count8(&s, 2, pen_avx2_load_bf16(stored + i + 8));
  }
  store_lanes(&s, lanes);
  for (; i < n; i++) {
    if (grad)
      stored[i] = pen_bf16_from_f32(grad[i]);
    pen_sum_lanes_add(lanes, i, pen_bf16_to_f32(stored[i]), &s.nonfinite);
  }
  *sumsq = pen_sum_lanes_total(lanes);
  *nonfinite += s.nonfinite;
}

static void finish_f32(size_t n, const float *grad, float *stored,
                       double *sumsq, uint64_t *nonfinite)
{
  struct sums s = {0};
  double lanes[PEN_SUM_LANES];
  size_t i = 0;
  for (; n - i >= 16; i += 16) {
    for (int half = 0; grad && half < 2; half++) {
      size_t at = i + 8 * (size_t)half;
      _mm256_storeu_ps(stored + at,
                       pen_avx2_one_nan(_mm256_loadu_ps(grad + at)));
    }
    count8(&s, 0, _mm256_loadu_ps(stored + i));
    count8(&s, 2, _mm256_loadu_ps(stored + i + 8));
  }
  store_lanes(&s, lanes);
  for (; i < n; i++) {
    if (grad)
      stored[i] = isnan(grad[i]) ? pen_f32_from_bits(PEN_NAN_F32_BITS) : grad[i];
    pen_sum_lanes_add(lanes, i, stored[i], &s.nonfinite);
  }
  *sumsq = pen_sum_lanes_total(lanes);
  *nonfinite += s.nonfinite;
}

const struct pen_gradient_row pen_gradient_avx2 = {
  .accumulate = accumulate,
  .scale = scale,
  .finish_bf16 = finish_bf16,
  .finish_f32 = finish_f32,
};
