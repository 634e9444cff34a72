/* flat.cu: operations on arrays without shape: residual add, rounding, zero.
 *
 * A thread moves one pack of 16 bytes; the ends, and arrays that are not
 * aligned, go element by element.  Disadvantage: each is a pass over memory of
 * its own; nothing is fused into the products. */
#include "kernels/cuda/elem.cuh"

namespace pen_cuda {
namespace {

/* Runs op(i, N) for packs of N and op(i, 1) for the rest. */
template <int N, class Op> __global__ void flat_kernel(size_t n, Op op)
{
  size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * N;
  if (i + N <= n)
    op(i, std::integral_constant<int, N>{});
  else
    for (; i < n; i++)
      op(i, std::integral_constant<int, 1>{});
}

template <class E, class Op>
int flat_launch(pen_cuda_stream s, size_t n, bool wide, Op op)
{
  return by_width<E>(wide, [&](auto width) {
    constexpr int N = width;
    unsigned blocks = (unsigned)ceil_div<size_t>(n, (size_t)N * THREADS);
    return launch(flat_kernel<N, Op>, dim3(blocks), THREADS, 0, s, n, op);
  });
}

template <class E> struct add_op {
  const E *a, *b;
  E *y;
  template <int N>
  __device__ void operator()(size_t i, std::integral_constant<int, N>) const
  {
    float u[N], v[N];
    load(u, a + i);
    load(v, b + i);
#pragma unroll
    for (int j = 0; j < N; j++)
      u[j] += v[j];
    store(y + i, u);
  }
};

template <class E> struct add_f32_op {
  const float *x;
  E *y;
  template <int N>
  __device__ void operator()(size_t i, std::integral_constant<int, N>) const
  {
    float u[N], v[N];
    load(u, x + i);
    load(v, y + i);
#pragma unroll
    for (int j = 0; j < N; j++)
      v[j] += u[j];
    store(y + i, v);
  }
};

template <class E> struct from_f32_op {
  const float *x;
  E *y;
  template <int N>
  __device__ void operator()(size_t i, std::integral_constant<int, N>) const
  {
    float u[N];
    load(u, x + i);
    store(y + i, u);
  }
};

struct zero_op {
  float *x;
  template <int N>
  __device__ void operator()(size_t i, std::integral_constant<int, N>) const
  {
    float u[N] = {};
    store(x + i, u);
  }
};

} // namespace
} // namespace pen_cuda

using namespace pen_cuda;

int pen_cuda_add(pen_cuda_stream s, enum pen_elem elem, size_t n,
                 const void *a, const void *b, void *y)
{
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    add_op<E> op = {(const E *)a, (const E *)b, (E *)y};
    return flat_launch<E>(s, n, is_aligned(a) && is_aligned(b) && is_aligned(y),
                          op);
  });
}

int pen_cuda_add_f32(pen_cuda_stream s, enum pen_elem elem, size_t n,
                     const float *x, void *y)
{
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    add_f32_op<E> op = {x, (E *)y};
    return flat_launch<E>(s, n, is_aligned(x) && is_aligned(y), op);
  });
}

int pen_cuda_from_f32(pen_cuda_stream s, enum pen_elem elem, size_t n,
                      const float *x, void *y)
{
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    from_f32_op<E> op = {x, (E *)y};
    return flat_launch<E>(s, n, is_aligned(x) && is_aligned(y), op);
  });
}

int pen_cuda_zero_f32(pen_cuda_stream s, size_t n, float *x)
{
  return flat_launch<float>(s, n, is_aligned(x), zero_op{x});
}
