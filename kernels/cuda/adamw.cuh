/* adamw.cuh: one AdamW step of one element, with the host's bits: the same IEEE
 * operations in the same order as kernels/ref/adamw.c. */
#ifndef PEN_KERNELS_CUDA_ADAMW_CUH
#define PEN_KERNELS_CUDA_ADAMW_CUH

#include "kernels/cuda/launch.cuh"

namespace pen_cuda {

__device__ inline float one_nan(float x)
{
  return isnan(x) ? __uint_as_float(0x7fc00000) : x;
}

/* A moment as it is stored: below the smallest normal it is 0. */
__device__ inline float stored_moment(float x)
{
  if ((__float_as_uint(x) & 0x7fffffff) < 0x00800000)
    return 0;
  return one_nan(x);
}

__device__ inline void adamw_step(const struct pen_adamw_params &c,
                                  float decay, float grad, float &p, float &m,
                                  float &v)
{
  float g = c.factor * grad;
  m = stored_moment(m + c.one_minus_beta1 * (g - m));
  v = stored_moment(c.beta2 * v + (c.one_minus_beta2 * g) * g);
  float step = c.step_size * (m / (sqrtf(v) + c.eps));
  /* + 0 makes a step of -0 into +0, which leaves a weight of -0 alone. */
  p = one_nan(decay * p - (step + 0.0f));
}

} // namespace pen_cuda

#endif
