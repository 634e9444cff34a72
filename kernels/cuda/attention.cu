/* attention.cu: causal attention over packed documents, forward (Dao 2023,
 * "FlashAttention-2", algorithm 1).
 *
 * A block is a tile of queries of one head, a warp some of its rows; keys come
 * in tiles at multiples of KEYS tokens, in order, the next one (bf16) while
 * this one is computed.  T x T never exists; scores and probabilities stay in
 * registers.  bf16: probabilities are rounded to bf16 for their product with
 * v, their sum is not.  Disadvantage: each head of a group loads the same
 * keys, from the second-level cache if all goes well. */
#include "kernels/cuda/attention.cuh"

namespace pen_cuda {
namespace {

/* What the running maximum starts from: finite, so that differences are. */
constexpr float NO_MAX = -3e38f;

template <class E, int DIM> struct forward_shape {
  static constexpr bool IS_BF16 = sizeof(E) == 2;
  static constexpr int WARPS = 4, THREADS = WARPS * 32;
  static constexpr int M = IS_BF16 && DIM <= 128 ? 2 : 1; /* of 16 rows */
  static constexpr int QUERIES = WARPS * 16 * M;
  static constexpr int KEYS = IS_BF16   ? (DIM <= 64 ? 64 : 32)
                              : DIM <= 128 ? 32
                                           : 16;
  static constexpr int STAGES = IS_BF16 ? 2 : 1;
  struct shared {
    tile<E, QUERIES, DIM> q;
    tile<E, KEYS, DIM> k[STAGES], v[STAGES];
  };
};

/* The running softmax of a lane's rows: maxima in units of log 2, and this
 * lane's part of the sums. */
template <int M> struct softmax_state {
  float max[M][2], sum[M][2];
};

/* scores = 2^(c scores - max), with the maximum, the sum and out moved along. */
template <int M, int KEYS, int DIM>
__device__ inline void softmax_step(softmax_state<M> &state,
                                    accumulator<M, KEYS> &scores,
                                    accumulator<M, DIM> &out, float c)
{
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float &max = state.max[m][half], &sum = state.sum[m][half], top = max;
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int j = 0; j < 2; j++)
          top = fmaxf(top, scores.v[m][n][2 * half + j] * c);
      top = reduce_lanes<4>(top, greater{});
      float fade = ptx_exp2(max - top);
      max = top;
      sum *= fade;
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
          float &x = scores.v[m][n][2 * half + j];
          x = ptx_exp2(fmaf(x, c, -top));
          sum += x;
        }
#pragma unroll
      for (int n = 0; n < DIM / 8; n++)
#pragma unroll
        for (int j = 0; j < 2; j++)
          out.v[m][n][2 * half + j] *= fade;
    }
}

/* A tile of queries whose keys stream past.  `before`: keys that precede the
 * first query, which a cache holds; first_key counts them too.  NULL: a query
 * sees `window` keys, itself too, 0: all. */
