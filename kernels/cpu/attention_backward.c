/* attention_backward.c: gradients of q, k and v in one pass over pairs of tiles.
 *
 * Keys are cut into spans (shapes.h).  A pool item is a span and a key head: it
 * walks the span's key tiles, and for each the query tiles that see it, with
 * keys in the lanes; dk and dv of a tile are then whole, and dq is summed for
 * the span alone.  A last pass adds the spans' sums in order, so that nobody
 * writes what another item writes and no order depends on threads.
 * Probabilities are recomputed from lse; in bf16 they and ds are rounded to it
 * for the products they enter.  Disadvantage: workspace for the sums,
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

/* Rows that are summed along themselves, [n, dim / step], and across each
 * other, [n / step, dim]: in fp32 the same. */
struct rows {
  step_t *along, *across;
};

/* Scratch of one item. */
struct backward_tile {
  float *dk, *dv;             /* [dim, 64] */
  float *scores, *dscores;    /* [64, 64] */
  step_t *k_lanes, *v_lanes;  /* [dim / step, 64] */
  step_t *k_across;           /* [64 / step, row], padded with 0 */
  struct rows q, d_o;         /* 64 of dim */
  step_t *probs;              /* across, [64 / step, 64] */
  struct rows ds;             /* 64 of 64 */
};

static step_t *take(step_t **rest, size_t n)
{
  step_t *taken = *rest;
  *rest += n;
  return taken;
}

static struct rows take_rows(step_t **rest, size_t dim)
{
  struct rows r = {.across = take(rest, PEN_STEPS(PEN_TILE) * dim)};
  r.along = PEN_STEP == 1 ? r.across : take(rest, PEN_TILE * PEN_STEPS(dim));
  return r;
}

static struct backward_tile tile_in(float *scratch, size_t dim, size_t row)
{
  size_t n = dim * PEN_TILE, square = PEN_TILE * PEN_TILE;
  struct backward_tile f = {.dk = scratch, .dv = scratch + n,
                            .scores = scratch + 2 * n,
                            .dscores = scratch + 2 * n + square};
  step_t *rest = (step_t *)(scratch + 2 * n + 2 * square);
  f.k_lanes = take(&rest, PEN_STEPS(dim) * PEN_TILE);
  f.v_lanes = take(&rest, PEN_STEPS(dim) * PEN_TILE);
  f.k_across = take(&rest, PEN_STEPS(PEN_TILE) * row);
  f.q = take_rows(&rest, dim);
  f.d_o = take_rows(&rest, dim);
  f.probs = take(&rest, PEN_STEPS(PEN_TILE) * PEN_TILE);
  f.ds = take_rows(&rest, PEN_TILE);
  return f;
}

