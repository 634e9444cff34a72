/* sigmoid.cuh: the logistic function, tanh and the normal distribution, with
 * the host's bits (kernels/cpu/sigmoid.h has their derivations). */
#ifndef PEN_KERNELS_CUDA_SIGMOID_CUH
#define PEN_KERNELS_CUDA_SIGMOID_CUH

#include "kernels/cuda/exp.cuh"

namespace pen_cuda {

__device__ inline float sigmoid(float x)
{
  return 1.0f / (1.0f + exp_exact(0.0f - x));
}

/* coefficients, the highest power first; two roundings a step. */
template <int N>
__device__ inline float polynomial(float x, const float (&coefficients)[N])
{
  float y = coefficients[0];
#pragma unroll
  for (int i = 1; i < N; i++)
    y = coefficients[i] + y * x;
  return y;
}

/* 1 - 2 / (e^2x + 1); near 0 x + x^3 p(x^2). */
__device__ inline float tanh_exact(float x)
{
  const float p[] = {-0.00626911972f, 0.0211109590f, -0.0538739488f,
                     0.133329154f, -0.333333303f};
  float square = x * x;
  if (square < 0.36f)
    return x + x * square * polynomial(square, p);
  return 1.0f - 2.0f / (exp_exact(2.0f * x) + 1.0f);
}

struct normal_point {
  float density, distribution;
};

/* Of the standard normal: the tail is t e^(p(t) - x^2 / 2) / 2 with
 * t = 1 / (1 + |x| / (2 sqrt 2)). */
__device__ inline normal_point normal(float x)
{
  const float p[] = {0.124151997f,   -0.566005489f, 0.881987073f,
                     -0.323510394f,  -0.395447834f, 0.173041447f,
                     -0.0255774391f, 0.399673926f,  0.997053297f,
                     -1.26536655f};
  float minus = 0.0f - x, size = minus < x ? x : minus;
  float t = 1.0f / (1.0f + size * 0.353553391f);
  float minus_z2 = x * x * -0.5f;
  float tail = 0.5f * (t * exp_exact(minus_z2 + polynomial(t, p)));
  return normal_point{0.398942280f * exp_exact(minus_z2),
                      0.0f < x ? 1.0f - tail : tail};
}

} // namespace pen_cuda

#endif
