/* norm.cu: rmsnorm (Zhang and Sennrich 2019) and layernorm (Ba et al. 2016),
 * forward and backward.
 *
 * Short vectors (norms of heads) get a warp each, long ones a block; lanes
 * take packs in turn and the sum is a fixed tree.  Gradients of w and b are
 * sums over columns (columns.cuh), taken before dx is written, since dx may lie
 * where dy was.  Disadvantage: x and dy are read once more for it. */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/reduce.cuh"

namespace pen_cuda {
namespace {

/* Vectors up to this many elements get a warp. */
constexpr size_t WARP_DIM_MAX = 512;

/* Elements that a lane takes at once, however they are aligned: the order of a
 * sum must not depend on where a row lies. */
template <class E> constexpr unsigned PACK = 16 / sizeof(E);

/* Two sums, so that the second needs no barrier before it. */
struct norm_shared {
  float slots[2][THREADS / WARP];
};

/* Sum over the GROUP threads that share a vector; `which` of the two. */
template <unsigned GROUP>
__device__ inline float sum_of_group(float x, int which)
{
  if constexpr (GROUP == WARP)
    return reduce_lanes<WARP>(x, plus{});
  else
    return reduce_block<GROUP>(x, plus{},
                               shared_memory<norm_shared>().slots[which]);
}

/* Where vector `row` begins in an array of token stride ld.  Sums over
 * columns ask this for every element, so that what needs no division has none; the
 * others count vectors in 32 bits. */
__device__ inline size_t vector_at(const struct pen_heads &shape, size_t row,
                                   size_t ld)
{
  if (shape.heads == 1)
    return row * ld;
  uint32_t heads = (uint32_t)shape.heads, token = (uint32_t)row / heads;
  return token * ld + ((uint32_t)row - token * heads) * shape.dim;
}

/* The vector of this thread's group. */
template <unsigned GROUP> __device__ inline size_t group_row()
{
  return (size_t)blockIdx.x * (THREADS / GROUP) + threadIdx.x / GROUP;
}

/* What a norm reads and writes.  rmsnorm is layernorm with mean and b at 0. */
template <class E> struct norm_args {
  struct pen_heads shape;
  const E *x;
  size_t ldx;
  const E *w, *b; /* b: layernorm alone */
  float w_plus, eps;
  E *y;
  size_t ldy;
  float *mean, *rstd; /* mean: layernorm alone */
};

/* y = (x - mean) rstd (w + w_plus) + b */
template <bool CENTRED, bool WIDE, class E, unsigned GROUP>
__global__ void norm_kernel(norm_args<E> g)
{
  constexpr unsigned N = PACK<E>;
  size_t row = group_row<GROUP>(), dim = g.shape.dim;
  if (row >= g.shape.tokens * g.shape.heads)
    return; /* whole groups */
  const E *x = g.x + vector_at(g.shape, row, g.ldx);
  E *y = g.y + vector_at(g.shape, row, g.ldy);
  unsigned lane = threadIdx.x % GROUP;
  float mean = 0, sum = 0;
  if (CENTRED) {
    for (size_t i = lane * N; i < dim; i += GROUP * N) {
      size_t left = dim - i;
      float a[N];
      load_end<WIDE>(a, x + i, left);
#pragma unroll
      for (unsigned j = 0; j < N; j++)
        mean += a[j];
    }
    mean = sum_of_group<GROUP>(mean, 0) / (float)dim;
  }
  for (size_t i = lane * N; i < dim; i += GROUP * N) {
    size_t left = dim - i;
    float a[N];
    load_end<WIDE>(a, x + i, left);
#pragma unroll
    for (unsigned j = 0; j < N; j++)
      if (WIDE || j < left)
        sum += (a[j] - mean) * (a[j] - mean);
  }
  sum = sum_of_group<GROUP>(sum, 1);
  float rstd = 1.0f / sqrtf(sum / (float)dim + g.eps);
  if (lane == 0)
    g.rstd[row] = rstd;
  if (CENTRED && lane == 0)
    g.mean[row] = mean;
  for (size_t i = lane * N; i < dim; i += GROUP * N) {
    size_t left = dim - i;
    float a[N], w[N], b[N] = {};
    load_end<WIDE>(a, x + i, left);
    load_end<WIDE>(w, g.w + i, left);
    if (CENTRED)
      load_end<WIDE>(b, g.b + i, left);
#pragma unroll
    for (unsigned j = 0; j < N; j++) {
      a[j] = (a[j] - mean) * rstd * (w[j] + g.w_plus);
      if (CENTRED)
        a[j] += b[j];
    }
    store_end<WIDE>(y + i, a, left);
  }
}

template <class E, class Dy> struct norm_backward_args {
  struct pen_heads shape;
  const Dy *dy;
  size_t lddy;
  const E *x;
  size_t ldx;
  const E *w;
  float w_plus;
  const float *mean, *rstd; /* mean NULL: rmsnorm */
  E *dx;
  size_t lddx;
  bool accumulate;

  /* h = (x - mean) rstd */
  __device__ float normed(size_t row, float x_at) const
  {
    return (x_at - (mean ? mean[row] : 0)) * rstd[row];
  }
};

/* With a = dy (w + w_plus): dx (+)= rstd (a - h mean(a h) - mean(a)), the last
 * in layernorm alone. */
template <bool CENTRED, bool WIDE, class E, class Dy, unsigned GROUP>
__global__ void norm_dx_kernel(norm_backward_args<E, Dy> g)
{
  constexpr unsigned N = PACK<E>;
  size_t row = group_row<GROUP>(), dim = g.shape.dim;
  if (row >= g.shape.tokens * g.shape.heads)
    return; /* whole groups */
  const Dy *dy = g.dy + vector_at(g.shape, row, g.lddy);
  const E *x = g.x + vector_at(g.shape, row, g.ldx);
  E *dx = g.dx + vector_at(g.shape, row, g.lddx);
  unsigned lane = threadIdx.x % GROUP;
  float rstd = g.rstd[row], mean = CENTRED ? g.mean[row] : 0;
  float sum_ah = 0, sum_a = 0;
  for (size_t i = lane * N; i < dim; i += GROUP * N) {
    size_t left = dim - i;
    float a[N], w[N], d[N];
    load_end<WIDE>(a, x + i, left);
    load_end<WIDE>(w, g.w + i, left);
    load_end<WIDE>(d, dy + i, left);
#pragma unroll
    for (unsigned j = 0; j < N; j++) {
      sum_ah += d[j] * ((a[j] - mean) * rstd) * (w[j] + g.w_plus);
      if (CENTRED)
        sum_a += d[j] * (w[j] + g.w_plus);
    }
  }
  float mean_ah = sum_of_group<GROUP>(sum_ah, 0) / (float)dim;
  float mean_a = CENTRED ? sum_of_group<GROUP>(sum_a, 1) / (float)dim : 0;
  for (size_t i = lane * N; i < dim; i += GROUP * N) {
    size_t left = dim - i;
    float a[N], w[N], d[N];
    load_end<WIDE>(a, x + i, left);
    load_end<WIDE>(w, g.w + i, left);
    load_end<WIDE>(d, dy + i, left);
#pragma unroll
    for (unsigned j = 0; j < N; j++) {
      float h = (a[j] - mean) * rstd;
      float t = d[j] * (w[j] + g.w_plus) - h * mean_ah;
      if (CENTRED)
        t -= mean_a;
      d[j] = rstd * t;
    }
    if (g.accumulate) {
      load_end<WIDE>(a, dx + i, left);
#pragma unroll
      for (unsigned j = 0; j < N; j++)
        d[j] = a[j] + d[j];
    }
    store_end<WIDE>(dx + i, d, left);
  }
}

/* dy h, whose sum over vectors is the gradient of w. */
template <class E, class Dy> struct norm_weight_value {
  norm_backward_args<E, Dy> g;
  __device__ float operator()(size_t row, size_t col) const
  {
    float x = to_f32(g.x[vector_at(g.shape, row, g.ldx) + col]);
    float dy = to_f32(g.dy[vector_at(g.shape, row, g.lddy) + col]);
    return dy * g.normed(row, x);
  }
};

/* dy, whose sum is the gradient of b. */
template <class E, class Dy> struct norm_bias_value {
  norm_backward_args<E, Dy> g;
  __device__ float operator()(size_t row, size_t col) const
  {
    return to_f32(g.dy[vector_at(g.shape, row, g.lddy) + col]);
  }
};

template <class F> int by_bool(bool b, F f)
{
  return b ? f(std::true_type{}) : f(std::false_type{});
}

/* Calls f with the number of threads that share a vector, as a type. */
template <class F> int by_group(size_t dim, F f)
{
  if (dim <= WARP_DIM_MAX)
    return f(std::integral_constant<unsigned, WARP>{});
  return f(std::integral_constant<unsigned, THREADS>{});
}

template <unsigned GROUP> dim3 group_grid(const struct pen_heads &shape)
{
  return dim3((unsigned)ceil_div<size_t>(shape.tokens * shape.heads,
                                         THREADS / GROUP));
}

template <bool CENTRED, class E>
int norm(pen_cuda_stream s, const norm_args<E> &g)
{
  bool wide = is_aligned(g.x) && is_aligned(g.w) && is_aligned(g.b) &&
              is_aligned(g.y) && are_whole<E>(g.shape.dim, g.ldx, g.ldy);
  return by_bool(wide, [&](auto is_wide) {
    return by_group(g.shape.dim, [&](auto group) {
      constexpr bool WIDE = is_wide;
      constexpr unsigned GROUP = group;
      return launch(norm_kernel<CENTRED, WIDE, E, GROUP>,
                    group_grid<GROUP>(g.shape), THREADS, sizeof(norm_shared), s,
                    g);
    });
  });
}

/* Where the sums over columns go. */
struct norm_sums {
  float *dw, *db; /* db NULL: rmsnorm */
  float *partials;
};

template <bool CENTRED, class E, class Dy>
int norm_backward(pen_cuda_stream s, const norm_backward_args<E, Dy> &g,
                  const norm_sums &sums)
{
  size_t rows = g.shape.tokens * g.shape.heads, dim = g.shape.dim;
  int r = sum_columns(s, rows, dim, norm_weight_value<E, Dy>{g}, sums.partials,
                      sums.dw);
  if (!r && CENTRED) /* partials are free again: kernels follow in order */
    r = sum_columns(s, rows, dim, norm_bias_value<E, Dy>{g}, sums.partials,
                    sums.db);
  if (r)
    return r;
  bool wide = is_aligned(g.dy) && is_aligned(g.x) && is_aligned(g.w) &&
              is_aligned(g.dx) && are_whole<E>(dim, g.ldx, g.lddx) &&
              are_whole<Dy>(g.lddy);
  return by_bool(wide, [&](auto is_wide) {
    return by_group(dim, [&](auto group) {
      constexpr bool WIDE = is_wide;
      constexpr unsigned GROUP = group;
      return launch(norm_dx_kernel<CENTRED, WIDE, E, Dy, GROUP>,
                    group_grid<GROUP>(g.shape), THREADS, sizeof(norm_shared), s,
                    g);
    });
  });
}

/* Calls f with the element type of x and that of dy. */
template <class F>
int by_elems(enum pen_elem elem, enum pen_elem dy_elem, F f)
{
  if (dy_elem == elem)
    return by_elem(elem, [&](auto e) { return f(e, e); });
  return by_elem(elem, [&](auto e) { return f(e, float{}); });
}

} // namespace
} // namespace pen_cuda

