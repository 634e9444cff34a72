/* attention_backward.c: gradients of q, k and v in two passes over tiles.
 *
 * Pass 1, an item per query tile and head: delta = rowsum(do o), then dq, with
 * queries in the lanes.  Pass 2, an item per key tile and key head: dk and dv
 * over the group's heads and the later query tiles, with keys in the lanes.
 * Probabilities are recomputed from lse; nobody writes what another item
 * writes, so the order of sums is fixed.  Disadvantage: scores and do v^T are
 * computed in both passes, seven products instead of five. */
#include <string.h>

#include "kernels/cpu/attention_tile.h"

struct backward_args {
  const struct pen_stream *s;
  struct pen_attention a;
  const elem_t *q, *k, *v, *o, *d_o;
  const float *lse;
  float *delta;
  elem_t *dq, *dk, *dv;
  size_t n_tiles;
};

/* Scratch of one item, fp32.  Lane tiles are [dim, 64], row tiles [64, dim],
 * scores [64, 64]. */
struct backward_tile {
  float *lanes_a, *lanes_b; /* pass 1: q, do; pass 2: k, v */
  float *rows_a, *rows_b;   /* pass 1: k, v; pass 2: q, do */
  float *sum_a, *sum_b;     /* pass 1: dq; pass 2: dk, dv; lane tiles */
  float *scores, *dscores;
};

static struct backward_tile tile_in(float *scratch, size_t dim)
{
  size_t n = dim * PEN_TILE;
  struct backward_tile f = {
      .lanes_a = scratch,        .lanes_b = scratch + n,
      .rows_a = scratch + 2 * n, .rows_b = scratch + 3 * n,
      .sum_a = scratch + 4 * n,  .sum_b = scratch + 5 * n,
      .scores = scratch + 6 * n,
      .dscores = scratch + 6 * n + PEN_TILE * PEN_TILE};
  return f;
}

/* ---- pass 1 ---- */

static void compute_delta(const struct backward_args *g, size_t head,
                          size_t q0, size_t n_q)
{
  const struct pen_attention *a = &g->a;
  for (size_t t = q0; t < q0 + n_q; t++) {
    const elem_t *o = g->o + t * a->ldo + head * a->dim;
    const elem_t *d_o = g->d_o + t * a->ldo + head * a->dim;
    v16 sum = v16_set1(0);
    for (size_t i = 0; i < a->dim; i += 16) {
      size_t n = PEN_LEFT(a->dim, i);
      sum = v16_muladd(sum, elem_load_n(o + i, n), elem_load_n(d_o + i, n));
    }
    g->delta[head * a->tokens + t] = v16_sum(sum);
  }
}

/* dscores = e^(scores - lse) (dscores - delta), 0 where masked; lanes are
 * queries, rows are keys [begin, end). */
static void dscores_by_key(struct backward_tile *f, size_t begin, size_t end,
                           const float *lse, const float *delta,
                           const float *low, const float *high)
{
  v16 zero = v16_set1(0);
  for (size_t key = begin; key < end; key++)
    for (size_t j = 0; j < PEN_TILE; j += 16) {
      size_t at = key * PEN_TILE + j;
      v16 p = v16_exp(v16_sub(v16_load(f->scores + at), v16_load(lse + j)));
      v16 ds = v16_mul(p, v16_sub(v16_load(f->dscores + at),
                                  v16_load(delta + j)));
      v16_store(f->dscores + at,
                tile_mask(v16_set1((float)key), v16_load(low + j),
                          v16_load(high + j), ds, zero));
    }
}

static void dq_item(void *ctx, size_t item, size_t worker)
{
  const struct backward_args *g = ctx;
  const struct pen_attention *a = &g->a;
  size_t dim = a->dim, head = item % a->heads;
  size_t kv_head = head / (a->heads / a->kv_heads);
  size_t q0 = (g->n_tiles - 1 - item / a->heads) * PEN_TILE;
  size_t n_q = PEN_MIN(PEN_TILE, a->tokens - q0);
  struct backward_tile f = tile_in(pen_stream_scratch(g->s, worker), dim);
  float low[PEN_TILE], high[PEN_TILE], factor[PEN_TILE];
  float lse[PEN_TILE] = {0}, delta[PEN_TILE] = {0};

  compute_delta(g, head, q0, n_q);
  memcpy(lse, g->lse + head * a->tokens + q0, n_q * sizeof(float));
  memcpy(delta, g->delta + head * a->tokens + q0, n_q * sizeof(float));
  tile_load_transposed(f.lanes_a, g->q + q0 * a->ldq + head * dim, a->ldq, n_q,
                       dim, a->scale);
  tile_load_transposed(f.lanes_b, g->d_o + q0 * a->ldo + head * dim, a->ldo,
                       n_q, dim, 1);
  memset(f.sum_a, 0, dim * PEN_TILE * sizeof(float));
  size_t first = a->first_key[q0];
  for (size_t k0 = first / PEN_TILE * PEN_TILE; k0 < q0 + n_q; k0 += PEN_TILE) {
    size_t begin = first > k0 ? first - k0 : 0;
    size_t end = PEN_MIN(PEN_TILE, q0 + n_q - k0), n = end - begin;
    size_t row = k0 + begin;
    tile_load(f.rows_a, g->k + row * a->ldk + kv_head * dim, a->ldk, n, dim, 1);
    tile_load(f.rows_b, g->v + row * a->ldv + kv_head * dim, a->ldv, n, dim, 1);
    float *scores = f.scores + begin * PEN_TILE;
    float *dscores = f.dscores + begin * PEN_TILE;
    pen_mm(n, dim, f.rows_a, dim, 1, f.lanes_a, scores, 0);
    pen_mm(n, dim, f.rows_b, dim, 1, f.lanes_b, dscores, 0);
    tile_key_bounds(low, high, q0, n_q, k0, a->first_key);
    dscores_by_key(&f, begin, end, lse, delta, low, high);
    pen_mm(dim, n, f.rows_a, 1, dim, dscores, f.sum_a, 1);
  }
  for (size_t t = 0; t < PEN_TILE; t++)
    factor[t] = a->scale;
  tile_store_transposed(g->dq + q0 * a->ldd + head * dim, a->ldd, f.sum_a, n_q,
                        dim, factor);
}

