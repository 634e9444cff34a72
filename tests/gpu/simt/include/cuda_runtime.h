/* cuda_runtime.h (stand-in): as much of CUDA's as the project's .cu files use.
 * What lanes do together is out of line, in ../engine.cc. */
#ifndef PEN_TESTS_GPU_SIMT_INCLUDE_CUDA_RUNTIME_H
#define PEN_TESTS_GPU_SIMT_INCLUDE_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <tuple>
#include <type_traits>

#include "tests/gpu/simt/simt.h"

#define __global__
#define __device__
#define __host__
#define __shared__
#define __launch_bounds__(...)

struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
      : x(x_), y(y_), z(z_)
  {
  }
};

/* ---- the thread that runs ---- */

/* A copy from global to shared memory that was begun. */
struct simt_copy {
  void *to;
  const void *from;
  unsigned bytes;
};

constexpr unsigned SIMT_COPIES_MAX = 512;

/* The engine sets these whenever it goes on with a thread. */
extern __thread uint3 threadIdx, blockIdx;
extern __thread dim3 blockDim, gridDim;

/* Copies of the thread that runs which were begun and not waited for. */
struct simt_copies {
  unsigned n;
  simt_copy list[SIMT_COPIES_MAX];
};
extern __thread simt_copies *simt_current_copies;

/* Where a call stands, for messages and to tell barriers apart. */
struct simt_site {
  const char *file;
  int line;
};
#define SIMT_HERE simt_site{file, line}
#define SIMT_SITE_ARGS                                                        \
  const char *file = __builtin_FILE(), int line = __builtin_LINE()

/* Waits for all threads of the block; whether any gave true. */
bool simt_block_barrier(simt_site site, bool vote);
/* Waits for all lanes of the warp; `orders`: and orders memory among them. */
void simt_warp_barrier(simt_site site, unsigned mask, bool orders);
/* Gives `bytes` bytes (at most SIMT_EXCHANGE_MAX) to the other lanes and waits
 * for theirs: lane i's lie at i * SIMT_EXCHANGE_MAX, until the second exchange
 * from now. */
constexpr size_t SIMT_EXCHANGE_MAX = 32;
const unsigned char *simt_exchange(simt_site site, unsigned mask,
                                   const void *mine, size_t bytes);

inline void __syncthreads(SIMT_SITE_ARGS)
{
  simt_block_barrier(SIMT_HERE, false);
}

inline int __syncthreads_or(int vote, SIMT_SITE_ARGS)
{
  return simt_block_barrier(SIMT_HERE, vote != 0);
}

inline void __syncwarp(unsigned mask = 0xffffffff, SIMT_SITE_ARGS)
{
  simt_warp_barrier(SIMT_HERE, mask, true);
}

/* The T that `lane` gave. */
template <class T> T simt_given(const unsigned char *all, unsigned lane)
{
  T x;
  memcpy(&x, all + lane % 32 * SIMT_EXCHANGE_MAX, sizeof x);
  return x;
}

template <class T>
T __shfl_sync(unsigned mask, T x, int lane, SIMT_SITE_ARGS)
{
  return simt_given<T>(simt_exchange(SIMT_HERE, mask, &x, sizeof x), lane);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T x, int distance, SIMT_SITE_ARGS)
{
  const unsigned char *all = simt_exchange(SIMT_HERE, mask, &x, sizeof x);
  return simt_given<T>(all, threadIdx.x % 32 ^ distance);
}

template <class T>
T __shfl_down_sync(unsigned mask, T x, unsigned distance, SIMT_SITE_ARGS)
{
  const unsigned char *all = simt_exchange(SIMT_HERE, mask, &x, sizeof x);
  unsigned lane = threadIdx.x % 32;
  return simt_given<T>(all, lane + distance < 32 ? lane + distance : lane);
}

inline unsigned __ballot_sync(unsigned mask, int vote, SIMT_SITE_ARGS)
{
  int mine = vote != 0;
  const unsigned char *all = simt_exchange(SIMT_HERE, mask, &mine, sizeof mine);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; lane++)
    votes |= (unsigned)simt_given<int>(all, lane) << lane;
  return votes;
}

inline int __popc(unsigned x)
{
  return __builtin_popcount(x);
}

unsigned long long atomicAdd(unsigned long long *to, unsigned long long x);

/* ---- numbers ---- */

inline uint32_t __float_as_uint(float x)
{
  return __builtin_bit_cast(uint32_t, x);
}

inline float __uint_as_float(uint32_t x)
{
  return __builtin_bit_cast(float, x);
}

/* ---- launches ---- */

typedef struct CUstream_st *cudaStream_t;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute what,
                                 int value);

/* A launch that waits to be run; its arguments are the kernel's alone. */
struct simt_launch {
  dim3 grid;
  unsigned threads;
  size_t shared_bytes;
  const void *kernel;
  virtual void run_thread() = 0;
  virtual ~simt_launch()
  {
  }
};

/* Checks limits, then hands over to simt_submit; owns `launch` from now on. */
cudaError_t simt_begin(const cudaLaunchConfig_t *config, simt_launch *launch);

template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config,
                               void (*kernel)(Params...), Args &&...args)
{
  struct typed final : simt_launch {
    void (*function)(Params...);
    std::tuple<std::decay_t<Params>...> arguments;
    typed(void (*f)(Params...), Args &&...a) : function(f), arguments(a...)
    {
    }
    void run_thread() override
    {
      std::apply(function, arguments);
    }
  };
  auto *launch = new typed(kernel, static_cast<Args &&>(args)...);
  launch->kernel = (const void *)kernel;
  return simt_begin(config, launch);
}

#endif
