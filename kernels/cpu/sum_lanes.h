/* sum_lanes.h: what every level does alike to the norm's interleaved lanes:
 * adding one element, and the fixed tree at the end. */
#ifndef PEN_KERNELS_CPU_SUM_LANES_H
#define PEN_KERNELS_CPU_SUM_LANES_H

#include <math.h>

#include "kernels/cpu/rows.h"

/* Element i of a chunk; the square of an fp32 number is exact in double. */
static inline void pen_sum_lanes_add(double lanes[PEN_SUM_LANES], size_t i,
                                     float x, uint64_t *nonfinite)
{
  if (isfinite(x))
    lanes[i % PEN_SUM_LANES] += (double)x * (double)x;
  else
    ++*nonfinite;
}

/* Destroys lanes. */
static inline double pen_sum_lanes_total(double lanes[PEN_SUM_LANES])
{
  for (size_t half = PEN_SUM_LANES / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; i++)
      lanes[i] += lanes[i + half];
  return lanes[0];
}

#endif
