/* attention_backward.cu: gradients of q, k and v (Dao 2023, algorithm 2), in
 * passes in which nobody writes what another block writes: no atomics, so the
 * order of all sums is fixed.
 *
 * Pass 1: delta = rowsum(do o), a warp per query.  Pass 2, a block per query
 * tile and head: dq.  Pass 3, a block per key tile and key head: dk and dv over
 * the group's heads and the later queries, transposed (a warp's rows are keys,
 * columns are queries).  Probabilities are recomputed from lse; in bf16 they
 * and the gradients of scores are rounded to bf16 for the products that follow.
 * Disadvantage: scores and do v^T are computed in both passes, seven products
 * instead of five. */
#include "kernels/cuda/attention.cuh"

namespace pen_cuda {
namespace {

/* ---- pass 1 ---- */

template <class E>
__global__ void delta_kernel(struct pen_attention a, const E *o, const E *d_o,
                             float *delta)
{
  size_t row = (size_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
  if (row >= a.tokens * a.heads)
    return; /* whole warps */
  size_t token = row / a.heads, head = row % a.heads;
  size_t at = token * a.ldo + head * a.dim;
  float sum = 0;
  for (size_t i = threadIdx.x % WARP; i < a.dim; i += WARP)
    sum += to_f32(o[at + i]) * to_f32(d_o[at + i]);
  sum = reduce_lanes<WARP>(sum, plus{});
  if (threadIdx.x % WARP == 0)
    delta[head * a.tokens + token] = sum;
}

/* ---- pass 2 ---- */

template <class E, int DIM> struct dq_shape {
  static constexpr bool IS_BF16 = sizeof(E) == 2;
  static constexpr int WARPS = IS_BF16 || DIM <= 128 ? 4 : 2;
  static constexpr int THREADS = WARPS * 32;
  static constexpr int M = IS_BF16 && DIM <= 64 ? 2 : 1; /* of 16 rows */
  static constexpr int QUERIES = WARPS * 16 * M;
  static constexpr int KEYS = DIM <= 128 ? 32 : 16;
  static constexpr int STAGES = IS_BF16 ? 2 : 1;
  struct shared {
    tile<E, QUERIES, DIM> q, d_o;
    tile<E, KEYS, DIM> k[STAGES], v[STAGES];
  };
};

template <class E> struct backward_arrays {
  const E *q, *k, *v, *d_o;
  const float *lse, *delta; /* [heads, tokens] */
  E *dq, *dk, *dv;
};

template <class E, int DIM, bool CAPPED>
__global__ void __launch_bounds__(dq_shape<E, DIM>::THREADS, 1)
    dq_kernel(struct pen_attention a, bool wide, backward_arrays<E> x)
{
  using S = dq_shape<E, DIM>;
  auto &shared = shared_memory<typename S::shared>();
  size_t head = blockIdx.x, kv_head = head / (a.heads / a.kv_heads);
  size_t q0 = (size_t)(gridDim.y - 1 - blockIdx.y) * S::QUERIES; /* longest
                                                                    first */
  size_t n_q = at_most(a.tokens - q0, S::QUERIES);
  size_t begin = a.first_key[q0] / S::KEYS * S::KEYS, end = q0 + n_q;
  size_t n_tiles = ceil_div<size_t>(end - begin, S::KEYS);
  int lane = threadIdx.x % WARP, warp_row = threadIdx.x / WARP * 16 * S::M;
  auto load_keys = [&](size_t i) {
    size_t k0 = begin + i * S::KEYS, n = end - k0;
    tile_load<S::THREADS>(shared.k[i % S::STAGES],
                          x.k + k0 * a.ldk + kv_head * a.dim, a.ldk, n, a.dim,
                          wide);
    tile_load<S::THREADS>(shared.v[i % S::STAGES],
                          x.v + k0 * a.ldv + kv_head * a.dim, a.ldv, n, a.dim,
                          wide);
  };
  tile_load<S::THREADS>(shared.q, x.q + q0 * a.ldq + head * a.dim, a.ldq, n_q,
                        a.dim, wide);
  tile_load<S::THREADS>(shared.d_o, x.d_o + q0 * a.ldo + head * a.dim, a.ldo,
                        n_q, a.dim, wide);
  load_keys(0);

  uint32_t first_key[S::M][2];
  float lse[S::M][2], delta[S::M][2], factor[S::M][2];
#pragma unroll
  for (int m = 0; m < S::M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      size_t query = q0 + warp_row + m * 16 + half * 8 + lane / 4;
      query = at_most(query, end - 1);
      first_key[m][half] = a.first_key[query];
      lse[m][half] = x.lse[head * a.tokens + query] * LOG2E;
      delta[m][half] = x.delta[head * a.tokens + query];
      factor[m][half] = a.scale;
    }
  accumulator<S::M, DIM> dq = {};
  uint32_t last_first_key = a.first_key[end - 1];

  for (size_t i = 0; i < n_tiles; i++) {
    ptx_copy_wait();
    __syncthreads();
    if (S::STAGES == 2 && i + 1 < n_tiles)
      load_keys(i + 1);
    uint32_t k0 = (uint32_t)(begin + i * S::KEYS);
    accumulator<S::M, S::KEYS> scores = {}, dscores = {};
    E *keys = shared.k[i % S::STAGES].row(0);
    multiply_rows<DIM>(scores, shared.q.row(warp_row), keys);
    multiply_rows<DIM>(dscores, shared.d_o.row(warp_row),
                       shared.v[i % S::STAGES].row(0));
    float exponent = cap_scores<CAPPED>(a, scores);
    bool partial = k0 + S::KEYS > q0 + 1 || k0 < last_first_key;
    each_pair(dscores, [&](float *ds, int m, int half, int row, int col) {
      const float *s = &scores.v[m][col / 8][2 * half];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        float p = ptx_exp2(fmaf(s[j], exponent, -lse[m][half]));
        ds[j] = p * (ds[j] - delta[m][half]);
        if (CAPPED)
          ds[j] *= cap_slope(s[j], a.softcap);
        if (partial &&
            !is_seen(k0 + col + j, (uint32_t)q0 + warp_row + row,
                     first_key[m][half]))
          ds[j] = 0;
      }
    });
    multiply_columns<DIM>(dq, dscores, keys);
    if (S::STAGES == 1 && i + 1 < n_tiles) {
      __syncthreads();
      load_keys(i + 1);
    }
  }
  store_result(x.dq + (q0 + warp_row) * a.ldd + head * a.dim, a.ldd,
               (int)n_q - warp_row, (int)a.dim, wide, dq, factor);
}

/* ---- pass 3 ---- */

template <class E, int DIM> struct dkv_shape {
  static constexpr bool IS_BF16 = sizeof(E) == 2;
  static constexpr int WARPS = IS_BF16 || DIM <= 128 ? 4 : 2;
  static constexpr int THREADS = WARPS * 32;
  static constexpr int M = 1; /* of 16 rows */
  static constexpr int KEYS = WARPS * 16 * M;
  static constexpr int QUERIES = IS_BF16 && DIM <= 64 ? 32 : 16;
  static constexpr int STAGES = IS_BF16 && DIM <= 96 ? 2 : 1;
  /* Columns of dk and dv that one block can keep in registers. */
  static constexpr int OUT = DIM <= 128 ? DIM : 128;
  struct queries {
    tile<E, QUERIES, DIM> q, d_o;
    float lse[QUERIES], delta[QUERIES]; /* lse in units of log 2 */
    uint32_t first_key[QUERIES];
  };
  struct shared {
    tile<E, KEYS, DIM> k, v;
    queries stage[STAGES];
  };
};

/* The first query whose document begins at or after `key`. */
__device__ inline size_t first_query_past(const struct pen_attention &a,
                                          size_t low, size_t key)
{
  size_t high = a.tokens;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (a.first_key[middle] < key)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Begins to load the queries from q0 on; those from `end` on are zeros, which
 * add nothing. */
template <class E, int DIM>
__device__ inline void load_queries(typename dkv_shape<E, DIM>::queries &to,
                                    const struct pen_attention &a, bool wide,
                                    const backward_arrays<E> &x, size_t head,
                                    size_t q0, size_t end)
{
  using S = dkv_shape<E, DIM>;
  tile_load<S::THREADS>(to.q, x.q + q0 * a.ldq + head * a.dim, a.ldq, end - q0,
                        a.dim, wide);
  tile_load<S::THREADS>(to.d_o, x.d_o + q0 * a.ldo + head * a.dim, a.ldo,
                        end - q0, a.dim, wide);
  if (threadIdx.x < S::QUERIES) {
    size_t query = q0 + threadIdx.x, at = head * a.tokens + query;
    bool real = query < end;
    to.lse[threadIdx.x] = real ? x.lse[at] * LOG2E : 0;
    to.delta[threadIdx.x] = real ? x.delta[at] : 0;
    to.first_key[threadIdx.x] = real ? a.first_key[query] : 0xffffffff;
  }
}

template <class E, int DIM, bool CAPPED>
__global__ void __launch_bounds__(dkv_shape<E, DIM>::THREADS, 1)
    dkv_kernel(struct pen_attention a, bool wide, backward_arrays<E> x)
{
  using S = dkv_shape<E, DIM>;
  auto &shared = shared_memory<typename S::shared>();
  size_t kv_head = blockIdx.x, group = a.heads / a.kv_heads;
  size_t k0 = (size_t)blockIdx.y * S::KEYS, column = blockIdx.z * S::OUT;
  size_t n_k = at_most(a.tokens - k0, S::KEYS);
  size_t end = first_query_past(a, k0, k0 + n_k);
  uint32_t n_tiles = (uint32_t)(group * ceil_div<size_t>(end - k0, S::QUERIES));
  int warp_row = threadIdx.x / WARP * 16 * S::M;
  /* What is loaded next; counted, since a division here would cost registers. */
  uint32_t next_head = (uint32_t)(kv_head * group), next_q0 = (uint32_t)k0;
  auto load_next = [&](unsigned stage) {
    load_queries<E, DIM>(shared.stage[stage], a, wide, x, next_head, next_q0,
                         end);
    next_q0 += S::QUERIES;
    if (next_q0 >= end) {
      next_q0 = (uint32_t)k0;
      next_head++;
    }
  };
  tile_load<S::THREADS>(shared.k, x.k + k0 * a.ldk + kv_head * a.dim, a.ldk,
                        n_k, a.dim, wide);
  tile_load<S::THREADS>(shared.v, x.v + k0 * a.ldv + kv_head * a.dim, a.ldv,
                        n_k, a.dim, wide);
  load_next(0);
  accumulator<S::M, S::OUT> dk = {}, dv = {};
  uint32_t q0 = (uint32_t)k0, row0 = (uint32_t)k0 + warp_row;

  for (uint32_t i = 0; i < n_tiles; i++) {
    ptx_copy_wait();
    __syncthreads();
    if (S::STAGES == 2 && i + 1 < n_tiles)
      load_next((i + 1) % S::STAGES);
    auto &queries = shared.stage[i % S::STAGES];
    bool partial = q0 < row0 + 15 || queries.first_key[S::QUERIES - 1] > row0;
    accumulator<S::M, S::QUERIES> p = {}, ds = {};
    multiply_rows<DIM>(p, shared.k.row(warp_row), queries.q.row(0));
    multiply_rows<DIM>(ds, shared.v.row(warp_row), queries.d_o.row(0));
    float exponent = cap_scores<CAPPED>(a, p);
    each_pair(p, [&](float *s, int m, int half, int row, int col) {
      float *d = &ds.v[m][col / 8][2 * half];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        bool seen = !partial || is_seen(row0 + row, q0 + col + j,
                                        queries.first_key[col + j]);
        float slope = 1;
        if (CAPPED)
          slope = cap_slope(s[j], a.softcap);
        s[j] = ptx_exp2(fmaf(s[j], exponent, -queries.lse[col + j]));
        d[j] = seen ? s[j] * (d[j] - queries.delta[col + j]) : 0;
        if (CAPPED)
          d[j] *= slope;
        s[j] = seen ? s[j] : 0;
      }
    });
    multiply_columns<DIM>(dv, p, queries.d_o.row(0) + column);
    multiply_columns<DIM>(dk, ds, queries.q.row(0) + column);
    if (S::STAGES == 1 && i + 1 < n_tiles) {
      __syncthreads();
      load_next(0);
    }
    q0 = q0 + S::QUERIES < end ? q0 + S::QUERIES : (uint32_t)k0;
  }

  float scale[S::M][2], one[S::M][2];
#pragma unroll
  for (int m = 0; m < S::M; m++) {
    scale[m][0] = scale[m][1] = a.scale;
    one[m][0] = one[m][1] = 1;
  }
  size_t at = (k0 + warp_row) * a.ldd + kv_head * a.dim + column;
  int rows = (int)n_k - warp_row, cols = (int)a.dim - (int)column;
  store_result(x.dk + at, a.ldd, rows, cols, wide, dk, scale);
  store_result(x.dv + at, a.ldd, rows, cols, wide, dv, one);
}

/* ---- all passes ---- */

template <class E, int DIM, bool CAPPED>
int backward(pen_cuda_stream s, const struct pen_attention &a, bool wide,
             const backward_arrays<E> &x)
{
  using Q = dq_shape<E, DIM>;
  using K = dkv_shape<E, DIM>;
  dim3 q_grid((unsigned)a.heads,
              (unsigned)ceil_div<size_t>(a.tokens, Q::QUERIES));
  dim3 k_grid((unsigned)a.kv_heads,
              (unsigned)ceil_div<size_t>(a.tokens, K::KEYS),
              (unsigned)ceil_div<size_t>(a.dim, K::OUT));
  int r = launch(dq_kernel<E, DIM, CAPPED>, q_grid, Q::THREADS,
                 sizeof(typename Q::shared), s, a, wide, x);
  if (r)
    return r;
  return launch(dkv_kernel<E, DIM, CAPPED>, k_grid, K::THREADS,
                sizeof(typename K::shared), s, a, wide, x);
}

} // namespace
} // namespace pen_cuda

