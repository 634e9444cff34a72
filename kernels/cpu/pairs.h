/* pairs.h: products of bf16 numbers that are summed in fp32: sixteen lanes of
 * pairs along the sum, and the small product inside attention made of them.
 *
 * A pair is added as VDPBF16PS adds it: a + x_odd y_odd, rounded once, and then
 * + x_even y_even, rounded once, with denormals taken as zero and made zero
 * ("Intel 64 and IA-32 Architectures Software Developer's Manual", VDPBF16PS).
 * Elsewhere two fused multiply-adds in a mode that flushes give the same bits. */
#ifndef PEN_KERNELS_CPU_PAIRS_H
#define PEN_KERNELS_CPU_PAIRS_H

#include "kernels/cpu/mm.h"
#include "kernels/fpmode.h"

/* Two bf16 that follow one another along the sum, the first in the low half. */
typedef uint32_t pen_pair;

typedef struct {
  pen_nu p[PEN_PARTS];
} pairs16;

PEN_INLINE pairs16 pairs16_set1(pen_pair x)
{
  pairs16 r;
  PEN_EACH_PART r.p[i_] = (pen_nu){0} + x;
  return r;
}

PEN_INLINE pairs16 pairs16_load(const pen_pair *x)
{
  pairs16 r;
  PEN_EACH_PART __builtin_memcpy(&r.p[i_], x + i_ * PEN_NATIVE, sizeof r.p[0]);
  return r;
}

PEN_INLINE void pairs16_store(pen_pair *x, pairs16 a)
{
  PEN_EACH_PART __builtin_memcpy(x + i_ * PEN_NATIVE, &a.p[i_], sizeof a.p[0]);
}

/* Of two rows of bf16, lane by lane: the first n lanes, the others 0. */
PEN_INLINE pairs16 pairs16_of(const uint16_t *first, const uint16_t *second,
                              size_t n)
{
  v16 low = v16_load_bf16_n(first, n), high = v16_load_bf16_n(second, n);
  pairs16 r;
  PEN_EACH_PART r.p[i_] = (pen_nu)low.p[i_] >> 16 | (pen_nu)high.p[i_];
  return r;
}

/* To nearest even; a NaN stays one.  A denormal may become 0, as which it
 * would be multiplied. */
PEN_INLINE pairs16 pairs16_round(v16 first, v16 second)
{
  pairs16 r;
#if defined(__AVX512BF16__)
  const __m512i take = _mm512_set_epi16(
      31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
      6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)second.p[0],
                                              (__m512)first.p[0]);
  r.p[0] = (pen_nu)_mm512_permutexvar_epi16(take, both);
#else
  uint16_t low[16], high[16];
  v16_store_bf16(low, first);
  v16_store_bf16(high, second);
  r = pairs16_of(low, high, 16);
#endif
  return r;
}

/* sum + the pair's two products. */
PEN_INLINE v16 v16_add_pairs(v16 sum, pairs16 x, pairs16 y)
{
#if defined(__AVX512BF16__)
  sum.p[0] = (pen_nf)_mm512_dpbf16_ps((__m512)sum.p[0], (__m512bh)x.p[0],
                                      (__m512bh)y.p[0]);
  return sum;
#else
  v16 x_odd, y_odd, x_even, y_even;
  PEN_EACH_PART {
    x_odd.p[i_] = (pen_nf)(x.p[i_] & 0xffff0000);
    y_odd.p[i_] = (pen_nf)(y.p[i_] & 0xffff0000);
    x_even.p[i_] = (pen_nf)(x.p[i_] << 16);
    y_even.p[i_] = (pen_nf)(y.p[i_] << 16);
  }
  sum = v16_fma(sum, x_odd, y_odd);
  return v16_fma(sum, x_even, y_even);
#endif
}

/* Rows and sixteens of columns held in registers. */
#if defined(__AVX512BF16__)
#define PEN_PAIRS_R 6
#define PEN_PAIRS_V 4
#elif PEN_NATIVE == 16
#define PEN_PAIRS_R 6
#define PEN_PAIRS_V 2
#elif PEN_NATIVE == 8
#define PEN_PAIRS_R 4
#define PEN_PAIRS_V 1
#else
#define PEN_PAIRS_R 3
#define PEN_PAIRS_V 1
#endif

/* C [rows, 16 v] (+)= A B; A (i, pair p) at i * a_row + p * a_col, B [pairs, 16 v]
 * and C at row strides ldb and ldc.  add: constant at every call. */
PEN_INLINE void pairs_micro(size_t rows, size_t n_pairs, const pen_pair *a,
                            size_t a_row, size_t a_col, const pen_pair *b,
                            size_t ldb, float *c, size_t ldc, int add)
{
  v16 sum[PEN_PAIRS_R][PEN_PAIRS_V];
#pragma GCC unroll 6
  for (size_t i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (size_t j = 0; j < PEN_PAIRS_V; j++)
      sum[i][j] = add ? v16_load(c + i * ldc + j * 16) : v16_set1(0);
  for (size_t p = 0; p < n_pairs; p++) {
    pairs16 row[PEN_PAIRS_V];
#pragma GCC unroll 4
    for (size_t j = 0; j < PEN_PAIRS_V; j++)
      row[j] = pairs16_load(b + p * ldb + j * 16);
#pragma GCC unroll 6
    for (size_t i = 0; i < rows; i++) {
      pairs16 x = pairs16_set1(a[i * a_row + p * a_col]);
#pragma GCC unroll 4
      for (size_t j = 0; j < PEN_PAIRS_V; j++)
        sum[i][j] = v16_add_pairs(sum[i][j], x, row[j]);
    }
  }
#pragma GCC unroll 6
  for (size_t i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (size_t j = 0; j < PEN_PAIRS_V; j++)
      v16_store(c + i * ldc + j * 16, sum[i][j]);
}

/* C [n_rows, 64] (+)= A [n_rows, 2 n_pairs] B [2 n_pairs, 64]. */
PEN_INLINE void pairs_mm(size_t n_rows, size_t n_pairs, const pen_pair *a,
                         size_t a_row, size_t a_col, const pen_pair *b,
                         size_t ldb, float *c, size_t ldc, int add)
{
#if !defined(__AVX512BF16__)
  uint64_t outer = pen_fpmode_get();
  pen_fpmode_set(PEN_FPMODE_FLUSHING);
#endif
  for (size_t j = 0; j < PEN_MM_COLS; j += 16 * PEN_PAIRS_V) {
    size_t i = 0;
    for (; i + PEN_PAIRS_R <= n_rows; i += PEN_PAIRS_R)
      pairs_micro(PEN_PAIRS_R, n_pairs, a + i * a_row, a_row, a_col, b + j, ldb,
                  c + i * ldc + j, ldc, add);
    if (PEN_PAIRS_R > 4 && i + 4 <= n_rows) { /* 64 = 10 x 6 + 4 */
      pairs_micro(4, n_pairs, a + i * a_row, a_row, a_col, b + j, ldb,
                  c + i * ldc + j, ldc, add);
      i += 4;
    }
    for (; i < n_rows; i++)
      pairs_micro(1, n_pairs, a + i * a_row, a_row, a_col, b + j, ldb,
                  c + i * ldc + j, ldc, add);
  }
#if !defined(__AVX512BF16__)
  pen_fpmode_set(outer);
#endif
}

#endif
