/* attention.cuh: what attention forward and backward share: the choice of a
 * kernel, which keys a query sees, and soft caps. */
#ifndef PEN_KERNELS_CUDA_ATTENTION_CUH
#define PEN_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/sigmoid.cuh"
#include "kernels/cuda/tile.cuh"

namespace pen_cuda {

constexpr float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;

/* Calls f with the dimension of the smallest kernel that takes a's, and whether
 * it caps scores, as types; what is beyond a's dimension is computed with zeros.
 * Capping kernels are of two sizes, those of the models that have caps. */
template <class F> int by_kernel(const struct pen_attention &a, F f)
{
  if (a.softcap != 0 && a.dim <= 128)
    return f(std::integral_constant<int, 128>{}, std::true_type{});
  if (a.softcap != 0 && a.dim <= PEN_CUDA_ATTENTION_DIM_MAX)
    return f(std::integral_constant<int, 256>{}, std::true_type{});
  if (a.dim <= 32)
    return f(std::integral_constant<int, 32>{}, std::false_type{});
  if (a.dim <= 64)
    return f(std::integral_constant<int, 64>{}, std::false_type{});
  if (a.dim <= 96)
    return f(std::integral_constant<int, 96>{}, std::false_type{});
  if (a.dim <= 128)
    return f(std::integral_constant<int, 128>{}, std::false_type{});
  if (a.dim <= PEN_CUDA_ATTENTION_DIM_MAX)
    return f(std::integral_constant<int, 256>{}, std::false_type{});
  return cudaErrorInvalidValue;
}

/* With CAPPED scores q k become cap tanh(scale q k / cap).  Returns what they
 * are still to be multiplied by to be exponents of 2. */
template <bool CAPPED, int M, int N>
__device__ inline float cap_scores(const struct pen_attention &a,
                                   accumulator<M, N> &scores)
{
  if (!CAPPED)
    return a.scale * LOG2E;
  float by = a.scale / a.softcap;
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float &x = scores.v[m][n][i];
        x = a.softcap * tanh_exact(x * by);
      }
  return LOG2E;
}

/* The slope of the cap where it gave this score. */
__device__ inline float cap_slope(float score, float softcap)
{
  float y = score / softcap;
  return 1.0f - y * y;
}


__device__ inline size_t at_most(size_t n, size_t most)
{
  return n < most ? n : most;
}

/* Token t sees [first_key[t], t]; tokens are counted in 32 bits, as first_key
 * does. */
__device__ inline bool is_seen(uint32_t key, uint32_t query,
                               uint32_t first_key)
{
  return first_key <= key && key <= query;
}

} // namespace pen_cuda

#endif
