/* tile.cuh: matrices in shared memory and their products by a warp; what
 * attention is made of.
 *
 * Both element types use the same layout of results in registers, that of
 * mma.m16n8k16 (ptx.cuh): acc[m][n][0..3] of a lane with g = lane/4, t = lane%4
 * is row 16 m + g at columns 8 n + 2t, 2t+1, then row 16 m + g + 8 at the same.
 * bf16 multiplies on tensor cores and adds in fp32; fp32 is fused multiply-adds
 * in the order of k. */
#ifndef PEN_KERNELS_CUDA_TILE_CUH
#define PEN_KERNELS_CUDA_TILE_CUH

#include "kernels/cuda/elem.cuh"
#include "kernels/cuda/ptx.cuh"

namespace pen_cuda {

/* Sixteen bytes more than the row itself: rows then begin four banks apart,
 * and eight of them cover all banks. */
template <class E, int DIM> constexpr int PITCH = DIM + 16 / (int)sizeof(E);

/* ROWS x DIM in shared memory. */
template <class E, int ROWS, int DIM> struct alignas(16) tile {
  E v[ROWS * PITCH<E, DIM>];
  __device__ E *row(int i)
  {
    return v + i * PITCH<E, DIM>;
  }
};

/* Registers of a warp's result of 16 M rows and N columns. */
template <int M, int N> struct accumulator {
  float v[M][N / 8][4];
};

/* Begins to copy n rows of dim elements (stride ld) into a tile of ROWS x DIM;
 * what is beyond them becomes 0.  Complete for the block after ptx_copy_wait
 * and a barrier.  wide: rows begin at 16 bytes and are whole 16 bytes. */
template <unsigned THREADS, class E, int ROWS, int DIM>
__device__ inline void tile_load(tile<E, ROWS, DIM> &to, const E *from,
                                 size_t ld, size_t n, size_t dim, bool wide)
{
  constexpr unsigned N = 16 / sizeof(E), PACKS = DIM / N;
  if (wide) {
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < ROWS * PACKS; i += THREADS) {
      unsigned row = i / PACKS, col = i % PACKS * N;
      bool real = row < n && col < dim;
      ptx_copy_async(to.row(row) + col, real ? from + row * ld + col : from,
                     real ? 16 : 0);
    }
  } else {
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < ROWS * DIM; i += THREADS) {
      unsigned row = i / DIM, col = i % DIM;
      to.row(row)[col] =
          row < n && col < dim ? from[row * ld + col] : from_f32<E>(0);
    }
  }
}

/* acc += X Y^T: X the 16 M rows from x on, Y the N rows from y on, both of
 * pitch PITCH<E, DIM>. */
template <int DIM, int M, int N>
__device__ inline void multiply_rows(accumulator<M, N> &acc, const bf16 *x,
                                     const bf16 *y)
{
  constexpr int P = PITCH<bf16, DIM>, BYTES = sizeof(bf16);
  int lane = threadIdx.x % WARP;
  ptx_shared from_x = ptx_shared_of(x + lane % 16 * P + lane / 16 * 8);
  ptx_shared from_y = ptx_shared_of(y + (lane % 8 + lane / 16 * 8) * P +
                                    lane / 8 % 2 * 8);
#pragma unroll 2 /* all of it costs registers that dk and dv need */
  for (int k = 0; k < DIM; k += 16) {
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; m++)
      ptx_load_matrices(a[m], from_x + (m * 16 * P + k) * BYTES);
#pragma unroll
    for (int n = 0; n < N; n += 16) {
      uint32_t b[4]; /* rows k, k+8 of columns n, then of columns n+8 */
      ptx_load_matrices(b, from_y + (n * P + k) * BYTES);
#pragma unroll
      for (int m = 0; m < M; m++) {
        ptx_mma_bf16(acc.v[m][n / 8], a[m], b[0], b[1]);
        ptx_mma_bf16(acc.v[m][n / 8 + 1], a[m], b[2], b[3]);
      }
    }
  }
}

