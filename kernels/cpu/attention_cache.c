/* attention_cache.c: attention of new tokens over a cache of keys and values.
 *
 * A pool item is one token and one key head with the query heads that share it:
 * their scores over 64 keys are one small product.  Keys, tiles and sums go in the order of attention.c, so that
 * an output has the bits it has there.  Disadvantage: tokens that come together
 * each convert the cache again. */
#include <string.h>

#include "kernels/cpu/attention_tile.h"

struct cache_args {
  const struct pen_stream *s;
  struct pen_attention_cache a;
  const elem_t *q, *k, *v;
  elem_t *keys, *values, *o;
};

/* Query heads of one token, at most PEN_TILE, while the cache streams past. */
struct cache_rows {
  size_t n, dim;
  float *o;      /* [dim / 64, n, 64] */
  float *scores; /* [n, 64 keys] */
  step_t *q;     /* rows [n, dim / step] */
  step_t *probs; /* rows [n, 64 / step]; in fp32 the scores */
  step_t *tile;  /* keys [dim / step, 64], then values [64 / step, 64] */
  float max[PEN_TILE], sum[PEN_TILE];
};

static size_t cache_tiles(size_t tokens)
{
  return (tokens + PEN_TILE - 1) / PEN_TILE;
}

/* The cache of one key head: keys [tiles, dim, 64], values [tiles * 64, dim]. */
static size_t head_offset(const struct pen_attention_cache *a, size_t kv_head)
{
  return kv_head * cache_tiles(a->capacity) * PEN_TILE * a->dim;
}

static void store_item(void *ctx, size_t item, size_t worker)
{
  const struct cache_args *g = ctx;
  const struct pen_attention_cache *a = &g->a;
  size_t t = item / a->kv_heads, kv_head = item % a->kv_heads, dim = a->dim;
  size_t at = a->first + t;
  const elem_t *k = g->k + t * a->ldk + kv_head * dim;
  elem_t *keys = g->keys + head_offset(a, kv_head) +
                 at / PEN_TILE * PEN_TILE * dim + at % PEN_TILE;
  for (size_t i = 0; i < dim; i++)
    keys[i * PEN_TILE] = k[i];
  memcpy(g->values + head_offset(a, kv_head) + at * dim,
         g->v + t * a->ldv + kv_head * dim, dim * sizeof(elem_t));
}

/* row = e^(scale row - max) over keys [begin, n), with the maximum and the sum moved along;
 * returns what earlier sums are multiplied by. */
static float softmax_row(float *row, float scale, size_t begin, size_t n,
                         float *max, float *sum)
{
  float most = *max;
  for (size_t key = 0; key < begin; key++)
    row[key] = -__builtin_inff();
  for (size_t key = begin; key < n; key++)
    most = row[key] * scale > most ? row[key] * scale : most;
  float fades[16];
  v16 top = v16_set1(most);
  v16_store(fades, v16_exp(v16_sub(v16_set1(*max), top)));
  for (size_t key = n; key < PEN_TILE; key++)
    row[key] = -__builtin_inff();
  for (size_t key = 0; key < PEN_TILE; key += 16)
    v16_store(row + key, v16_exp(v16_sub(v16_mul(v16_load(row + key),
                                                 v16_set1(scale)), top)));
  float total = *sum * fades[0];
  for (size_t key = 0; key < n; key++)
    total += row[key];
  *max = most;
  *sum = total;
  return fades[0];
}

static void fade_row(struct cache_rows *r, size_t row, float fade)
{
  for (size_t c = 0; c < r->dim; c += PEN_TILE)
    for (size_t i = 0; i < PEN_TILE; i += 16) {
      float *o = r->o + c * r->n + row * PEN_TILE + i;
      v16_store(o, v16_mul(v16_load(o), v16_set1(fade)));
    }
}

static void round_probs(struct cache_rows *r)
{
#if PEN_CPU_BF16
  for (size_t i = 0; i < r->n * PEN_TILE; i += 16)
    v16_store_bf16((uint16_t *)r->probs + i, v16_load(r->scores + i));
#else
  r->probs = r->scores;
#endif
}

