/* attention.c: causal attention over packed documents, forward.
 *
 * A pool item is a tile of 64 queries of one head.  Scores are kept transposed
 * (a row per key, a lane per query), so that the online softmax needs no
 * horizontal step.  Keys come in tiles at multiples of 64 tokens, in order;
 * T x T never exists.  q is scaled as it is loaded.  Disadvantage: each head of
 * a group converts the same key tile again. */
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
  float *qt, *ot;      /* [dim, 64] */
  float *keys, *values; /* [64, dim] */
  float *scores;       /* [64 keys, 64] */
  float max[PEN_TILE], sum[PEN_TILE];
};

/* scores = e^(scores - max) with the maximum, the sum and ot moved along. */
static void softmax_step(struct forward_tile *f, size_t key_begin,
                         size_t key_end, bool masked, const float *low,
                         const float *high)
{
  v16 minus_inf = v16_set1(-__builtin_inff());
  for (size_t j = 0; j < PEN_TILE; j += 16) {
    v16 old_max = v16_load(f->max + j), max = old_max;
    for (size_t key = key_begin; key < key_end; key++) {
      float *row = f->scores + key * PEN_TILE + j;
      v16 x = v16_load(row);
      if (masked) {
        x = tile_mask(v16_set1((float)key), v16_load(low + j),
                      v16_load(high + j), x, minus_inf);
        v16_store(row, x);
      }
      max = v16_max(max, x);
    }
    v16 fade = v16_exp(v16_sub(old_max, max));
    v16 sum = v16_mul(v16_load(f->sum + j), fade);
    for (size_t key = key_begin; key < key_end; key++) {
      float *row = f->scores + key * PEN_TILE + j;
      v16 p = v16_exp(v16_sub(v16_load(row), max));
      sum = v16_add(sum, p);
      v16_store(row, p);
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
  size_t begin = first > k0 ? first - k0 : 0;
  size_t end = PEN_MIN(PEN_TILE, q_last + 1 - k0);
  const elem_t *k = g->k + (k0 + begin) * a->ldk + kv_head * dim;
  const elem_t *v = g->v + (k0 + begin) * a->ldv + kv_head * dim;
  tile_load(f->keys, k, a->ldk, end - begin, dim, 1);
  tile_load(f->values, v, a->ldv, end - begin, dim, 1);
  pen_mm(end - begin, dim, f->keys, dim, 1, f->qt, PEN_TILE,
         f->scores + begin * PEN_TILE, PEN_TILE, PEN_MM_FUSED);
  tile_softcap(f->scores + begin * PEN_TILE, end - begin, a->softcap);
  float low[PEN_TILE], high[PEN_TILE];
  bool masked = f->n_q < PEN_TILE || k0 + end > f->q0 ||
                a->first_key[q_last] > k0 + begin;
  if (masked)
    tile_key_bounds(low, high, f->q0, f->n_q, k0, a->first_key);
  softmax_step(f, begin, end, masked, low, high);
  pen_mm(dim, end - begin, f->values, 1, dim, f->scores + begin * PEN_TILE,
         PEN_TILE, f->ot, PEN_TILE, PEN_MM_FUSED | PEN_MM_ADD);
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
  f.qt = pen_stream_scratch(g->s, worker);
  f.ot = f.qt + dim * PEN_TILE;
  f.keys = f.ot + dim * PEN_TILE;
  f.values = f.keys + dim * PEN_TILE;
  f.scores = f.values + dim * PEN_TILE;
  for (size_t t = 0; t < PEN_TILE; t++) {
    f.max[t] = PEN_NO_MAX;
    f.sum[t] = 0;
  }
  memset(f.ot, 0, dim * PEN_TILE * sizeof(float));
  tile_load_transposed(f.qt, g->q + f.q0 * a->ldq + head * dim, a->ldq, f.n_q,
                       dim, a->scale);
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
