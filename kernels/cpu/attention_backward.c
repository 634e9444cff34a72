/* attention_backward.c: gradients of q, k and v in one pass over pairs of tiles.
 *
 * Keys are cut into spans (shapes.h).  A pool item is a span and a key head: it
 * walks the span's key tiles, and for each the query tiles that see it, with
 * keys in the lanes; dk and dv of a tile are then whole, and dq is summed for
 * the span alone.  A last pass adds the spans' sums in order, so that nobody
 * writes what another item writes and no order depends on threads.
 * Probabilities are recomputed from lse.  Disadvantage: workspace for the sums,
 * three times dq in fp32, and no more items than four a key head. */
#include <string.h>

#include "kernels/cpu/attention_tile.h"

struct backward_args {
  const struct pen_stream *s;
  struct pen_attention a;
  const elem_t *q, *k, *v, *o, *d_o;
  const float *lse;
  float *delta; /* [heads, tokens] */
  float *sums;  /* of each span: [heads, its tokens, row] */
  elem_t *dq, *dk, *dv;
  size_t n_tiles;
  size_t row;                              /* dim up to a multiple of 64 */
  size_t begins[PEN_ATTENTION_SPANS + 1];  /* tokens */
  size_t offsets[PEN_ATTENTION_SPANS];     /* of a span's sums, in rows */
};

/* Scratch of one item, fp32.  Lane tiles are [dim, 64], row tiles [64, dim],
 * scores [64, 64]. */
struct backward_tile {
  float *k_lanes, *v_lanes, *dk, *dv; /* lane tiles */
  float *q, *d_o;                     /* row tiles */
  float *k_rows;                      /* [64, row], padded with 0 */
  float *scores, *dscores;
};

static struct backward_tile tile_in(float *scratch, size_t dim)
{
  size_t n = dim * PEN_TILE, square = PEN_TILE * PEN_TILE;
  struct backward_tile f = {
      .k_lanes = scratch,    .v_lanes = scratch + n,
      .dk = scratch + 2 * n, .dv = scratch + 3 * n,
      .q = scratch + 4 * n,  .d_o = scratch + 5 * n,
      .scores = scratch + 6 * n,
      .dscores = scratch + 6 * n + square,
      .k_rows = scratch + 6 * n + 2 * square};
  return f;
}

/* Do the queries of the tile at q0 see keys of the span? */
static bool sees(const struct backward_args *g, size_t q0, size_t span)
{
  return q0 >= g->begins[span] && g->a.first_key[q0] < g->begins[span + 1];
}

static float *sums_at(const struct backward_args *g, size_t span, size_t head,
                      size_t q0)
{
  size_t tokens = g->a.tokens - g->begins[span];
  return g->sums + (g->offsets[span] * g->a.heads + head * tokens + q0 -
                    g->begins[span]) * g->row;
}

/* ---- before: delta = rowsum(do o) ---- */

