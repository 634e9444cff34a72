/* columns.cuh: sums over the rows of a matrix whose elements are computed on
 * the fly: the gradients of norms' weights and of biases. */
#ifndef PEN_KERNELS_CUDA_COLUMNS_CUH
#define PEN_KERNELS_CUDA_COLUMNS_CUH

#include "kernels/cuda/elem.cuh"

namespace pen_cuda {

constexpr unsigned COLUMN_THREADS = 128;
constexpr unsigned SUM_GROUPS = 16;

/* partials [chunks, cols] = the sum of value(row, col) over the rows of a
 * chunk, in row order; a thread owns a column of a chunk. */
template <class Value>
__global__ void column_partials(size_t rows, size_t cols, Value value,
                                float *partials)
{
  size_t chunk = blockIdx.x;
  size_t col = (size_t)blockIdx.y * COLUMN_THREADS + threadIdx.x;
  if (col >= cols)
    return;
  size_t begin = chunk * PEN_OPS_ROW_CHUNK;
  size_t end = begin + PEN_OPS_ROW_CHUNK < rows ? begin + PEN_OPS_ROW_CHUNK
                                                : rows;
  float sum = 0;
#pragma unroll 8
  for (size_t row = begin; row < end; row++)
    sum += value(row, col);
  partials[chunk * cols + col] = sum;
}

/* out [cols] += the sum of partials [chunks, cols].  A warp has 32 columns and
 * every SUM_GROUPS-th chunk; then the groups are added in order. */
static __global__ void sum_partials(size_t chunks, size_t cols,
                                    const float *partials, float *out)
{
  auto &sums = shared_memory<float[SUM_GROUPS][WARP]>();
  unsigned lane = threadIdx.x % WARP, group = threadIdx.x / WARP;
  size_t col = (size_t)blockIdx.x * WARP + lane;
  float sum = 0;
  if (col < cols)
#pragma unroll 8
    for (size_t chunk = group; chunk < chunks; chunk += SUM_GROUPS)
      sum += partials[chunk * cols + col];
  sums[group][lane] = sum;
  __syncthreads();
  if (group || col >= cols)
    return;
  for (unsigned i = 1; i < SUM_GROUPS; i++)
    sum += sums[i][lane];
  out[col] += sum;
}

/* out [cols] += sum over rows of value(row, col). */
template <class Value>
int sum_columns(pen_cuda_stream s, size_t rows, size_t cols, Value value,
                float *partials, float *out)
{
  size_t chunks = ceil_div(rows, PEN_OPS_ROW_CHUNK);
  dim3 grid((unsigned)chunks,
            (unsigned)ceil_div<size_t>(cols, COLUMN_THREADS));
  int r = launch(column_partials<Value>, grid, COLUMN_THREADS, 0, s, rows, cols,
                 value, partials);
  if (r)
    return r;
  return launch(sum_partials, dim3((unsigned)ceil_div<size_t>(cols, WARP)),
                SUM_GROUPS * WARP, sizeof(float[SUM_GROUPS][WARP]), s, chunks,
                cols, partials, out);
}

} // namespace pen_cuda

#endif
