/* reduce.cuh: sums and maxima over a warp and over a block, in a fixed order. */
#ifndef PEN_KERNELS_CUDA_REDUCE_CUH
#define PEN_KERNELS_CUDA_REDUCE_CUH

#include "kernels/cuda/launch.cuh"

namespace pen_cuda {

struct plus {
  template <class T> __device__ T operator()(T a, T b) const
  {
    return a + b;
  }
};

struct greater {
  __device__ float operator()(float a, float b) const
  {
    return fmaxf(a, b);
  }
  __device__ uint32_t operator()(uint32_t a, uint32_t b) const
  {
    return a > b ? a : b;
  }
};

/* Over the WIDTH neighbouring lanes this one belongs to: lanes at distance
 * WIDTH/2, then WIDTH/4 and so on, so every lane has the same bits. */
template <int WIDTH, class T, class Op>
__device__ inline T reduce_lanes(T x, Op op)
{
#pragma unroll
  for (int distance = WIDTH / 2; distance; distance /= 2)
    x = op(x, __shfl_xor_sync(FULL_WARP, x, distance));
  return x;
}

/* Over all THREADS of the block: within warps, then over warps in order.
 * `slots`: shared, one per warp, used for nothing else until the next
 * barrier. */
template <unsigned THREADS, class T, class Op>
__device__ inline T reduce_block(T x, Op op, T (&slots)[THREADS / WARP])
{
  x = reduce_lanes<WARP>(x, op);
  if (threadIdx.x % WARP == 0)
    slots[threadIdx.x / WARP] = x;
  __syncthreads();
  x = slots[0];
#pragma unroll
  for (unsigned i = 1; i < THREADS / WARP; i++)
    x = op(x, slots[i]);
  return x;
}

} // namespace pen_cuda

#endif
