/* routing.cu: mixtures of experts: which expert a token goes to, and rows of
 * tokens to experts and back; the host's bits, but for the sums of expert_weigh.
 *
 * A warp per token, whose first 16 lanes are the host's; a block per expert looks
 * for its tokens among all; a block per row of an expert.  Disadvantage: all
 * choices are read once per expert, from the second-level cache if all goes well. */
#include "kernels/cuda/elem.cuh"
#include "kernels/cuda/exp.cuh"
#include "kernels/cuda/reduce.cuh"

namespace pen_cuda {
namespace {

/* The host sums over so many interleaved lanes. */
constexpr unsigned LANES = 16;

/* ---- which experts ---- */

/* An expert, and what the router gives it. */
struct candidate {
  float p;
  int32_t expert;
};

/* The order in which they are chosen: the most probable first, of equals the one
 * with the lower number.  Either none is NaN or all are, which then are equal. */
__device__ inline bool comes_before(candidate a, candidate b)
{
  return a.p > b.p || (!(b.p > a.p) && a.expert < b.expert);
}

__device__ inline candidate first_of(candidate a, candidate b)
{
  return comes_before(b, a) ? b : a;
}

/* Of a token's experts the first that comes after `last`, to all lanes. */
__device__ candidate next_choice(const float *p, size_t experts, candidate last)
{
  candidate best = {-INFINITY, INT32_MAX};
  for (size_t e = threadIdx.x; e < experts; e += WARP) {
    candidate here = {p[e], (int32_t)e};
    if (last.expert < 0 || comes_before(last, here))
      best = first_of(best, here);
  }
#pragma unroll
  for (unsigned distance = WARP / 2; distance; distance /= 2) {
    candidate other = {__shfl_xor_sync(FULL_WARP, best.p, distance),
                       __shfl_xor_sync(FULL_WARP, best.expert, distance)};
    best = first_of(best, other);
  }
  return best;
}

/* By the warp; its first lane writes. */
__device__ void choose(const struct pen_routing &r, size_t token)
{
  size_t k = r.per_token;
  float *weights = r.weights + token * k, whole = 0;
  candidate c = {0, -1};
  for (size_t i = 0; i < k; i++) {
    c = next_choice(r.probs + token * r.experts, r.experts, c);
    whole = i ? whole + c.p : c.p;
    if (threadIdx.x == 0) {
      r.chosen[token * k + i] = (uint32_t)c.expert;
      weights[i] = c.p;
    }
  }
  if (threadIdx.x == 0 && r.normalise)
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
  choose(r, token);
}

/* ---- who goes where ---- */

/* A block per expert. */
__global__ void count_kernel(struct pen_routing r)
{
  auto &slots = shared_memory<uint32_t[THREADS / WARP]>();
  size_t n = r.tokens * r.per_token;
  uint32_t count = 0;
#pragma unroll 4
  for (size_t i = threadIdx.x; i < n; i += THREADS)
    count += r.chosen[i] == blockIdx.x;
  count = reduce_block<THREADS>(count, plus{}, slots);
  if (threadIdx.x == 0)
    r.counts[blockIdx.x] = count;
}

/* Used in turns, so that one barrier between writing and reading is enough. */
struct send_shared {
  uint32_t found[2][THREADS / WARP];
  uint32_t slots[THREADS / WARP];
};

/* An expert's rows, in the order of its tokens; a block per expert. */
__global__ void send_kernel(struct pen_routing r)
{
  auto &shared = shared_memory<send_shared>();
  uint32_t expert = blockIdx.x, row = 0;
  uint32_t n = (uint32_t)(r.tokens * r.per_token), k = (uint32_t)r.per_token;
  unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  for (uint32_t e = threadIdx.x; e < expert; e += THREADS)
    row += r.counts[e];
  row = reduce_block<THREADS>(row, plus{}, shared.slots);
  for (uint32_t base = 0, turn = 0; base < n; base += THREADS, turn ^= 1) {
    uint32_t i = base + threadIdx.x;
    bool is_its = i < n && r.chosen[i] == expert;
    unsigned lanes = __ballot_sync(FULL_WARP, is_its);
    if (lane == 0)
      shared.found[turn][warp] = __popc(lanes);
    __syncthreads();
    uint32_t at = row + __popc(lanes & ((1u << lane) - 1));
#pragma unroll
    for (unsigned w = 0; w < THREADS / WARP; w++) {
      at += w < warp ? shared.found[turn][w] : 0;
      row += shared.found[turn][w];
    }
    if (is_its) {
      r.rows[at] = i / k;
      r.places[at] = i;
    }
  }
}

/* A thread per expert: tokens in order, as the host adds them. */
__global__ void balance_kernel(struct pen_routing r, float *balance)
{
  size_t e = (size_t)blockIdx.x * WARP + threadIdx.x;
  if (e >= r.experts)
    return;
  float sum = balance[r.experts + e];
#pragma unroll 16
  for (size_t t = 0; t < r.tokens; t++)
    sum += r.probs[t * r.experts + e];
  balance[e] += (float)r.counts[e];
  balance[r.experts + e] = sum;
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
  dim3 experts((unsigned)r->experts);
  dim3 warps((unsigned)ceil_div<size_t>(r->experts, WARP));
  int rc = launch(route_kernel, dim3((unsigned)r->tokens), WARP, 0, s, *r,
                  logits);
  if (!rc)
    rc = launch(count_kernel, experts, THREADS, sizeof(uint32_t[THREADS / WARP]),
                s, *r);
  if (!rc)
    rc = launch(send_kernel, experts, THREADS, sizeof(send_shared), s, *r);
  if (!rc && balance)
    rc = launch(balance_kernel, warps, WARP, 0, s, *r, balance);
  return rc;
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