using namespace pen_cuda;

int pen_cuda_attention_backward(pen_cuda_stream s, enum pen_elem elem,
                                const struct pen_attention *a, const void *q,
                                const void *k, const void *v, const void *o,
                                const float *lse, const void *d_o,
                                float *delta, void *dq, void *dk, void *dv)
{
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    backward_arrays<E> x = {(const E *)q,   (const E *)k, (const E *)v,
                            (const E *)d_o, lse,          delta,
                            (E *)dq,        (E *)dk,      (E *)dv};
    bool wide = is_aligned(q) && is_aligned(k) && is_aligned(v) &&
                is_aligned(d_o) && is_aligned(dq) && is_aligned(dk) &&
                is_aligned(dv) &&
                are_whole<E>(a->dim, a->ldq, a->ldk, a->ldv, a->ldo, a->ldd);
    size_t rows = a->tokens * a->heads;
    int r = launch(delta_kernel<E>,
                   dim3((unsigned)ceil_div<size_t>(rows, THREADS / WARP)),
                   THREADS, 0, s, *a, (const E *)o, (const E *)d_o, delta);
    if (r)
      return r;
    return by_kernel(*a, [&](auto dim, auto capped) {
      constexpr int DIM = dim;
      constexpr bool CAPPED = capped;
      return backward<E, DIM, CAPPED>(s, *a, wide, x);
    });
  });
}
