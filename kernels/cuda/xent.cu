/* xent.cu: cross-entropy over a vocabulary that is never all there: running
 * statistics per token, loss, and the gradient of one block of logits.
 *
 * A block per row of logits.  Maxima are the host's; sums of exponentials have
 * their own fixed order; the gradient has the host's bits for the same
 * statistics.  Disadvantage: logits are read twice for the statistics. */
#include "kernels/cuda/elem.cuh"
#include "kernels/cuda/exp.cuh"
#include "kernels/cuda/reduce.cuh"

namespace pen_cuda {
namespace {

/* Below any finite logit that matters, and finite: differences stay numbers. */
constexpr float NO_MAX = -3e38f;

__global__ void xent_begin_kernel(size_t tokens, float *stats)
{
  size_t t = (size_t)blockIdx.x * THREADS + threadIdx.x;
  if (t >= tokens)
    return;
  stats[PEN_XENT_MAX * tokens + t] = NO_MAX;
  stats[PEN_XENT_SUM * tokens + t] = 0;
  stats[PEN_XENT_TARGET * tokens + t] = 0;
}

struct xent_shared {
  float max[THREADS / WARP], sum[THREADS / WARP];
};

__global__ void xent_add_kernel(struct pen_logits shape, const float *logits,
                                float *stats)
{
  auto &shared = shared_memory<xent_shared>();
  size_t t = shape.first_token + blockIdx.x, tokens = shape.tokens;
  const float *x = logits + blockIdx.x * shape.ld; /* [cols] */
  if (shape.targets[t] < 0)
    return; /* the whole block */
  float *max = &stats[PEN_XENT_MAX * tokens + t];
  float *sum = &stats[PEN_XENT_SUM * tokens + t];
  float old_max = *max, top = old_max;
  for (size_t i = threadIdx.x; i < shape.cols; i += THREADS)
    top = fmaxf(top, x[i]);
  top = reduce_block<THREADS>(top, greater{}, shared.max);
  float part = 0;
  for (size_t i = threadIdx.x; i < shape.cols; i += THREADS)
    part += exp_exact(x[i] - top);
  part = reduce_block<THREADS>(part, plus{}, shared.sum);
  if (threadIdx.x)
    return;
  *sum = *sum * exp_exact(old_max - top) + part;
  *max = top;
  size_t column = (size_t)shape.targets[t] - shape.first_id; /* wraps below */
  if (column < shape.cols)
    stats[PEN_XENT_TARGET * tokens + t] = x[column];
}

/* One block: the sum is small work. */
__global__ void xent_loss_kernel(size_t tokens, const int32_t *targets,
                                 const float *stats, double *loss)
{
  double sum = 0;
  for (size_t t = threadIdx.x; t < tokens; t += THREADS)
    if (targets[t] >= 0)
      sum += (double)stats[PEN_XENT_MAX * tokens + t] +
             log((double)stats[PEN_XENT_SUM * tokens + t]) -
             (double)stats[PEN_XENT_TARGET * tokens + t];
  sum = reduce_block<THREADS>(sum, plus{},
                              shared_memory<double[THREADS / WARP]>());
  if (threadIdx.x == 0)
    *loss = sum;
}

/* e^(x - max) / sum keeps more bits than e^(x - lse). */
template <class E, int N>
__global__ void xent_backward_kernel(struct pen_logits shape,
                                     const float *logits, const float *stats,
                                     E *g)
{
  size_t row = blockIdx.x, i = row_pack() * N;
  size_t t = shape.first_token + row;
  if (i >= shape.cols)
    return;
  int32_t target = shape.targets[t];
  float p[N] = {};
  if (target >= 0) {
    float max = stats[PEN_XENT_MAX * shape.tokens + t];
    float scale = 1.0f / stats[PEN_XENT_SUM * shape.tokens + t];
    size_t column = (size_t)target - shape.first_id; /* wraps below */
    load(p, logits + row * shape.ld + i);
#pragma unroll
    for (int j = 0; j < N; j++) {
      p[j] = exp_exact(p[j] - max) * scale;
      if (i + j == column)
        p[j] -= 1.0f;
    }
  }
  store(g + row * shape.cols + i, p);
}

} // namespace
} // namespace pen_cuda

using namespace pen_cuda;

int pen_cuda_xent_begin(pen_cuda_stream s, size_t tokens, float *stats)
{
  return launch(xent_begin_kernel,
                dim3((unsigned)ceil_div<size_t>(tokens, THREADS)), THREADS, 0,
                s, tokens, stats);
}

int pen_cuda_xent_add(pen_cuda_stream s, const struct pen_logits *shape,
                      const float *logits, float *stats)
{
  return launch(xent_add_kernel, dim3((unsigned)shape->rows), THREADS,
                sizeof(xent_shared), s, *shape, logits, stats);
}

int pen_cuda_xent_loss(pen_cuda_stream s, size_t tokens,
                       const int32_t *targets, const float *stats,
                       double *loss)
{
  return launch(xent_loss_kernel, dim3(1), THREADS,
                sizeof(double[THREADS / WARP]), s, tokens, targets, stats,
                loss);
}

int pen_cuda_xent_backward(pen_cuda_stream s, enum pen_elem elem,
                           const struct pen_logits *shape, const float *logits,
                           const float *stats, void *g)
{
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    bool wide = is_aligned(logits) && is_aligned(g) &&
                are_whole<E>(shape->cols) && are_whole<float>(shape->ld);
    return by_width<E>(wide, [&](auto width) {
      constexpr int N = width;
      return launch(xent_backward_kernel<E, N>,
                    row_grid(shape->rows, shape->cols / N), THREADS, 0, s,
                    *shape, logits, stats, (E *)g);
    });
  });
}
