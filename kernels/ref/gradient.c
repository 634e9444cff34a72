/* ref/gradient.c: accumulating and finishing gradients in plain C; the
 * definition every other level is held against.
 *
 * Each lane adds in index order.  Disadvantage: the lanes live in memory. */
#include <math.h>

#include "kernels/bf16.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/sum_lanes.h"

static inline float one_nan(float x)
{
  return isnan(x) ? pen_f32_from_bits(PEN_NAN_F32_BITS) : x;
}

static void accumulate(size_t n, float *sum, const float *add)
{
  for (size_t i = 0; i < n; i++)
    sum[i] = one_nan(sum[i] + add[i]);
}

static void scale(size_t n, float *x, float factor)
{
  for (size_t i = 0; i < n; i++)
    x[i] = one_nan(x[i] * factor);
}

static void finish_bf16(size_t n, const float *grad, uint16_t *stored,
                        double *sumsq, uint64_t *nonfinite)
{
  double lanes[PEN_SUM_LANES] = {0};
  for (size_t i = 0; i < n; i++) {
    if (grad)
      stored[i] = pen_bf16_from_f32(grad[i]);
    pen_sum_lanes_add(lanes, i, pen_bf16_to_f32(stored[i]), nonfinite);
  }
  *sumsq = pen_sum_lanes_total(lanes);
}

static void finish_f32(size_t n, const float *grad, float *stored,
                       double *sumsq, uint64_t *nonfinite)
{
  double lanes[PEN_SUM_LANES] = {0};
  for (size_t i = 0; i < n; i++) {
    if (grad)
      stored[i] = one_nan(grad[i]);
    pen_sum_lanes_add(lanes, i, stored[i], nonfinite);
  }
  *sumsq = pen_sum_lanes_total(lanes);
}

const struct pen_gradient_row pen_gradient_scalar = {
  .accumulate = accumulate,
  .scale = scale,
  .finish_bf16 = finish_bf16,
  .finish_f32 = finish_f32,
};
