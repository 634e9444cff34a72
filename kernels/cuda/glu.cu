/* glu.cu: activations, gated (Shazeer 2020) or not, forward and backward, with
 * the host's bits.
 *
 * A block takes a piece of one row, a thread one pack.  Disadvantage: e^x is
 * computed exactly as on the host, some twenty operations where the hardware's
 * own would be two; memory stays the limit. */
#include "kernels/cuda/elem.cuh"
#include "kernels/cuda/sigmoid.cuh"

namespace pen_cuda {
namespace {

/* ---- f(a) and f'(a) ---- */

struct point {
  float value, slope;
};

/* With g = sigmoid(a): f = a g, f' = g (1 + a (1 - g)). */
struct silu {
  __device__ point operator()(float a) const
  {
    float g = sigmoid(a);
    return point{a * g, g * (1.0f + a * (1.0f - g))};
  }
};

/* a (1 + tanh u) / 2 with u = sqrt(2 / pi) (a + 0.044715 a^3); and
 * (1 + tanh u) / 2 = sigmoid(2 u) = g, so f' = g + a g (1 - g) 2 u'. */
struct gelu_tanh {
  __device__ point operator()(float a) const
  {
    float square = a * a;
    float g = sigmoid(1.59576912f * (a + a * square * 0.044715f));
    float two_du = 1.59576912f * (1.0f + square * 0.134145f);
    return point{a * g, g + a * (g * (1.0f - g) * two_du)};
  }
};

/* a times the normal distribution at a. */
struct gelu {
  __device__ point operator()(float a) const
  {
    normal_point n = normal(a);
    return point{a * n.distribution, n.distribution + a * n.density};
  }
};

/* ---- y = f(gate) up ---- */

/* gate, up at row stride ld; y [rows, cols]; up NULL: y = f(gate) */
template <class F, class E, int N>
__global__ void glu_kernel(F f, size_t cols, const E *gate, const E *up,
                           size_t ld, E *y)
{
  size_t row = blockIdx.x, i = row_pack() * N;
  if (i >= cols)
    return;
  float a[N], b[N] = {};
  load(a, gate + row * ld + i);
  if (up)
    load(b, up + row * ld + i);
#pragma unroll
  for (int j = 0; j < N; j++)
    a[j] = f(a[j]).value * (up ? b[j] : 1.0f);
  store(y + row * cols + i, a);
}

template <class F, class E, int N>
__global__ void glu_backward_kernel(F f, size_t cols, const E *dy,
                                    const E *gate, const E *up, size_t ld,
                                    E *dgate, E *dup)
{
  size_t row = blockIdx.x, i = row_pack() * N, at = row * ld + i;
  if (i >= cols)
    return;
  float a[N], b[N] = {}, d[N];
  load(a, gate + at);
  load(d, dy + row * cols + i);
  if (up)
    load(b, up + at);
#pragma unroll
  for (int j = 0; j < N; j++) {
    point p = f(a[j]);
    a[j] = d[j] * (up ? b[j] : 1.0f) * p.slope;
    b[j] = d[j] * p.value;
  }
  store(dgate + at, a);
  if (dup)
    store(dup + at, b);
}

template <class Call> int by_activation(enum pen_activation f, Call call)
{
  switch (f) {
  case PEN_ACTIVATION_SILU:
    return call(silu{});
  case PEN_ACTIVATION_GELU_TANH:
    return call(gelu_tanh{});
  case PEN_ACTIVATION_GELU:
    return call(gelu{});
  }
  return cudaErrorInvalidValue;
}

} // namespace
} // namespace pen_cuda

using namespace pen_cuda;

int pen_cuda_glu(pen_cuda_stream s, enum pen_elem elem, enum pen_activation f,
                 size_t rows, size_t cols, const void *gate, const void *up,
                 size_t ld, void *y)
{
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    bool wide = is_aligned(gate) && is_aligned(up) && is_aligned(y) &&
                are_whole<E>(cols, ld);
    return by_width<E>(wide, [&](auto width) {
      return by_activation(f, [&](auto function) {
        constexpr int N = width;
        return launch(glu_kernel<decltype(function), E, N>,
                      row_grid(rows, cols / N), THREADS, 0, s, function, cols,
                      (const E *)gate, (const E *)up, ld, (E *)y);
      });
    });
  });
}

int pen_cuda_glu_backward(pen_cuda_stream s, enum pen_elem elem,
                          enum pen_activation f, size_t rows, size_t cols,
                          const void *dy, const void *gate, const void *up,
                          size_t ld, void *dgate, void *dup)
{
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    bool wide = is_aligned(dy) && is_aligned(gate) && is_aligned(up) &&
                is_aligned(dgate) && is_aligned(dup) && are_whole<E>(cols, ld);
    return by_width<E>(wide, [&](auto width) {
      return by_activation(f, [&](auto function) {
        constexpr int N = width;
        return launch(glu_backward_kernel<decltype(function), E, N>,
                      row_grid(rows, cols / N), THREADS, 0, s, function, cols,
                      (const E *)dy, (const E *)gate, (const E *)up, ld,
                      (E *)dgate, (E *)dup);
      });
    });
  });
}
