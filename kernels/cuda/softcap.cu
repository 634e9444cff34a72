/* softcap.cu: x = cap tanh(x / cap) on logits and its backward, with the
 * host's bits.  Disadvantage: a pass of its own over the logits. */
#include "kernels/cuda/elem.cuh"
#include "kernels/cuda/sigmoid.cuh"

namespace pen_cuda {
namespace {

template <int N>
__global__ void softcap_kernel(size_t cols, float cap, float *x, size_t ld)
{
  size_t i = row_pack() * N;
  if (i >= cols)
    return;
  x += blockIdx.x * ld + i;
  float a[N];
  load(a, x);
#pragma unroll
  for (int j = 0; j < N; j++)
    a[j] = cap * tanh_exact(a[j] / cap);
  store(x, a);
}

/* d [rows, cols] *= 1 - (y / cap)^2, y at row stride ld */
template <class E, int N>
__global__ void softcap_backward_kernel(size_t cols, float cap, const float *y,
                                        size_t ld, E *d)
{
  size_t row = blockIdx.x, i = row_pack() * N;
  if (i >= cols)
    return;
  float a[N], b[N];
  load(a, y + row * ld + i);
  load(b, d + row * cols + i);
#pragma unroll
  for (int j = 0; j < N; j++) {
    float t = a[j] / cap;
    b[j] = b[j] * (1.0f - t * t);
  }
  store(d + row * cols + i, b);
}

} // namespace
} // namespace pen_cuda

using namespace pen_cuda;

int pen_cuda_softcap(pen_cuda_stream s, size_t rows, size_t cols, float cap,
                     float *x, size_t ld)
{
  return by_width<float>(
      is_aligned(x) && are_whole<float>(cols, ld), [&](auto width) {
        constexpr int N = width;
        return launch(softcap_kernel<N>, row_grid(rows, cols / N), THREADS, 0,
                      s, cols, cap, x, ld);
      });
}

int pen_cuda_softcap_backward(pen_cuda_stream s, enum pen_elem elem,
                              size_t rows, size_t cols, float cap,
                              const float *y, size_t ld, void *d)
{
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    bool wide = is_aligned(y) && is_aligned(d) && are_whole<E>(cols) &&
                are_whole<float>(ld);
    return by_width<E>(wide, [&](auto width) {
      constexpr int N = width;
      return launch(softcap_backward_kernel<E, N>, row_grid(rows, cols / N),
                    THREADS, 0, s, cols, cap, y, ld, (E *)d);
    });
  });
}
