/* attention.c: causal attention over packed documents, forward.
 *
 * A pool item is a tile of 64 queries of one head.  Scores are kept transposed
 * (a row per key, a lane per query), so that the online softmax needs no
 * horizontal step.  Keys come in tiles at multiples of 64 tokens, in order;
 * T x T never exists.  In bf16 probabilities are rounded to it for the product
 * with v, their sum is not.  Disadvantage: each head of a group copies the same
 * key tile again. */
#include <string.h>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/log.h"

struct forward_args {
  const struct pen_stream *s;
  struct pen_attention a;
  const elem_t *q, *k, *v;
  elem_t *o;
  float *lse;
  size_t n_tiles;
};

/* One query tile of one head while keys stream past. */
struct forward_tile {
  size_t q0, n_q, dim;
  step_t *qt;     /* lanes [dim / step, 64] */
  step_t *keys;   /* rows [64, dim / step] */
  step_t *values; /* across [64 / step, dim] */
  step_t *probs;  /* across [64 / step, 64] */
  float *ot;      /* [dim, 64] */
  float *scores;  /* [64 keys, 64] */
  float max[PEN_TILE], sum[PEN_TILE];
};

/* probs = e^(scale scores - max), with the maximum, the sum and ot moved along. */
static void softmax_step(struct forward_tile *f, size_t n_keys, v16 scale,
                         bool masked, const float *low, const float *high)
{
  v16 zero = v16_set1(0), minus_inf = v16_set1(-__builtin_inff());
  for (size_t j = 0; j < PEN_TILE; j += 16) {
    v16 old_max = v16_load(f->max + j), max = old_max;
    for (size_t key = 0; key < n_keys; key++) {
      float *row = f->scores + key * PEN_TILE + j;
      v16 x = v16_mul(v16_load(row), scale);
      if (masked) {
        x = tile_mask(v16_set1((float)key), v16_load(low + j),
                      v16_load(high + j), x, minus_inf);
        v16_store(row, x);
      }
      max = v16_max(max, x);
    }
    v16 factor = masked ? v16_set1(1) : scale;
    v16 fade = v16_exp(v16_sub(old_max, max));
    v16 sum = v16_mul(v16_load(f->sum + j), fade);
    for (size_t key = 0; key < n_keys; key += PEN_STEP) {
      v16 p[2] = {zero, zero};
      for (size_t i = 0; i < PEN_STEP && key + i < n_keys; i++) {
        v16 x = v16_load(f->scores + (key + i) * PEN_TILE + j);
        p[i] = v16_exp(v16_sub(v16_mul(x, factor), max));
        sum = v16_add(sum, p[i]);
      }
      tile_put_step(f->probs + key / PEN_STEP * PEN_TILE + j, p[0], p[1]);
    }
    v16_store(f->max + j, max);
    v16_store(f->sum + j, sum);
    for (size_t i = 0; i < f->dim; i++) {
      float *row = f->ot + i * PEN_TILE + j;
      v16_store(row, v16_mul(v16_load(row), fade));
    }
  }
}

static void forward_key_tile(const struct forward_args *g,
                             struct forward_tile *f, size_t kv_head, size_t k0)
{
  const struct pen_attention *a = &g->a;
  size_t dim = a->dim, q_last = f->q0 + f->n_q - 1;
  size_t first = a->first_key[f->q0];
  size_t begin = first > k0 ? (first - k0) / 2 * 2 : 0; /* pairs stay pairs */
  size_t end = PEN_MIN(PEN_TILE, q_last + 1 - k0), n = end - begin;
  size_t at = k0 + begin;
  tile_rows(f->keys, g->k + at * a->ldk + kv_head * dim, a->ldk, n, dim);
  tile_across(f->values, dim, g->v + at * a->ldv + kv_head * dim, a->ldv, n,
              dim);
  tile_mm(n, PEN_STEPS(dim), f->keys, PEN_STEPS(dim), 1, f->qt, PEN_TILE,
          f->scores, PEN_TILE, false);
  float scale = tile_softcap(f->scores, n, a->scale, a->softcap);
  float low[PEN_TILE], high[PEN_TILE];
  bool masked =
      f->n_q < PEN_TILE || at + n > f->q0 || a->first_key[q_last] > at;
  if (masked)
    tile_key_bounds(low, high, f->q0, f->n_q, at, a->first_key);
  softmax_step(f, n, v16_set1(scale), masked, low, high);
  tile_mm(dim, PEN_STEPS(n), f->values, 1, dim, f->probs, PEN_TILE, f->ot,
          PEN_TILE, true);
}

static void forward_item(void *ctx, size_t item, size_t worker)
{
  const struct forward_args *g = ctx;
  const struct pen_attention *a = &g->a;
  size_t dim = a->dim, head = item % a->heads;
  size_t kv_head = head / (a->heads / a->kv_heads);
  struct forward_tile f = {.dim = dim};
  f.q0 = (g->n_tiles - 1 - item / a->heads) * PEN_TILE; /* longest first */
  f.n_q = PEN_MIN(PEN_TILE, a->tokens - f.q0);
  f.ot = pen_stream_scratch(g->s, worker);
  f.scores = f.ot + dim * PEN_TILE;
  f.qt = (step_t *)(f.scores + PEN_TILE * PEN_TILE);
  f.keys = f.qt + PEN_STEPS(dim) * PEN_TILE;
  f.values = f.keys + PEN_STEPS(dim) * PEN_TILE;
  f.probs = f.values + PEN_STEPS(PEN_TILE) * dim;
  for (size_t t = 0; t < PEN_TILE; t++) {
    f.max[t] = PEN_NO_MAX;
    f.sum[t] = 0;
  }
  memset(f.ot, 0, dim * PEN_TILE * sizeof(float));
  tile_lanes(f.qt, g->q + f.q0 * a->ldq + head * dim, a->ldq, f.n_q, dim);
  size_t k0 = a->first_key[f.q0] / PEN_TILE * PEN_TILE;
  for (; k0 < f.q0 + f.n_q; k0 += PEN_TILE)
    forward_key_tile(g, &f, kv_head, k0);
  for (size_t t = 0; t < f.n_q; t++) {
    g->lse[head * a->tokens + f.q0 + t] =
        f.max[t] + (float)pen_cpu_log(f.sum[t]);
    f.sum[t] = 1 / f.sum[t];
  }
  tile_store_transposed(g->o + f.q0 * a->ldo + head * dim, a->ldo, f.ot, f.n_q,
                        dim, f.sum);
}

void pen_cpu_attention(struct pen_stream *s, const struct pen_attention *a,
                       const void *q, const void *k, const void *v, void *o,
                       float *lse)
{
  struct forward_args g = {
      .s = s, .a = *a, .q = q, .k = k, .v = v, .o = o, .lse = lse,
      .n_tiles = (a->tokens + PEN_TILE - 1) / PEN_TILE};
  pen_stream_run(s, g.n_tiles * a->heads, forward_item, &g);
}