/* ---- pass 2 ---- */

/* scores = p = e^(scores - lse), dscores = p (dscores - delta), 0 where masked;
 * lanes are keys from k0 on, rows are the n_q queries from q0 on. */
static void dscores_by_query(struct backward_tile *f, size_t q0, size_t n_q,
                             size_t k0, const uint32_t *first_key,
                             const float *lse, const float *delta)
{
  static const float count[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                  8, 9, 10, 11, 12, 13, 14, 15};
  v16 zero = v16_set1(0);
  for (size_t t = 0; t < n_q; t++) {
    size_t q = q0 + t, first = first_key[q];
    v16 low = v16_set1(first > k0 ? (float)(first - k0) : 0);
    v16 high = v16_set1((float)PEN_MIN(q - k0, PEN_TILE));
    v16 row_lse = v16_set1(lse[q]), row_delta = v16_set1(delta[q]);
    for (size_t j = 0; j < PEN_TILE; j += 16) {
      size_t at = t * PEN_TILE + j;
      v16 key = v16_add(v16_load(count), v16_set1((float)j));
      v16 p = v16_exp(v16_sub(v16_load(f->scores + at), row_lse));
      v16 ds = v16_mul(p, v16_sub(v16_load(f->dscores + at), row_delta));
      v16_store(f->scores + at, tile_mask(key, low, high, p, zero));
      v16_store(f->dscores + at, tile_mask(key, low, high, ds, zero));
    }
  }
}

/* Adds what the queries from q0 on of one head contribute. */
static void dkv_query_tile(const struct backward_args *g,
                           struct backward_tile *f, size_t head, size_t q0,
                           size_t k0)
{
  const struct pen_attention *a = &g->a;
  size_t dim = a->dim, n_q = PEN_MIN(PEN_TILE, a->tokens - q0);
  tile_load(f->rows_a, g->q + q0 * a->ldq + head * dim, a->ldq, n_q, dim,
            a->scale);
  tile_load(f->rows_b, g->d_o + q0 * a->ldo + head * dim, a->ldo, n_q, dim, 1);
  pen_mm(n_q, dim, f->rows_a, dim, 1, f->lanes_a, f->scores, 0);
  pen_mm(n_q, dim, f->rows_b, dim, 1, f->lanes_b, f->dscores, 0);
  dscores_by_query(f, q0, n_q, k0, a->first_key, g->lse + head * a->tokens,
                   g->delta + head * a->tokens);
  pen_mm(dim, n_q, f->rows_a, 1, dim, f->dscores, f->sum_a, 1);
  pen_mm(dim, n_q, f->rows_b, 1, dim, f->scores, f->sum_b, 1);
}

static void dkv_item(void *ctx, size_t item, size_t worker)
{
  const struct backward_args *g = ctx;
  const struct pen_attention *a = &g->a;
  size_t dim = a->dim, kv_head = item % a->kv_heads;
  size_t group = a->heads / a->kv_heads;
  size_t k0 = item / a->kv_heads * PEN_TILE;
  size_t n_k = PEN_MIN(PEN_TILE, a->tokens - k0);
  struct backward_tile f = tile_in(pen_stream_scratch(g->s, worker), dim);
  tile_load_transposed(f.lanes_a, g->k + k0 * a->ldk + kv_head * dim, a->ldk,
                       n_k, dim, 1);
  tile_load_transposed(f.lanes_b, g->v + k0 * a->ldv + kv_head * dim, a->ldv,
                       n_k, dim, 1);
  memset(f.sum_a, 0, dim * PEN_TILE * sizeof(float));
  memset(f.sum_b, 0, dim * PEN_TILE * sizeof(float));
  for (size_t head = kv_head * group; head < (kv_head + 1) * group; head++)
    for (size_t q0 = k0; q0 < a->tokens && a->first_key[q0] < k0 + n_k;
         q0 += PEN_TILE)
      dkv_query_tile(g, &f, head, q0, k0);
  float one[PEN_TILE];
  for (size_t t = 0; t < PEN_TILE; t++)
    one[t] = 1;
  tile_store_transposed(g->dk + k0 * a->ldd + kv_head * dim, a->ldd, f.sum_a,
                        n_k, dim, one);
  tile_store_transposed(g->dv + k0 * a->ldd + kv_head * dim, a->ldd, f.sum_b,
                        n_k, dim, one);
}

void pen_cpu_attention_backward(struct pen_stream *s,
                                const struct pen_attention *a, const void *q,
                                const void *k, const void *v, const void *o,
                                const float *lse, const void *d_o,
                                float *delta, void *dq, void *dk, void *dv)
{
  struct backward_args g = {
      .s = s, .a = *a, .q = q, .k = k, .v = v, .o = o, .d_o = d_o, .lse = lse,
      .delta = delta, .dq = dq, .dk = dk, .dv = dv,
      .n_tiles = (a->tokens + PEN_TILE - 1) / PEN_TILE};
  pen_stream_run(s, g.n_tiles * a->heads, dq_item, &g);
  pen_stream_run(s, g.n_tiles * a->kv_heads, dkv_item, &g);
}
