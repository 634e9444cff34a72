/* adamw.cu: one AdamW step (kernels/adamw.h) with the host's bits: the same
 * IEEE operations in the same order as kernels/ref/adamw.c, built without
 * fused multiply-add, with IEEE division and square root and with denormals.
 *
 * A thread updates four elements.  Disadvantage: division and square root cost
 * some thirty operations each; memory stays the limit. */
#include "kernels/cuda/adamw.cuh"
#include "kernels/cuda/elem.cuh"

namespace pen_cuda {
namespace {

/* bf16: nearest, ties away from zero, for weights alone. */
template <class W> __device__ inline W weight_of(float p)
{
  if constexpr (std::is_same_v<W, float>) {
    return p;
  } else {
    uint32_t bits = __float_as_uint(p);
    if ((bits & 0x7fffffff) > 0x7f800000)
      return bf16{0x7fc0};
    return bf16{(uint16_t)((bits + 0x8000) >> 16)};
  }
}

template <class W>
__device__ inline void update_one(const struct pen_adamw_params &c, float decay,
                                  float grad, float &p, float &m, float &v,
                                  W &weight)
{
  adamw_step(c, decay, grad, p, m, v);
  weight = weight_of<W>(p);
}

template <class G, class W, int N>
__global__ void adamw_kernel(struct pen_adamw_params params, float decay,
                             size_t n, float *p, float *m, float *v,
                             const G *grad, W *weight)
{
  size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * N;
  if (i + N <= n) {
    float a[N], b[N], c[N], g[N];
    pack<W, N> out;
    load(a, p + i);
    load(b, m + i);
    load(c, v + i);
    load(g, grad + i);
#pragma unroll
    for (int j = 0; j < N; j++)
      update_one(params, decay, g[j], a[j], b[j], c[j], out.v[j]);
    store(p + i, a);
    store(m + i, b);
    store(v + i, c);
    *reinterpret_cast<pack<W, N> *>(weight + i) = out;
  } else {
    for (; i < n; i++)
      update_one(params, decay, to_f32(grad[i]), p[i], m[i], v[i], weight[i]);
  }
}

template <class G, class W>
int adamw(pen_cuda_stream s, const struct pen_adamw_params &params, float decay,
          size_t n, float *p, float *m, float *v, const G *grad, W *weight)
{
  bool wide = is_aligned(p) && is_aligned(m) && is_aligned(v) &&
              is_aligned(grad) && is_aligned(weight);
  return by_width<float>(wide, [&](auto width) {
    constexpr int N = width;
    unsigned blocks = (unsigned)ceil_div<size_t>(n, (size_t)N * THREADS);
    return launch(adamw_kernel<G, W, N>, dim3(blocks), THREADS, 0, s, params,
                  decay, n, p, m, v, grad, weight);
  });
}

} // namespace
} // namespace pen_cuda

using namespace pen_cuda;

int pen_cuda_adamw(pen_cuda_stream s, const struct pen_adamw_params *params,
                   bool decays, size_t n, float *p, float *m, float *v,
                   enum pen_elem grad_elem, const void *grad,
                   enum pen_elem weight_elem, void *weight)
{
  float decay = decays ? params->decay : 1;
  if (weight_elem == PEN_ELEM_F32)
    return adamw(s, *params, decay, n, p, m, v, (const float *)grad,
                 (float *)weight);
  return by_elem(grad_elem, [&](auto e) {
    using G = decltype(e);
    return adamw(s, *params, decay, n, p, m, v, (const G *)grad,
                 (bf16 *)weight);
  });
}
