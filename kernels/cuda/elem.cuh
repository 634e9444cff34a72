/* elem.cuh: the two element types, packs of them that move in one access, and
 * the choice of a kernel's variant by element type and alignment. */
#ifndef PEN_KERNELS_CUDA_ELEM_CUH
#define PEN_KERNELS_CUDA_ELEM_CUH

#include <type_traits>

#include "kernels/cuda/launch.cuh"

namespace pen_cuda {

/* The upper half of an IEEE binary32 (kernels/bf16.h). */
struct bf16 {
  uint16_t bits;
};

__device__ inline float to_f32(float x)
{
  return x;
}

__device__ inline float to_f32(bf16 x)
{
  return __uint_as_float((uint32_t)x.bits << 16);
}

/* Rounded to nearest even, as the host does it: the hardware's conversion has
 * another NaN. */
template <class E> __device__ inline E from_f32(float x)
{
  if constexpr (std::is_same_v<E, float>) {
    return x;
  } else {
    uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7fffffff) > 0x7f800000)
      return bf16{0x7fc0};
    return bf16{(uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
  }
}

/* N elements as one access of up to 16 bytes, or several. */
template <class E, int N>
struct alignas(N * sizeof(E) < 16 ? N * sizeof(E) : 16) pack {
  E v[N];
};

template <class E, int N>
__device__ inline void load(float (&out)[N], const E *x)
{
  pack<E, N> p = *reinterpret_cast<const pack<E, N> *>(x);
#pragma unroll
  for (int i = 0; i < N; i++)
    out[i] = to_f32(p.v[i]);
}

template <class E, int N>
__device__ inline void store(E *y, const float (&a)[N])
{
  pack<E, N> p;
#pragma unroll
  for (int i = 0; i < N; i++)
    p.v[i] = from_f32<E>(a[i]);
  *reinterpret_cast<pack<E, N> *>(y) = p;
}

/* The same of a row's end: elements from `left` on are 0 and not stored.  WIDE:
 * the row is aligned and whole, so there are none. */
template <bool WIDE, class E, unsigned N>
__device__ inline void load_end(float (&out)[N], const E *x, size_t left)
{
  if constexpr (WIDE) {
    load(out, x);
  } else {
#pragma unroll
    for (unsigned i = 0; i < N; i++)
      out[i] = i < left ? to_f32(x[i]) : 0;
  }
}

template <bool WIDE, class E, unsigned N>
__device__ inline void store_end(E *y, const float (&a)[N], size_t left)
{
  if constexpr (WIDE) {
    store(y, a);
  } else {
#pragma unroll
    for (unsigned i = 0; i < N; i++)
      if (i < left)
        y[i] = from_f32<E>(a[i]);
  }
}

/* Calls f with a value of the element type. */
template <class F> int by_elem(enum pen_elem elem, F f)
{
  return elem == PEN_ELEM_BF16 ? f(bf16{}) : f(float{});
}

/* Elements of a row that are moved at once, as a type, so that a kernel can
 * be made for it: eight bf16 or four fp32 where `wide`, else one. */
template <class E, class F> int by_width(bool wide, F f)
{
  if (wide)
    return f(std::integral_constant<int, 16 / (int)sizeof(E)>{});
  return f(std::integral_constant<int, 1>{});
}

/* Whether rows at these pointers and strides (in E) can be moved in packs. */
inline bool is_aligned(const void *p)
{
  return (uintptr_t)p % 16 == 0;
}

template <class E, class... Elems> bool are_whole(Elems... elems)
{
  return ((elems * sizeof(E) % 16 == 0) && ...);
}

/* Threads of a block where nothing else asks for a number. */
constexpr unsigned THREADS = 256;

/* A grid of whole rows: blockIdx.x is the row, blockIdx.y the piece of it. */
inline dim3 row_grid(size_t rows, size_t packs)
{
  return dim3((unsigned)rows, (unsigned)ceil_div<size_t>(packs, THREADS));
}

/* This thread's pack of its row, counted in packs. */
__device__ inline size_t row_pack()
{
  return (size_t)blockIdx.y * THREADS + threadIdx.x;
}

} // namespace pen_cuda

#endif
