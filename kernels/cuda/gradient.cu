/* gradient.cu: a gradient from its fp32 sum to what is stored, and the sums of
 * squares of the stored values, with the host's bits (docs/NUMERICS.md, "The
 * norm").
 *
 * A block per chunk.  All threads round and store a tile and leave it in
 * shared memory; sixteen of them then add the squares of their lanes in index
 * order.  Disadvantage: those sixteen are the only busy ones meanwhile; other
 * blocks of the multiprocessor hide it. */
#include "kernels/cuda/elem.cuh"
#include "kernels/cuda/reduce.cuh"

namespace pen_cuda {
namespace {

constexpr unsigned LANES = 16; /* of a chunk's sum */
constexpr size_t TILE = 4096;  /* elements that pass shared memory at once */

struct finish_shared {
  float tile[TILE];
  unsigned nonfinite[THREADS / WARP];
};

/* Exact where the host's own is: the one NaN. */
template <class E> __device__ inline E stored_gradient(float x)
{
  if constexpr (std::is_same_v<E, float>)
    return isnan(x) ? __uint_as_float(0x7fc00000) : x;
  else
    return from_f32<E>(x);
}

template <class E>
__global__ void finish_kernel(size_t n, size_t chunk_elems, const float *grad,
                              E *stored,
                              double *chunk_sumsq,
                              unsigned long long *nonfinite)
{
  auto &shared = shared_memory<finish_shared>();
  size_t begin = blockIdx.x * chunk_elems;
  size_t end = begin + chunk_elems < n ? begin + chunk_elems : n;
  unsigned bad = 0;
  double sum = 0;
  for (size_t base = begin; base < end; base += TILE) {
    size_t count = end - base < TILE ? end - base : TILE;
    for (size_t i = threadIdx.x; i < count; i += THREADS) {
      E y = grad ? stored_gradient<E>(grad[base + i]) : stored[base + i];
      stored[base + i] = y;
      shared.tile[i] = isfinite(to_f32(y)) ? to_f32(y) : 0;
      bad += !isfinite(to_f32(y));
    }
    __syncthreads();
    if (threadIdx.x < LANES)
#pragma unroll 8
      for (size_t i = threadIdx.x; i < count; i += LANES) {
        double x = shared.tile[i];
        sum = fma(x, x, sum); /* the square is exact: one rounding */
      }
    __syncthreads();
  }
  for (unsigned half = LANES / 2; half; half /= 2)
    sum += __shfl_down_sync(FULL_WARP, sum, half);
  bad = reduce_block<THREADS>(bad, plus{}, shared.nonfinite);
  if (threadIdx.x)
    return;
  chunk_sumsq[blockIdx.x] = sum;
  if (bad)
    atomicAdd(nonfinite, (unsigned long long)bad); /* integers: any order */
}

__global__ void zero_count_kernel(unsigned long long *count)
{
  *count = 0;
}

} // namespace
} // namespace pen_cuda

using namespace pen_cuda;

int pen_cuda_gradient_finish(pen_cuda_stream s, enum pen_elem elem, size_t n,
                             size_t chunk_elems, const float *grad,
                             void *stored, double *chunk_sumsq,
                             uint64_t *nonfinite)
{
  auto *count = (unsigned long long *)nonfinite;
  int r = launch(zero_count_kernel, dim3(1), 1, 0, s, count);
  if (r)
    return r;
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    return launch(finish_kernel<E>, dim3((unsigned)ceil_div(n, chunk_elems)),
                  THREADS, sizeof(finish_shared), s, n, chunk_elems, grad,
                  (E *)stored, chunk_sumsq, count);
  });
}
