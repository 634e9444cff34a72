/* routing.cu: mixtures of experts: which expert a token goes to, and rows of
 * tokens to experts and back; the host's bits, but for the sums of expert_weigh.
 *
 * A warp per token, whose first 16 lanes are the host's; one block sends the
 * tokens, a thread per expert; a block per row of an expert.  Disadvantages: one
 * lane chooses a token's experts, and each sending thread reads all choices. */
#include "kernels/cuda/elem.cuh"
#include "kernels/cuda/exp.cuh"
#include "kernels/cuda/reduce.cuh"

namespace pen_cuda {
namespace {

/* The host sums over so many interleaved lanes. */
constexpr unsigned LANES = 16;

/* ---- which experts ---- */

__device__ bool is_among(const uint32_t *chosen, size_t n, uint32_t expert)
{
  for (size_t i = 0; i < n; i++)
    if (chosen[i] == expert)
      return true;
  return false;
}

/* Of what is not yet chosen the most probable, the first of equals. */
__device__ uint32_t next_choice(const float *p, size_t experts,
                                const uint32_t *chosen, size_t n)
{
  uint32_t best = UINT32_MAX;
  for (uint32_t e = 0; e < experts; e++)
    if (!is_among(chosen, n, e) && (best == UINT32_MAX || p[e] > p[best]))
      best = e;
  return best;
}

__device__ void choose(const struct pen_routing &r, size_t token)
{
  size_t k = r.per_token;
  const float *p = r.probs + token * r.experts;
  float *weights = r.weights + token * k, whole = 1;
  uint32_t *chosen = r.chosen + token * k;
  for (size_t i = 0; i < k; i++) {
    chosen[i] = next_choice(p, r.experts, chosen, i);
    weights[i] = p[chosen[i]];
  }
  if (r.normalise) {
    whole = weights[0];
    for (size_t i = 1; i < k; i++)
      whole += weights[i];
  }
  for (size_t i = 0; i < k; i++)
    weights[i] /= whole;
}

__global__ void route_kernel(struct pen_routing r, const float *logits)
{
  size_t token = blockIdx.x;
  const float *x = logits + token * r.experts;
  float *p = r.probs + token * r.experts;
  float top = __uint_as_float(0xff800000), sum = 0;
  for (size_t i = threadIdx.x; i < r.experts; i += WARP)
    top = x[i] > top ? x[i] : top;
  top = reduce_lanes<WARP>(top, greater{});
  for (size_t i = threadIdx.x; threadIdx.x < LANES && i < r.experts; i += LANES) {
    p[i] = exp_exact(x[i] - top);
    sum += p[i];
  }
  sum = reduce_lanes<LANES>(sum, plus{});
  for (size_t i = threadIdx.x; threadIdx.x < LANES && i < r.experts; i += LANES)
    p[i] /= sum;
  __syncwarp();
  if (threadIdx.x == 0)
    choose(r, token);
}

/* One block. */
__global__ void send_kernel(struct pen_routing r, float *balance)
{
  size_t n = r.tokens * r.per_token;
  for (size_t e = threadIdx.x; e < r.experts; e += THREADS) {
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++)
      count += r.chosen[i] == e;
    r.counts[e] = count;
  }
  __syncthreads();
  for (size_t e = threadIdx.x; e < r.experts; e += THREADS) {
    uint32_t row = 0;
    for (size_t before = 0; before < e; before++)
      row += r.counts[before];
    for (size_t i = 0; i < n; i++)
      if (r.chosen[i] == e) {
        r.rows[row] = (uint32_t)(i / r.per_token);
        r.places[row++] = (uint32_t)i;
      }
    if (!balance)
      continue;
    float sum = balance[r.experts + e];
    for (size_t t = 0; t < r.tokens; t++)
      sum += r.probs[t * r.experts + e];
    balance[e] += (float)r.counts[e];
    balance[r.experts + e] = sum;
  }
}

__global__ void route_balance_kernel(size_t experts, const float *balance,
                                     float scale, double *loss)
{
  double sum = 0;
  if (threadIdx.x)
    return;
  for (size_t e = 0; e < experts; e++)
    sum += (double)balance[e] * (double)balance[experts + e];
  *loss += (double)scale * sum;
}

/* What the chosen experts' weights say of dL/dp: of choice i (dw[i] - shared) /
 * whole. */
struct through_weights {
  float shared, whole;
};

__device__ through_weights through(const struct pen_routing &r, size_t token,
                                   const float *dw)
{
  const float *p = r.probs + token * r.experts;
  const float *w = r.weights + token * r.per_token;
  const uint32_t *chosen = r.chosen + token * r.per_token;
  if (!r.normalise)
    return {0, 1};
  through_weights all = {dw[0] * w[0], p[chosen[0]]};
  for (size_t i = 1; i < r.per_token; i++) {
    all.shared += dw[i] * w[i];
    all.whole += p[chosen[i]];
  }
  return all;
}

/* dL/dp of one expert. */
__device__ float dprob(const struct pen_routing &r, size_t token,
                       const float *dw, through_weights all,
                       const float *counts, float scale, size_t expert)
{
  const uint32_t *chosen = r.chosen + token * r.per_token;
  float d = counts ? scale * counts[expert] : 0;
  for (size_t i = 0; i < r.per_token; i++)
    if (chosen[i] == expert)
      d += (dw[i] - all.shared) / all.whole;
  return d;
}

template <class E>
__global__ void route_backward_kernel(struct pen_routing r,
                                      const float *dweights,
                                      const float *counts, float scale,
                                      E *dlogits)
{
  size_t token = blockIdx.x;
  const float *p = r.probs + token * r.experts;
  const float *dw = dweights + token * r.per_token;
  through_weights all = through(r, token, dw);
  float sum = 0;
  for (size_t e = threadIdx.x; threadIdx.x < LANES && e < r.experts; e += LANES)
    sum += p[e] * dprob(r, token, dw, all, counts, scale, e);
  sum = reduce_lanes<LANES>(sum, plus{});
  for (size_t e = threadIdx.x; threadIdx.x < LANES && e < r.experts; e += LANES)
    dlogits[token * r.experts + e] = from_f32<E>(
        p[e] * (dprob(r, token, dw, all, counts, scale, e) - sum));
}

/* ---- an expert's rows ---- */

__global__ void expert_add_kernel(struct pen_expert_rows e, const float *x,
                                  float *y)
{
  size_t row = blockIdx.x, i = row_pack();
  if (i >= e.dim)
    return;
  float weight = e.weights ? e.weights[e.places[row]] : 1;
  y[e.rows[row] * e.dim + i] += weight * x[row * e.dim + i];
}

template <class E>
__global__ void expert_weigh_kernel(struct pen_expert_rows e, const float *d,
                                    E *act, E *dact, float *dweights)
{
  auto &slots = shared_memory<float[THREADS / WARP]>();
  size_t row = blockIdx.x;
  float weight = e.weights[e.places[row]], sum = 0;
  for (size_t i = threadIdx.x; i < e.dim; i += THREADS) {
    size_t at = row * e.dim + i;
    float a = to_f32(act[at]);
    sum += d[at] * a;
    dact[at] = from_f32<E>(weight * d[at]);
    act[at] = from_f32<E>(weight * a);
  }
  sum = reduce_block<THREADS>(sum, plus{}, slots);
  if (threadIdx.x == 0)
    dweights[e.places[row]] = sum;
}

} // namespace
} // namespace pen_cuda