static void delta_item(void *ctx, size_t item, size_t worker)
{
  const struct backward_args *g = ctx;
  const struct pen_attention *a = &g->a;
  size_t head = item % a->heads, q0 = item / a->heads * PEN_TILE;
  size_t end = PEN_MIN(q0 + PEN_TILE, a->tokens);
  (void)worker;
  for (size_t t = q0; t < end; t++) {
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

/* ---- pairs of tiles ---- */

/* scores = p = e^(scores - lse), dscores = p (dscores - delta) before the cap, 0
 * where masked; lanes are keys from k0 on, rows are the n_q queries from q0 on. */
static void dscores_of(struct backward_tile *f, const struct pen_attention *a,
                       size_t q0, size_t n_q, size_t k0, bool masked,
                       const float *lse, const float *delta)
{
  static const float count[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                  8, 9, 10, 11, 12, 13, 14, 15};
  v16 zero = v16_set1(0);
  for (size_t t = 0; t < n_q; t++) {
    size_t q = q0 + t, first = a->first_key[q];
    v16 low = v16_set1(first > k0 ? (float)(first - k0) : 0);
    v16 high = v16_set1((float)PEN_MIN(q - k0, PEN_TILE));
    v16 row_lse = v16_set1(lse[q]), row_delta = v16_set1(delta[q]);
    for (size_t j = 0; j < PEN_TILE; j += 16) {
      size_t at = t * PEN_TILE + j;
      v16 s = v16_load(f->scores + at), p = v16_exp(v16_sub(s, row_lse));
      v16 ds = v16_mul(p, v16_sub(v16_load(f->dscores + at), row_delta));
      ds = tile_softcap_slope(ds, s, a->softcap);
      if (masked) {
        v16 key = v16_add(v16_load(count), v16_set1((float)j));
        p = tile_mask(key, low, high, p, zero);
        ds = tile_mask(key, low, high, ds, zero);
      }
      v16_store(f->scores + at, p);
      v16_store(f->dscores + at, ds);
    }
  }
}

/* Queries [q0, q0 + n_q) of one head against keys [k0, k0 + n_k). */
static void pair(const struct backward_args *g, struct backward_tile *f,
                 size_t span, size_t head, size_t q0, size_t n_q, size_t k0,
                 size_t n_k)
{
  enum { SET = PEN_MM_FUSED, ADD = PEN_MM_FUSED | PEN_MM_ADD };
  const struct pen_attention *a = &g->a;
  size_t dim = a->dim;
  bool masked =
      k0 + PEN_TILE > q0 || a->first_key[q0 + n_q - 1] > k0;
  tile_load(f->q, g->q + q0 * a->ldq + head * dim, a->ldq, n_q, dim, a->scale);
  tile_load(f->d_o, g->d_o + q0 * a->ldo + head * dim, a->ldo, n_q, dim, 1);
  pen_mm(n_q, dim, f->q, dim, 1, f->k_lanes, PEN_TILE, f->scores, PEN_TILE,
         SET);
  pen_mm(n_q, dim, f->d_o, dim, 1, f->v_lanes, PEN_TILE, f->dscores, PEN_TILE,
         SET);
  tile_softcap(f->scores, n_q, a->softcap);
  dscores_of(f, a, q0, n_q, k0, masked, g->lse + head * a->tokens,
             g->delta + head * a->tokens);
  pen_mm(dim, n_q, f->q, 1, dim, f->dscores, PEN_TILE, f->dk, PEN_TILE, ADD);
  pen_mm(dim, n_q, f->d_o, 1, dim, f->scores, PEN_TILE, f->dv, PEN_TILE, ADD);
  float *sums = sums_at(g, span, head, q0);
  for (size_t i = 0; i < g->row; i += PEN_TILE)
    pen_mm(n_q, n_k, f->dscores, PEN_TILE, 1, f->k_rows + i, g->row, sums + i,
           g->row, ADD);
}

static void key_tile(const struct backward_args *g, struct backward_tile *f,
                     size_t span, size_t kv_head, size_t k0)
{
  const struct pen_attention *a = &g->a;
  size_t dim = a->dim, group = a->heads / a->kv_heads;
  size_t n_k = PEN_MIN(PEN_TILE, a->tokens - k0);
  const elem_t *k = g->k + k0 * a->ldk + kv_head * dim;
  const elem_t *v = g->v + k0 * a->ldv + kv_head * dim;
  tile_load_transposed(f->k_lanes, k, a->ldk, n_k, dim, 1);
  tile_load_transposed(f->v_lanes, v, a->ldv, n_k, dim, 1);
  for (size_t t = 0; t < n_k; t++)
    tile_load(f->k_rows + t * g->row, k + t * a->ldk, a->ldk, 1, dim, 1);
  memset(f->dk, 0, dim * PEN_TILE * sizeof(float));
  memset(f->dv, 0, dim * PEN_TILE * sizeof(float));
  for (size_t head = kv_head * group; head < (kv_head + 1) * group; head++)
    for (size_t q0 = k0; q0 < a->tokens && a->first_key[q0] < k0 + n_k;
         q0 += PEN_TILE) {
      size_t n_q = PEN_MIN(PEN_TILE, a->tokens - q0);
      while (a->first_key[q0 + n_q - 1] >= k0 + n_k)
        n_q--; /* a later document's */
      pair(g, f, span, head, q0, n_q, k0, n_k);
    }
  float one[PEN_TILE];
  for (size_t t = 0; t < PEN_TILE; t++)
    one[t] = 1;
  tile_store_transposed(g->dk + k0 * a->ldd + kv_head * dim, a->ldd, f->dk,
                        n_k, dim, one);
  tile_store_transposed(g->dv + k0 * a->ldd + kv_head * dim, a->ldd, f->dv,
                        n_k, dim, one);
}

static void span_item(void *ctx, size_t item, size_t worker)
{
  const struct backward_args *g = ctx;
  const struct pen_attention *a = &g->a;
  size_t span = item / a->kv_heads, kv_head = item % a->kv_heads;
  size_t group = a->heads / a->kv_heads;
  struct backward_tile f = tile_in(pen_stream_scratch(g->s, worker), a->dim);
  memset(f.k_rows, 0, PEN_TILE * g->row * sizeof(float));
  for (size_t head = kv_head * group; head < (kv_head + 1) * group; head++)
    for (size_t q0 = g->begins[span]; q0 < a->tokens && sees(g, q0, span);
         q0 += PEN_TILE)
      memset(sums_at(g, span, head, q0), 0,
             PEN_MIN(PEN_TILE, a->tokens - q0) * g->row * sizeof(float));
  for (size_t k0 = g->begins[span]; k0 < g->begins[span + 1]; k0 += PEN_TILE)
    key_tile(g, &f, span, kv_head, k0);
}

/* ---- after: dq = scale times the spans' sums ---- */

static void dq_item(void *ctx, size_t item, size_t worker)
{
  const struct backward_args *g = ctx;
  const struct pen_attention *a = &g->a;
  size_t head = item % a->heads, q0 = item / a->heads * PEN_TILE;
  size_t n_q = PEN_MIN(PEN_TILE, a->tokens - q0);
  const float *sums[PEN_ATTENTION_SPANS];
  size_t n = 0;
  (void)worker;
  for (size_t span = 0; span < PEN_ATTENTION_SPANS; span++)
    if (sees(g, q0, span))
      sums[n++] = sums_at(g, span, head, q0);
  for (size_t t = 0; t < n_q; t++)
    for (size_t i = 0; i < a->dim; i += 16) {
      size_t at = t * g->row + i;
      v16 sum = v16_load(sums[0] + at);
      for (size_t s = 1; s < n; s++)
        sum = v16_add(sum, v16_load(sums[s] + at));
      elem_store_n(g->dq + (q0 + t) * a->ldd + head * a->dim + i,
                   v16_mul(sum, v16_set1(a->scale)), PEN_LEFT(a->dim, i));
    }
}

static void cut_spans(struct backward_args *g)
{
  static const size_t parts[] = PEN_ATTENTION_SPAN_BEGINS;
  size_t rows = 0;
  for (size_t i = 0; i <= PEN_ATTENTION_SPANS; i++) {
    size_t tile = (parts[i] * g->n_tiles + 127) / 128;
    g->begins[i] = PEN_MIN(tile * PEN_TILE, g->a.tokens);
  }
  for (size_t i = 0; i < PEN_ATTENTION_SPANS; i++) {
    g->offsets[i] = rows;
    rows += g->a.tokens - g->begins[i];
  }
}

void pen_cpu_attention_backward(struct pen_stream *s,
                                const struct pen_attention *a, const void *q,
                                const void *k, const void *v, const void *o,
                                const float *lse, const void *d_o, float *work,
                                void *dq, void *dk, void *dv)
{
  struct backward_args g = {
      .s = s, .a = *a, .q = q, .k = k, .v = v, .o = o, .d_o = d_o, .lse = lse,
      .delta = work, .sums = work + a->heads * a->tokens, .dq = dq, .dk = dk,
      .dv = dv, .n_tiles = (a->tokens + PEN_TILE - 1) / PEN_TILE,
      .row = (a->dim + PEN_TILE - 1) / PEN_TILE * PEN_TILE};
  cut_spans(&g);
  pen_stream_run(s, g.n_tiles * a->heads, delta_item, &g);
  pen_stream_run(s, PEN_ATTENTION_SPANS * a->kv_heads, span_item, &g);
  pen_stream_run(s, g.n_tiles * a->heads, dq_item, &g);
}