template <int DIM, int M, int N>
__device__ inline void multiply_rows(accumulator<M, N> &acc, const float *x,
                                     const float *y)
{
  constexpr int P = PITCH<float, DIM>;
  int lane = threadIdx.x % WARP;
  x += lane / 4 * P;
  y += lane % 4 * 2 * P;
#pragma unroll 1
  for (int k = 0; k < DIM; k += 4) {
    float a[M][2][4];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int i = 0; i < 2; i++)
        load(a[m][i], x + (m * 16 + i * 8) * P + k);
#pragma unroll
    for (int n = 0; n < N; n += 8)
#pragma unroll
      for (int j = 0; j < 2; j++) {
        float b[4];
        load(b, y + (n + j) * P + k);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
          for (int i = 0; i < 2; i++)
#pragma unroll
            for (int c = 0; c < 4; c++)
              acc.v[m][n / 8][2 * i + j] =
                  fmaf(a[m][i][c], b[c], acc.v[m][n / 8][2 * i + j]);
      }
  }
}

/* acc += P Y: P [16 M, K] in registers, rounded to E; Y the K rows from y on,
 * N columns of pitch PITCH<E, DIM>. */
template <int DIM, int M, int K, int N>
__device__ inline void multiply_columns(accumulator<M, N> &acc,
                                        const accumulator<M, K> &p,
                                        const bf16 *y)
{
  constexpr int P = PITCH<bf16, DIM>, BYTES = sizeof(bf16);
  int lane = threadIdx.x % WARP;
  ptx_shared from_y = ptx_shared_of(y + lane % 16 * P + lane / 16 * 8);
#pragma unroll
  for (int k = 0; k < K; k += 16) {
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float *pair = &p.v[m][k / 8 + i / 2][i % 2 * 2];
        a[m][i] = ptx_pack_bf16(pair[0], pair[1]);
      }
#pragma unroll
    for (int n = 0; n < N; n += 16) {
      uint32_t b[4]; /* rows k, k+8 of columns n, then of columns n+8 */
      ptx_load_transposed(b, from_y + (k * P + n) * BYTES);
#pragma unroll
      for (int m = 0; m < M; m++) {
        ptx_mma_bf16(acc.v[m][n / 8], a[m], b[0], b[1]);
        ptx_mma_bf16(acc.v[m][n / 8 + 1], a[m], b[2], b[3]);
      }
    }
  }
}

template <int DIM, int M, int K, int N>
__device__ inline void multiply_columns(accumulator<M, N> &acc,
                                        const accumulator<M, K> &p,
                                        const float *y)
{
  constexpr int P = PITCH<float, DIM>;
  int lane = threadIdx.x % WARP;
  y += lane % 4 * 2;
#pragma unroll
  for (int k = 0; k < K; k++) {
    float a[M][2]; /* column k lies in the lane of this row that has it */
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int i = 0; i < 2; i++)
        a[m][i] = __shfl_sync(FULL_WARP, p.v[m][k / 8][2 * i + k % 2],
                              lane / 4 * 4 + k % 8 / 2);
#pragma unroll
    for (int n = 0; n < N; n += 8) {
      float b[2];
      load(b, y + k * P + n);
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          acc.v[m][n / 8][i] = fmaf(a[m][i / 2], b[i % 2], acc.v[m][n / 8][i]);
    }
  }
}

/* Calls f(x, m, half, row, col) for each pair x[0], x[1] of neighbours among a
 * lane's results: row = 16 m + 8 half + lane/4, columns col and col + 1. */
template <int M, int N, class F>
__device__ inline void each_pair(accumulator<M, N> &acc, F f)
{
  int lane = threadIdx.x % WARP;
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int n = 0; n < N / 8; n++)
        f(&acc.v[m][n][2 * half], m, half, m * 16 + half * 8 + lane / 4,
          n * 8 + lane % 4 * 2);
}

/* y (row, col) = acc factor[m][half], for the first rows x cols; cols is even.
 * wide: y and ld are multiples of two elements. */
template <class E, int M, int N>
__device__ inline void store_result(E *y, size_t ld, int rows, int cols,
                                    bool wide, accumulator<M, N> &acc,
                                    const float (&factor)[M][2])
{
  each_pair(acc, [&](float *x, int m, int half, int row, int col) {
    if (row >= rows || col >= cols)
      return;
    float pair[2] = {x[0] * factor[m][half], x[1] * factor[m][half]};
    E *at = y + row * ld + col;
    if (wide) {
      store(at, pair);
    } else {
      at[0] = from_f32<E>(pair[0]);
      at[1] = from_f32<E>(pair[1]);
    }
  });
}

} // namespace pen_cuda

#endif