using namespace pen_cuda;

int pen_cuda_rmsnorm(pen_cuda_stream s, enum pen_elem elem,
                     const struct pen_heads *shape, const void *x, size_t ldx,
                     const void *w, float w_plus, float eps, void *y,
                     size_t ldy, float *rstd)
{
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    norm_args<E> g = {*shape, (const E *)x, ldx, (const E *)w, nullptr, w_plus,
                      eps,    (E *)y,       ldy, nullptr,      rstd};
    return norm<false>(s, g);
  });
}

int pen_cuda_layernorm(pen_cuda_stream s, enum pen_elem elem, size_t rows,
                       size_t dim, const void *x, const void *w, const void *b,
                       float eps, void *y, float *mean, float *rstd)
{
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    norm_args<E> g = {{rows, 1, dim}, (const E *)x, dim,    (const E *)w,
                      (const E *)b,   0,            eps,    (E *)y,
                      dim,            mean,         rstd};
    return norm<true>(s, g);
  });
}

int pen_cuda_rmsnorm_backward(pen_cuda_stream s, enum pen_elem elem,
                              const struct pen_heads *shape, const void *dy,
                              size_t lddy, enum pen_elem dy_elem,
                              const void *x, size_t ldx, const void *w,
                              float w_plus, const float *rstd, void *dx,
                              size_t lddx, bool accumulate, float *dw,
                              float *partials)
{
  return by_elems(elem, dy_elem, [&](auto e, auto d) {
    using E = decltype(e);
    using Dy = decltype(d);
    norm_backward_args<E, Dy> g = {
        *shape, (const Dy *)dy, lddy, (const E *)x, ldx,  (const E *)w,
        w_plus, nullptr,        rstd, (E *)dx,      lddx, accumulate};
    return norm_backward<false>(s, g, norm_sums{dw, nullptr, partials});
  });
}

int pen_cuda_layernorm_backward(pen_cuda_stream s, enum pen_elem elem,
                                size_t rows, size_t dim, const void *dy,
                                enum pen_elem dy_elem, const void *x,
                                const void *w, const float *mean,
                                const float *rstd, void *dx, bool accumulate,
                                float *dw, float *db, float *partials)
{
  return by_elems(elem, dy_elem, [&](auto e, auto d) {
    using E = decltype(e);
    using Dy = decltype(d);
    norm_backward_args<E, Dy> g = {
        {rows, 1, dim}, (const Dy *)dy, dim,  (const E *)x, dim, (const E *)w,
        0,              mean,           rstd, (E *)dx,      dim, accumulate};
    return norm_backward<true>(s, g, norm_sums{dw, db, partials});
  });
}
