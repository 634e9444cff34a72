/* exp.cuh: e^x with the bits of the host's (v16_exp of kernels/cpu/v16.h). */
#ifndef PEN_KERNELS_CUDA_EXP_CUH
#define PEN_KERNELS_CUDA_EXP_CUH

#include "kernels/cuda/launch.cuh"

namespace pen_cuda {

/* Within 1.5 ulp for x in [-87.3, 88.37]; 0 below, Inf above, NaN for NaN.
 * x = k ln2 + r (Cody and Waite), e^r by its Taylor series to r^7, 2^k by its
 * bits.  One rounding per operator: built with -fmad=false. */
__device__ inline float exp_exact(float x)
{
  const float log2e = 1.44269504f, shift = 12582912.0f; /* 1.5 * 2^23 */
  const float ln2_high = 0.693145751953125f, ln2_low = 1.42860682030941723e-6f;
  if (x < -87.3f)
    return 0;
  if (x > 88.37f)
    return __uint_as_float(0x7f800000);
  float t = x * log2e + shift;
  float k = t - shift;
  float r = (x - k * ln2_high) - k * ln2_low;
  float e = r * (1.0f / 5040) + 1.0f / 720;
  e = e * r + 1.0f / 120;
  e = e * r + 1.0f / 24;
  e = e * r + 1.0f / 6;
  e = e * r + 0.5f;
  e = e * (r * r) + r;
  e = e + 1.0f;
  uint32_t exponent = __float_as_uint(t) - 0x4b400000; /* k as an integer */
  return e * __uint_as_float((exponent + 127) << 23);
}

} // namespace pen_cuda

#endif