template <class E, int DIM, bool CAPPED>
__global__ void __launch_bounds__(forward_shape<E, DIM>::THREADS, 1)
    attention_kernel(struct pen_attention a, size_t before, size_t window,
                     bool wide, const E *q, const E *k, const E *v, E *o,
                     float *lse)
{
  using S = forward_shape<E, DIM>;
  auto &shared = shared_memory<typename S::shared>();
  size_t head = blockIdx.x, kv_head = head / (a.heads / a.kv_heads);
  size_t q0 = (size_t)(gridDim.y - 1 - blockIdx.y) * S::QUERIES; /* longest
                                                                    first */
  size_t n_q = at_most(a.tokens - q0, S::QUERIES);
  auto first_key_of = [&](size_t query) -> uint32_t {
    query = at_most(query, a.tokens - 1);
    if (a.first_key)
      return a.first_key[query];
    size_t keys = before + query + 1;
    return window && keys > window ? (uint32_t)(keys - window) : 0;
  };
  size_t begin = first_key_of(q0) / S::KEYS * S::KEYS, end = before + q0 + n_q;
  size_t n_tiles = ceil_div<size_t>(end - begin, S::KEYS);
  int lane = threadIdx.x % WARP, warp_row = threadIdx.x / WARP * 16 * S::M;
  auto load_keys = [&](size_t i) {
    size_t k0 = begin + i * S::KEYS, n = end - k0;
    tile_load<S::THREADS>(shared.k[i % S::STAGES],
                          k + k0 * a.ldk + kv_head * a.dim, a.ldk, n, a.dim,
                          wide);
    tile_load<S::THREADS>(shared.v[i % S::STAGES],
                          v + k0 * a.ldv + kv_head * a.dim, a.ldv, n, a.dim,
                          wide);
  };
  tile_load<S::THREADS>(shared.q, q + q0 * a.ldq + head * a.dim, a.ldq, n_q,
                        a.dim, wide);
  load_keys(0);

  uint32_t first_key[S::M][2];
  softmax_state<S::M> state;
#pragma unroll
  for (int m = 0; m < S::M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      first_key[m][half] =
          first_key_of(q0 + warp_row + m * 16 + half * 8 + lane / 4);
      state.max[m][half] = NO_MAX;
      state.sum[m][half] = 0;
    }
  accumulator<S::M, DIM> out = {};
  uint32_t last_first_key = first_key_of(q0 + n_q - 1);
  uint32_t position = (uint32_t)(before + q0); /* of the tile's first query */

  for (size_t i = 0; i < n_tiles; i++) {
    ptx_copy_wait();
    __syncthreads();
    if (S::STAGES == 2 && i + 1 < n_tiles)
      load_keys(i + 1);
    uint32_t k0 = (uint32_t)(begin + i * S::KEYS);
    accumulator<S::M, S::KEYS> scores = {};
    multiply_rows<DIM>(scores, shared.q.row(warp_row),
                       shared.k[i % S::STAGES].row(0));
    float exponent = cap_scores<CAPPED>(a, scores);
    if (k0 + S::KEYS > position + 1 || k0 < last_first_key)
      each_pair(scores, [&](float *x, int m, int half, int row, int col) {
#pragma unroll
        for (int j = 0; j < 2; j++)
          if (!is_seen(k0 + col + j, position + warp_row + row,
                       first_key[m][half]))
            x[j] = -INFINITY;
      });
    softmax_step(state, scores, out, exponent);
    multiply_columns<DIM>(out, scores, shared.v[i % S::STAGES].row(0));
    if (S::STAGES == 1 && i + 1 < n_tiles) {
      __syncthreads();
      load_keys(i + 1);
    }
  }

  float factor[S::M][2];
  int rows = (int)n_q - warp_row; /* of this warp; may be none */
#pragma unroll
  for (int m = 0; m < S::M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = reduce_lanes<4>(state.sum[m][half], plus{});
      int row = m * 16 + half * 8 + lane / 4;
      factor[m][half] = 1.0f / sum;
      if (lse && lane % 4 == 0 && row < rows)
        lse[head * a.tokens + q0 + warp_row + row] =
            state.max[m][half] * LN2 + logf(sum);
    }
  store_result(o + (q0 + warp_row) * a.ldo + head * a.dim, a.ldo, rows,
               (int)a.dim, wide, out, factor);
}

/* cache [tokens, width] = x at row stride ld */
template <class E>
__global__ void append_kernel(size_t width, const E *x, size_t ld, E *cache)
{
  size_t row = blockIdx.x, i = row_pack();
  if (i < width)
    cache[row * width + i] = x[row * ld + i];
}

template <class E>
int forward(pen_cuda_stream s, const struct pen_attention &a, size_t before,
            size_t window, const E *q, const E *k, const E *v, E *o,
            float *lse)
{
  bool wide = is_aligned(q) && is_aligned(k) && is_aligned(v) &&
              is_aligned(o) && are_whole<E>(a.dim, a.ldq, a.ldk, a.ldv, a.ldo);
  return by_kernel(a, [&](auto dim, auto capped) {
    constexpr int DIM = dim;
    constexpr bool CAPPED = capped;
    using S = forward_shape<E, DIM>;
    dim3 grid((unsigned)a.heads,
              (unsigned)ceil_div<size_t>(a.tokens, S::QUERIES));
    return launch(attention_kernel<E, DIM, CAPPED>, grid, S::THREADS,
                  sizeof(typename S::shared), s, a, before, window, wide, q, k,
                  v, o, lse);
  });
}

} // namespace
} // namespace pen_cuda

using namespace pen_cuda;

int pen_cuda_attention(pen_cuda_stream s, enum pen_elem elem,
                       const struct pen_attention *a, const void *q,
                       const void *k, const void *v, void *o, float *lse)
{
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    return forward(s, *a, 0, 0, (const E *)q, (const E *)k, (const E *)v, (E *)o,
                   lse);
  });
}

int pen_cuda_attention_cached(pen_cuda_stream s, enum pen_elem elem,
                              const struct pen_attention_cache *c,
                              const void *q, const void *k, const void *v,
                              void *keys, void *values, void *o)
{
  size_t width = c->kv_heads * c->dim, at = c->first * width;
  struct pen_attention a = {};
  a.tokens = c->tokens;
  a.heads = c->heads;
  a.kv_heads = c->kv_heads;
  a.dim = c->dim;
  a.scale = c->scale;
  a.softcap = c->softcap;
  a.ldq = c->ldq;
  a.ldk = a.ldv = width;
  a.ldo = c->ldo;
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    dim3 grid = row_grid(c->tokens, width);
    int r = launch(append_kernel<E>, grid, THREADS, 0, s, width, (const E *)k,
                   c->ldk, (E *)keys + at);
    if (!r)
      r = launch(append_kernel<E>, grid, THREADS, 0, s, width, (const E *)v,
                 c->ldv, (E *)values + at);
    if (r)
      return r;
    return forward(s, a, c->first, c->window, (const E *)q, (const E *)keys,
                   (const E *)values, (E *)o, (float *)nullptr);
  });
}
