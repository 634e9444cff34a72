/* bias.cu: a vector added to every row, with the host's bits, and its
 * gradient, the sum of the rows.  Disadvantage: a pass of its own, where a
 * product's epilogue could add it. */
#include "kernels/cuda/columns.cuh"

namespace pen_cuda {
namespace {

template <class E, int N>
__global__ void bias_kernel(size_t cols, E *x, size_t ld, const E *bias)
{
  size_t row = blockIdx.x, i = row_pack() * N;
  if (i >= cols)
    return;
  float a[N], b[N];
  load(a, x + row * ld + i);
  load(b, bias + i);
#pragma unroll
  for (int j = 0; j < N; j++)
    a[j] += b[j];
  store(x + row * ld + i, a);
}

template <class E> struct matrix_value {
  const E *x;
  size_t ld;
  __device__ float operator()(size_t row, size_t col) const
  {
    return to_f32(x[row * ld + col]);
  }
};

} // namespace
} // namespace pen_cuda

using namespace pen_cuda;

int pen_cuda_bias(pen_cuda_stream s, enum pen_elem elem, size_t rows,
                  size_t cols, void *x, size_t ld, const void *b)
{
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    bool wide = is_aligned(x) && is_aligned(b) && are_whole<E>(cols, ld);
    return by_width<E>(wide, [&](auto width) {
      constexpr int N = width;
      return launch(bias_kernel<E, N>, row_grid(rows, cols / N), THREADS, 0, s,
                    cols, (E *)x, ld, (const E *)b);
    });
  });
}

int pen_cuda_bias_backward(pen_cuda_stream s, enum pen_elem elem, size_t rows,
                           size_t cols, const void *dy, size_t ld, float *db,
                           float *partials)
{
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    matrix_value<E> value = {(const E *)dy, ld};
    return sum_columns(s, rows, cols, value, partials, db);
  });
}
