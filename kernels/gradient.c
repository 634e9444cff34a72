/* gradient.c: cuts a gradient into norm chunks, and turns their sums into the
 * norm and the factor.
 *
 * The order of every sum is fixed by element index alone.  No state; any
 * thread.  Disadvantage: the total is plain double, so a norm over n chunks
 * may be off by about n/16 roundings of 2^-53. */
#include "kernels/gradient.h"

#include <math.h>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/sum_lanes.h"
#include "kernels/fpmode.h"

static const struct pen_gradient_row *const rows[PEN_ISA_COUNT] =
    PEN_ISA_ROWS(gradient);

void pen_gradient_accumulate(enum pen_isa isa, size_t n, float *sum,
                             const float *add)
{
  uint64_t outer = pen_fpmode_begin();
  rows[isa]->accumulate(n, sum, add);
  pen_fpmode_set(outer);
}

void pen_gradient_scale(enum pen_isa isa, size_t n, float *x, float factor)
{
  uint64_t outer = pen_fpmode_begin();
  rows[isa]->scale(n, x, factor);
  pen_fpmode_set(outer);
}

uint64_t pen_gradient_finish_bf16(enum pen_isa isa, size_t n,
                                  size_t chunk_elems, const float *grad,
                                  uint16_t *stored, double *chunk_sumsq)
{
  uint64_t nonfinite = 0;
  uint64_t outer = pen_fpmode_begin();
  for (size_t at = 0; at < n; at += chunk_elems) {
    size_t count = n - at < chunk_elems ? n - at : chunk_elems;
    rows[isa]->finish_bf16(count, grad ? grad + at : NULL,
                           stored + at, chunk_sumsq++, &nonfinite);
  }
  pen_fpmode_set(outer);
  return nonfinite;
}

uint64_t pen_gradient_finish_f32(enum pen_isa isa, size_t n,
                                 size_t chunk_elems, const float *grad,
                                 float *stored, double *chunk_sumsq)
{
  uint64_t nonfinite = 0;
  uint64_t outer = pen_fpmode_begin();
  for (size_t at = 0; at < n; at += chunk_elems) {
    size_t count = n - at < chunk_elems ? n - at : chunk_elems;
    rows[isa]->finish_f32(count, grad ? grad + at : NULL,
                          stored + at, chunk_sumsq++, &nonfinite);
  }
  pen_fpmode_set(outer);
  return nonfinite;
}

double pen_gradient_total(size_t n, const double *chunk_sumsq)
{
  double lanes[PEN_SUM_LANES] = {0};
  for (size_t i = 0; i < n; i++)
    lanes[i % PEN_SUM_LANES] += chunk_sumsq[i];
  return pen_sum_lanes_total(lanes);
}

float pen_gradient_factor(double sumsq, double scale, double max_norm,
                          double *ret_norm)
{
  double norm = sqrt(sumsq) * scale;
  double clip = 1;
  if (max_norm > 0 && max_norm < norm + 1e-6)
    clip = max_norm / (norm + 1e-6);
  *ret_norm = norm;
  return (float)(scale * clip);
}
