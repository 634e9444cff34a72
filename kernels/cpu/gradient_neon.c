/* cpu/gradient_neon.c: gradients, 4 elements at a time, 16 for the norm, whose
 * 16 lanes are eight registers of doubles.  The last few elements of a chunk
 * are added to the lanes one by one, in the same order.
 * Disadvantage: that end is plain C, up to 15 elements of a chunk. */
#include "kernels/cpu/neon.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/sum_lanes.h"

static void accumulate(size_t n, float *sum, const float *add)
{
  size_t i = 0;
  for (; n - i >= 4; i += 4)
    vst1q_f32(sum + i, pen_neon_one_nan(
                           vaddq_f32(vld1q_f32(sum + i), vld1q_f32(add + i))));
  pen_gradient_scalar.accumulate(n - i, sum + i, add + i);
}

static void scale(size_t n, float *x, float factor)
{
  size_t i = 0;
  for (; n - i >= 4; i += 4)
    vst1q_f32(x + i, pen_neon_one_nan(
                         vmulq_f32(vld1q_f32(x + i), vdupq_n_f32(factor))));
  pen_gradient_scalar.scale(n - i, x + i, factor);
}

struct sums {
  float64x2_t lanes[8];
  uint64_t nonfinite;
};

/* quarter: which 4 of 16 elements. */
static inline void count4(struct sums *s, int quarter, float32x4_t x)
{
  const uint32x4_t exponent = vdupq_n_u32(0x7f800000);
  uint32x4_t bits = vreinterpretq_u32_f32(x);
  uint32x4_t bad = vceqq_u32(vandq_u32(bits, exponent), exponent);
  s->nonfinite += vaddvq_u32(vshrq_n_u32(bad, 31));
  x = vreinterpretq_f32_u32(vbicq_u32(bits, bad));
  float64x2_t low = vcvt_f64_f32(vget_low_f32(x));
  float64x2_t high = vcvt_high_f64_f32(x);
  float64x2_t *lanes = s->lanes + 2 * quarter;
  lanes[0] = vaddq_f64(lanes[0], vmulq_f64(low, low));
  lanes[1] = vaddq_f64(lanes[1], vmulq_f64(high, high));
}

static inline void store_lanes(const struct sums *s,
                               double lanes[PEN_SUM_LANES])
{
  for (int i = 0; i < 8; i++)
    vst1q_f64(lanes + 2 * i, s->lanes[i]);
}

static void finish_bf16(size_t n, const float *grad, uint16_t *stored,
                        double *sumsq, uint64_t *nonfinite)
{
  struct sums s = {0};
  double lanes[PEN_SUM_LANES];
  size_t i = 0;
  for (; n - i >= 16; i += 16) {
    for (int quarter = 0; quarter < 4; quarter++) {
      size_t at = i + 4 * (size_t)quarter;
      if (grad)
        vst1_u16(stored + at, pen_neon_to_bf16(vld1q_f32(grad + at)));
      count4(&s, quarter, pen_neon_load_bf16(stored + at));
    }
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
    for (int quarter = 0; quarter < 4; quarter++) {
      size_t at = i + 4 * (size_t)quarter;
      if (grad)
        vst1q_f32(stored + at, pen_neon_one_nan(vld1q_f32(grad + at)));
      count4(&s, quarter, vld1q_f32(stored + at));
    }
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

const struct pen_gradient_row pen_gradient_neon = {
  .accumulate = accumulate,
  .scale = scale,
  .finish_bf16 = finish_bf16,
  .finish_f32 = finish_f32,
};
