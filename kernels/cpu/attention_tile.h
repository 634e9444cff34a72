/* attention_tile.h: tiles of q, k, v and o as operands of small products, results
 * on their way out, and masks. */
#ifndef PEN_KERNELS_CPU_ATTENTION_TILE_H
#define PEN_KERNELS_CPU_ATTENTION_TILE_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/mm.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/sigmoid.h"

/* Queries of a tile and keys of a tile; tiles begin at multiples of it. */
#define PEN_TILE ((size_t)PEN_MM_COLS)
/* What the running maximum starts from: finite, so that differences are. */
#define PEN_NO_MAX (-3e38f)

/* ---- operands ----
 *
 * A product's sum goes along steps: of one fp32, or of a pair of bf16.  An
 * operand lies in scratch in one of three ways; an odd last step is half 0. */

#if PEN_CPU_BF16
typedef pen_pair step_t;
#define PEN_STEP 2
#else
typedef float step_t;
#define PEN_STEP 1
#endif
#define PEN_STEPS(n) (((n) + PEN_STEP - 1) / PEN_STEP)

/* out [n, dim / step] at row stride dim / step: rows of x, to be summed along. */
PEN_INLINE void tile_rows(step_t *out, const elem_t *x, size_t ld, size_t n,
                          size_t dim)
{
  for (size_t t = 0; t < n; t++)
    __builtin_memcpy(out + t * PEN_STEPS(dim), x + t * ld, dim * sizeof *x);
}

/* out [n / step, dim] at row stride ld_out: to be summed along t. */
PEN_INLINE void tile_across(step_t *out, size_t ld_out, const elem_t *x,
                            size_t ld, size_t n, size_t dim)
{
#if PEN_CPU_BF16
  static const elem_t none[PEN_ATTENTION_DIM_MAX];
  for (size_t t = 0; t < n; t += 2) {
    const elem_t *first = x + t * ld, *second = t + 1 < n ? first + ld : none;
    for (size_t i = 0; i < dim; i += 16) {
      pairs16 both = pairs16_of(first + i, second + i, PEN_LEFT(dim, i));
      pen_pair lanes[16];
      pairs16_store(lanes, both);
      __builtin_memcpy(out + t / 2 * ld_out + i, lanes,
                       PEN_LEFT(dim, i) * sizeof *lanes);
    }
  }
#else
  for (size_t t = 0; t < n; t++)
    __builtin_memcpy(out + t * ld_out, x + t * ld, dim * sizeof *x);
#endif
}

/* out [dim / step, PEN_TILE]: lane t is row t of x, to be summed along; lanes
 * past n are 0. */
PEN_INLINE void tile_lanes(step_t *out, const elem_t *x, size_t ld, size_t n,
                           size_t dim)
{
  for (size_t t0 = 0; t0 < PEN_TILE; t0 += 16)
    for (size_t s = 0; s < PEN_STEPS(dim); s += 16) {
      size_t left = PEN_LEFT(PEN_STEPS(dim), s);
      step_t block[16][16] = {{0}};
      for (size_t t = 0; t < 16 && t0 + t < n; t++)
        __builtin_memcpy(block[t], x + (t0 + t) * ld + s * PEN_STEP,
                         left * sizeof block[0][0]);
      for (size_t j = 0; j < left; j++)
        for (size_t t = 0; t < 16; t++)
          out[(s + j) * PEN_TILE + t0 + t] = block[t][j];
    }
}

/* C [n_rows, 64] (+)= A B, A (i, step) at i * a_row + step * a_col. */
PEN_INLINE void tile_mm(size_t n_rows, size_t n_steps, const step_t *a,
                        size_t a_row, size_t a_col, const step_t *b, size_t ldb,
                        float *c, size_t ldc, int add)
{
#if PEN_CPU_BF16
  pairs_mm(n_rows, n_steps, a, a_row, a_col, b, ldb, c, ldc, add);
#else
  if (add)
    pen_mm(n_rows, n_steps, a, a_row, a_col, b, ldb, c, ldc,
           PEN_MM_FUSED | PEN_MM_ADD);
  else
    pen_mm(n_rows, n_steps, a, a_row, a_col, b, ldb, c, ldc, PEN_MM_FUSED);
#endif
}

/* Sixteen lanes of one step of an operand that was computed: of x0, and in bf16
 * x1 after it. */
PEN_INLINE void tile_put_step(step_t *out, v16 x0, v16 x1)
{
#if PEN_CPU_BF16
  pairs16_store(out, pairs16_round(x0, x1));
#else
  (void)x1;
  v16_store(out, x0);
#endif
}

/* ---- results, and what is between products ---- */

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

/* scores [n, PEN_TILE] = cap tanh(scale scores / cap), unless cap is 0.  Returns
 * what the scores are still to be multiplied by. */
PEN_INLINE float tile_softcap(float *scores, size_t n, float scale, float cap)
{
  if (cap == 0)
    return scale;
  v16 c = v16_set1(cap), by = v16_set1(scale);
  for (size_t i = 0; i < n * PEN_TILE; i += 16) {
    v16 x = v16_mul(v16_load(scores + i), by);
    v16_store(scores + i, v16_mul(c, v16_tanh(v16_div(x, c))));
  }
  return 1;
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
