/* launch.cuh: how kernels are started, and how they name their shared memory.
 *
 * launch() is a function, not <<< >>>, so that arguments are checked and the
 * same source compiles for the tests' stand-in (tests/gpu/simt). */
#ifndef PEN_KERNELS_CUDA_LAUNCH_CUH
#define PEN_KERNELS_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"

namespace pen_cuda {

/* What every device gives a block without being asked. */
constexpr size_t SHARED_BYTES_PLAIN = 48 * 1024;
/* What every target gives one that asks (sm_86, 89 and 120 the least). */
constexpr size_t SHARED_BYTES_MAX = 99 * 1024;

constexpr unsigned WARP = 32;
constexpr unsigned FULL_WARP = 0xffffffff;

template <class T> __host__ __device__ constexpr T ceil_div(T n, T d)
{
  return (n + d - 1) / d;
}

/* Queues kernel(args...) on `grid` blocks of `threads`, each with shared_bytes
 * of memory for shared_memory<T>(); nothing where the grid is empty. */
template <class... Params, class... Args>
int launch(void (*kernel)(Params...), dim3 grid, unsigned threads,
           size_t shared_bytes, pen_cuda_stream stream, Args... args)
{
  if (!grid.x || !grid.y || !grid.z)
    return 0;
  if (shared_bytes > SHARED_BYTES_PLAIN) {
    cudaError_t r = cudaFuncSetAttribute(
        (const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
        (int)shared_bytes);
    if (r != cudaSuccess)
      return r;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, Params(args)...);
}

/* The block's shared memory as a T. */
template <class T> __device__ inline T &shared_memory()
{
  extern __shared__ uint4 pen_cuda_shared[];
  static_assert(sizeof(T) <= SHARED_BYTES_MAX, "more than a block can have");
  return *reinterpret_cast<T *>(pen_cuda_shared);
}

} // namespace pen_cuda

#endif