/* Keys [begin, n) of those from token k0 on. */
static void cache_tile(const struct cache_args *g, struct cache_rows *r,
                       size_t kv_head, size_t k0, size_t begin, size_t n)
{
  size_t dim = r->dim, head = head_offset(&g->a, kv_head);
  const elem_t *keys = g->keys + head + k0 * dim;
  const elem_t *values = g->values + head + k0 * dim;
  tile_across(r->tile, PEN_TILE, keys, PEN_TILE, dim, PEN_TILE);
  tile_mm(r->n, PEN_STEPS(dim), r->q, PEN_STEPS(dim), 1, r->tile, PEN_TILE,
          r->scores, PEN_TILE, false);
  float scale = tile_softcap(r->scores, r->n, g->a.scale, g->a.softcap);
  for (size_t row = 0; row < r->n; row++)
    fade_row(r, row,
             softmax_row(r->scores + row * PEN_TILE, scale, begin, n,
                         &r->max[row], &r->sum[row]));
  round_probs(r);
  for (size_t c = 0; c < dim; c += PEN_TILE) {
    tile_across(r->tile, PEN_TILE, values + c, dim, n,
                PEN_MIN(PEN_TILE, dim - c));
    tile_mm(r->n, PEN_STEPS(n), r->probs, PEN_STEPS(PEN_TILE), 1, r->tile,
            PEN_TILE, r->o + c * r->n, PEN_TILE, true);
  }
}

static void store_rows(const struct cache_rows *r, elem_t *o)
{
  for (size_t row = 0; row < r->n; row++) {
    v16 factor = v16_set1(1 / r->sum[row]);
    for (size_t i = 0; i < r->dim; i += 16) {
      const float *x = r->o + i / PEN_TILE * PEN_TILE * r->n + row * PEN_TILE +
                       i % PEN_TILE;
      elem_store_n(o + row * r->dim + i, v16_mul(v16_load(x), factor),
                   PEN_LEFT(r->dim, i));
    }
  }
}

static void attend_item(void *ctx, size_t item, size_t worker)
{
  const struct cache_args *g = ctx;
  const struct pen_attention_cache *a = &g->a;
  size_t t = item / a->kv_heads, kv_head = item % a->kv_heads, dim = a->dim;
  size_t group = a->heads / a->kv_heads, n_keys = a->first + t + 1;
  size_t first = a->window && n_keys > a->window ? n_keys - a->window : 0;
  size_t wide = (dim + PEN_TILE - 1) / PEN_TILE * PEN_TILE;
  for (size_t row = 0; row < group; row += PEN_TILE) {
    size_t col = (kv_head * group + row) * dim;
    struct cache_rows r = {.n = PEN_MIN(PEN_TILE, group - row), .dim = dim};
    r.o = pen_stream_scratch(g->s, worker);
    r.scores = r.o + r.n * wide;
    r.q = (step_t *)(r.scores + r.n * PEN_TILE);
    r.probs = r.q + r.n * PEN_STEPS(dim);
    r.tile = r.probs + r.n * PEN_TILE;
    for (size_t i = 0; i < r.n; i++) {
      r.max[i] = PEN_NO_MAX;
      r.sum[i] = 0;
    }
    memset(r.o, 0, r.n * wide * sizeof(float));
    tile_rows(r.q, g->q + t * a->ldq + col, dim, r.n, dim);
    for (size_t k0 = first / PEN_TILE * PEN_TILE; k0 < n_keys; k0 += PEN_TILE)
      cache_tile(g, &r, kv_head, k0, first > k0 ? first - k0 : 0,
                 PEN_MIN(PEN_TILE, n_keys - k0));
    store_rows(&r, g->o + t * a->ldo + col);
  }
}

void pen_cpu_attention_cached(struct pen_stream *s,
                              const struct pen_attention_cache *a,
                              const void *q, const void *k, const void *v,
                              void *keys, void *values, void *o)
{
  struct cache_args g = {.s = s, .a = *a, .q = q, .k = k, .v = v,
                         .keys = keys, .values = values, .o = o};
  pen_stream_run(s, a->tokens * a->kv_heads, store_item, &g);
  pen_stream_run(s, a->tokens * a->kv_heads, attend_item, &g);
}