using namespace pen_cuda;

int pen_cuda_route(pen_cuda_stream s, const struct pen_routing *r,
                   const float *logits, float *balance)
{
  int rc = launch(route_kernel, dim3((unsigned)r->tokens), WARP, 0, s, *r,
                  logits);
  return rc ? rc : launch(send_kernel, dim3(1), THREADS, 0, s, *r, balance);
}

int pen_cuda_route_backward(pen_cuda_stream s, enum pen_elem elem,
                            const struct pen_routing *r, const float *dweights,
                            const float *balance, float scale, void *dlogits)
{
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    return launch(route_backward_kernel<E>, dim3((unsigned)r->tokens), WARP, 0,
                  s, *r, dweights, balance, scale, (E *)dlogits);
  });
}

int pen_cuda_route_balance(pen_cuda_stream s, size_t experts,
                           const float *balance, float scale, double *loss)
{
  return launch(route_balance_kernel, dim3(1), WARP, 0, s, experts, balance,
                scale, loss);
}

int pen_cuda_expert_add(pen_cuda_stream s, const struct pen_expert_rows *e,
                        const float *x, float *y)
{
  return launch(expert_add_kernel, row_grid(e->n, e->dim), THREADS, 0, s, *e,
                x, y);
}

int pen_cuda_expert_weigh(pen_cuda_stream s, enum pen_elem elem,
                          const struct pen_expert_rows *e, const float *d,
                          void *act, void *dact, float *dweights)
{
  return by_elem(elem, [&](auto type) {
    using E = decltype(type);
    return launch(expert_weigh_kernel<E>, dim3((unsigned)e->n), THREADS,
                  sizeof(float[THREADS / WARP]), s, *e, d, (E *)act, (E *)dact,
                  dweights);
  });
}