static void load_rows(struct rows *r, const elem_t *x, size_t ld, size_t n,
                      size_t dim)
{
  tile_across(r->across, dim, x, ld, n, dim);
  if (PEN_STEP > 1)
    tile_rows(r->along, x, ld, n, dim);
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

/* A row of scores in the lanes of keys from k0 on. */
struct score_row {
  v16 lse, delta, low, high; /* low, high: the keys it sees, from k0 */
};

static struct score_row row_of(const struct pen_attention *a, size_t q,
                               size_t k0, const float *lse, const float *delta)
{
  size_t first = a->first_key[q];
  struct score_row r = {
      .lse = v16_set1(lse[q]), .delta = v16_set1(delta[q]),
      .low = v16_set1(first > k0 ? (float)(first - k0) : 0),
      .high = v16_set1((float)PEN_MIN(q - k0, PEN_TILE))};
  return r;
}

/* probs = p = e^(scale scores - lse), ds = p (dscores - delta) before the cap,
 * 0 where masked, for the n_q queries from q0 on; lse and delta are the head's. */
static void dscores_of(struct backward_tile *f, const struct pen_attention *a,
                       float scale, size_t q0, size_t n_q, size_t k0,
                       bool masked, const float *lse, const float *delta)
{
  static const float count[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                  8, 9, 10, 11, 12, 13, 14, 15};
  v16 zero = v16_set1(0), by = v16_set1(scale);
  for (size_t t = 0; t < n_q; t += PEN_STEP) {
    struct score_row row[2];
    size_t n = PEN_MIN(PEN_STEP, n_q - t);
    for (size_t i = 0; i < n; i++)
      row[i] = row_of(a, q0 + t + i, k0, lse, delta);
    for (size_t j = 0; j < PEN_TILE; j += 16) {
      v16 p[2] = {zero, zero}, ds[2] = {zero, zero};
      for (size_t i = 0; i < n; i++) {
        size_t at = (t + i) * PEN_TILE + j;
        v16 s = v16_mul(v16_load(f->scores + at), by);
        p[i] = v16_exp(v16_sub(s, row[i].lse));
        ds[i] = v16_mul(p[i], v16_sub(v16_load(f->dscores + at), row[i].delta));
        ds[i] = tile_softcap_slope(ds[i], s, a->softcap);
        if (masked) {
          v16 key = v16_add(v16_load(count), v16_set1((float)j));
          p[i] = tile_mask(key, row[i].low, row[i].high, p[i], zero);
          ds[i] = tile_mask(key, row[i].low, row[i].high, ds[i], zero);
        }
#if PEN_CPU_BF16
        v16_store_bf16((uint16_t *)f->ds.along + at, ds[i]);
#endif
      }
      size_t at = t / PEN_STEP * PEN_TILE + j;
      tile_put_step(f->probs + at, p[0], p[1]);
      tile_put_step(f->ds.across + at, ds[0], ds[1]);
    }
  }
}

/* Queries [q0, q0 + n_q) of one head against keys [k0, k0 + n_k). */
static void pair(const struct backward_args *g, struct backward_tile *f,
                 size_t span, size_t head, size_t q0, size_t n_q, size_t k0,
                 size_t n_k)
{
  const struct pen_attention *a = &g->a;
  size_t dim = a->dim, along = PEN_STEPS(dim);
  bool masked =
      k0 + PEN_TILE > q0 || a->first_key[q0 + n_q - 1] > k0;
  load_rows(&f->q, g->q + q0 * a->ldq + head * dim, a->ldq, n_q, dim);
  load_rows(&f->d_o, g->d_o + q0 * a->ldo + head * dim, a->ldo, n_q, dim);
  tile_mm(n_q, along, f->q.along, along, 1, f->k_lanes, PEN_TILE, f->scores,
          PEN_TILE, false);
  tile_mm(n_q, along, f->d_o.along, along, 1, f->v_lanes, PEN_TILE, f->dscores,
          PEN_TILE, false);
  float scale = tile_softcap(f->scores, n_q, a->scale, a->softcap);
  dscores_of(f, a, scale, q0, n_q, k0, masked, g->lse + head * a->tokens,
             g->delta + head * a->tokens);
  tile_mm(dim, PEN_STEPS(n_q), f->q.across, 1, dim, f->ds.across, PEN_TILE,
          f->dk, PEN_TILE, true);
  tile_mm(dim, PEN_STEPS(n_q), f->d_o.across, 1, dim, f->probs, PEN_TILE, f->dv,
          PEN_TILE, true);
  float *sums = sums_at(g, span, head, q0);
  for (size_t i = 0; i < g->row; i += PEN_TILE)
    tile_mm(n_q, PEN_STEPS(n_k), f->ds.along, PEN_STEPS(PEN_TILE), 1,
            f->k_across + i, g->row, sums + i, g->row, true);
}

static void key_tile(const struct backward_args *g, struct backward_tile *f,
                     size_t span, size_t kv_head, size_t k0)
{
  const struct pen_attention *a = &g->a;
  size_t dim = a->dim, group = a->heads / a->kv_heads;
  size_t n_k = PEN_MIN(PEN_TILE, a->tokens - k0);
  const elem_t *k = g->k + k0 * a->ldk + kv_head * dim;
  const elem_t *v = g->v + k0 * a->ldv + kv_head * dim;
  tile_lanes(f->k_lanes, k, a->ldk, n_k, dim);
  tile_lanes(f->v_lanes, v, a->ldv, n_k, dim);
  tile_across(f->k_across, g->row, k, a->ldk, n_k, dim);
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
  float one[PEN_TILE], scale[PEN_TILE];
  for (size_t t = 0; t < PEN_TILE; t++) {
    one[t] = 1;
    scale[t] = a->scale;
  }
  tile_store_transposed(g->dk + k0 * a->ldd + kv_head * dim, a->ldd, f->dk,
                        n_k, dim, scale);
  tile_store_transposed(g->dv + k0 * a->ldd + kv_head * dim, a->ldd, f->dv,
                        n_k, dim, one);
}

static void span_item(void *ctx, size_t item, size_t worker)
{
  const struct backward_args *g = ctx;
  const struct pen_attention *a = &g->a;
  size_t span = item / a->kv_heads, kv_head = item % a->kv_heads;
  size_t group = a->heads / a->kv_heads;
  struct backward_tile f =
      tile_in(pen_stream_scratch(g->s, worker), a->dim, g->row);
  memset(f.k_across, 0, PEN_STEPS(PEN_TILE) * g->row * sizeof *f.k_across);
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
