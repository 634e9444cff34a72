/* attention_tile.h: moving tiles of q, k, v and o in and out of fp32 scratch,
 * straight ([rows, dim]) or transposed ([dim, 64 lanes]), and masks. */
#ifndef PEN_KERNELS_CPU_ATTENTION_TILE_H
#define PEN_KERNELS_CPU_ATTENTION_TILE_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/mm.h"
#include "kernels/cpu/sigmoid.h"

/* Queries of a tile and keys of a tile; tiles begin at multiples of it. */
#define PEN_TILE ((size_t)PEN_MM_COLS)
/* What the running maximum starts from: finite, so that differences are. */
#define PEN_NO_MAX (-3e38f)

/* out [n, dim] = x [n, dim] scale */
PEN_INLINE void tile_load(float *out, const elem_t *x, size_t ld, size_t n,
                          size_t dim, float scale)
{
  v16 factor = v16_set1(scale);
  for (size_t t = 0; t < n; t++)
    for (size_t i = 0; i < dim; i += 16) {
      size_t left = PEN_LEFT(dim, i);
      v16 a = v16_mul(elem_load_n(x + t * ld + i, left), factor);
      v16_store_n(out + t * dim + i, a, left);
    }
}

/* out [dim, PEN_TILE]: lane t of row i = x (t, i) scale; lanes past n are 0. */
PEN_INLINE void tile_load_transposed(float *out, const elem_t *x, size_t ld,
                                     size_t n, size_t dim, float scale)
{
  for (size_t t0 = 0; t0 < PEN_TILE; t0 += 16)
    for (size_t i = 0; i < dim; i += 16) {
      size_t left = PEN_LEFT(dim, i);
      float block[16][16];
      for (size_t t = 0; t < 16; t++)
        v16_store(block[t], t0 + t < n
                                ? elem_load_n(x + (t0 + t) * ld + i, left)
                                : v16_set1(0));
      for (size_t j = 0; j < left; j++)
        for (size_t t = 0; t < 16; t++)
          out[(i + j) * PEN_TILE + t0 + t] = block[t][j] * scale;
    }
}

/* y (t, i) = x [dim, PEN_TILE] (i, lane t) factor[t], for the first n lanes. */
PEN_INLINE void tile_store_transposed(elem_t *y, size_t ld, const float *x,
                                      size_t n, size_t dim,
                                      const float *factor)
{
  for (size_t t0 = 0; t0 < n; t0 += 16)
    for (size_t i = 0; i < dim; i += 16) {
      size_t left = PEN_LEFT(dim, i);
      float block[16][16];
      for (size_t j = 0; j < left; j++)
        for (size_t t = 0; t < 16; t++)
          block[t][j] = x[(i + j) * PEN_TILE + t0 + t];
      for (size_t t = 0; t < 16 && t0 + t < n; t++)
        elem_store_n(y + (t0 + t) * ld + i,
                     v16_mul(v16_load_n(block[t], left),
                             v16_set1(factor[t0 + t])),
                     left);
    }
}

/* scores [n, PEN_TILE] = cap tanh(scores / cap), unless cap is 0 */
PEN_INLINE void tile_softcap(float *scores, size_t n, float cap)
{
  v16 c = v16_set1(cap);
  for (size_t i = 0; cap != 0 && i < n * PEN_TILE; i += 16)
    v16_store(scores + i,
              v16_mul(c, v16_tanh(v16_div(v16_load(scores + i), c))));
}

/* ds through the cap, where s is the capped score */
PEN_INLINE v16 tile_softcap_slope(v16 ds, v16 s, float cap)
{
  if (cap == 0)
    return ds;
  v16 y = v16_div(s, v16_set1(cap));
  return v16_mul(ds, v16_sub(v16_set1(1), v16_mul(y, y)));
}

/* Per query lane, the keys it sees, counted from k0: [low, high]. */
PEN_INLINE void tile_key_bounds(float *low, float *high, size_t q0, size_t n_q,
                                size_t k0, const uint32_t *first_key)
{
  for (size_t t = 0; t < PEN_TILE; t++) {
    bool real = t < n_q;
    size_t first = real ? first_key[q0 + t] : 0;
    size_t last = q0 + t;
    low[t] = !real ? (float)PEN_TILE : first > k0 ? (float)(first - k0) : 0;
    high[t] = !real || last < k0 ? -1 : (float)PEN_MIN(last - k0, PEN_TILE);
  }
}

/* Lanes for which low <= key <= high. */
PEN_INLINE v16 tile_mask(v16 key, v16 low, v16 high, v16 yes, v16 no)
{
  v16 a = v16_select(v16_less(key, low), no, yes);
  return v16_select(v16_less(high, key), no, a);
}

#endif
