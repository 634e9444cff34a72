/* attention.cuh: what attention forward and backward share: the choice of a
 * kernel by head dimension, and which keys a query sees. */
#ifndef PEN_KERNELS_CUDA_ATTENTION_CUH
#define PEN_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tile.cuh"

namespace pen_cuda {

constexpr float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;

/* Calls f with the dimension of the smallest kernel that takes dim, as a type;
 * what is beyond dim is computed with zeros. */
template <class F> int by_dim(size_t dim, F f)
{
  if (dim <= 32)
    return f(std::integral_constant<int, 32>{});
  if (dim <= 64)
    return f(std::integral_constant<int, 64>{});
  if (dim <= 96)
    return f(std::integral_constant<int, 96>{});
  if (dim <= 128)
    return f(std::integral_constant<int, 128>{});
  if (dim <= PEN_CUDA_ATTENTION_DIM_MAX)
    return f(std::integral_constant<int, 256>{});
  return cudaErrorInvalidValue;
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
