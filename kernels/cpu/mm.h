/* mm.h: the small product inside attention and the reference gemm: fp32 tiles
 * of 64 columns.  Each element is summed in the order of k, by one multiply
 * and one add a step, or fused into one rounding, so blocking changes no bit. */
#ifndef PEN_KERNELS_CPU_MM_H
#define PEN_KERNELS_CPU_MM_H

#include "kernels/cpu/v16.h"

#define PEN_MM_COLS 64

/* Rows and sixteens of columns held in registers. */
#if PEN_NATIVE == 16
#define PEN_MM_R 6
#define PEN_MM_V 4
#elif PEN_NATIVE == 8
#define PEN_MM_R 6
#define PEN_MM_V 1
#else
#define PEN_MM_R 3
#define PEN_MM_V 1
#endif

/* How to sum: constants at every call, so that no loop asks. */
enum { PEN_MM_ADD = 1, PEN_MM_FUSED = 2 };

/* C [rows, 16 v] (+)= A B; A (i, k) at i * a_row + k * a_col, B and C at row
 * strides ldb and ldc. */
PEN_INLINE void pen_mm_micro(size_t rows, size_t n_k, const float *a,
                             size_t a_row, size_t a_col, const float *b,
                             size_t ldb, float *c, size_t ldc, int how)
{
  v16 sum[PEN_MM_R][PEN_MM_V];
#pragma GCC unroll 6
  for (size_t i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (size_t j = 0; j < PEN_MM_V; j++)
      sum[i][j] = how & PEN_MM_ADD ? v16_load(c + i * ldc + j * 16)
                                   : v16_set1(0);
  for (size_t k = 0; k < n_k; k++) {
    v16 row[PEN_MM_V];
#pragma GCC unroll 4
    for (size_t j = 0; j < PEN_MM_V; j++)
      row[j] = v16_load(b + k * ldb + j * 16);
#pragma GCC unroll 6
    for (size_t i = 0; i < rows; i++) {
      v16 x = v16_set1(a[i * a_row + k * a_col]);
#pragma GCC unroll 4
      for (size_t j = 0; j < PEN_MM_V; j++)
        sum[i][j] = how & PEN_MM_FUSED ? v16_fma(sum[i][j], x, row[j])
                                       : v16_muladd(sum[i][j], x, row[j]);
    }
  }
#pragma GCC unroll 6
  for (size_t i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (size_t j = 0; j < PEN_MM_V; j++)
      v16_store(c + i * ldc + j * 16, sum[i][j]);
}

/* C [n_rows, 64] (+)= A [n_rows, n_k] B [n_k, 64]. */
PEN_INLINE void pen_mm(size_t n_rows, size_t n_k, const float *a, size_t a_row,
                       size_t a_col, const float *b, size_t ldb, float *c,
                       size_t ldc, int how)
{
  for (size_t j = 0; j < PEN_MM_COLS; j += 16 * PEN_MM_V) {
    size_t i = 0;
    for (; i + PEN_MM_R <= n_rows; i += PEN_MM_R)
      pen_mm_micro(PEN_MM_R, n_k, a + i * a_row, a_row, a_col, b + j, ldb,
                   c + i * ldc + j, ldc, how);
    if (PEN_MM_R > 4 && i + 4 <= n_rows) { /* 64 = 10 x 6 + 4 */
      pen_mm_micro(4, n_k, a + i * a_row, a_row, a_col, b + j, ldb,
                   c + i * ldc + j, ldc, how);
      i += 4;
    }
    for (; i < n_rows; i++)
      pen_mm_micro(1, n_k, a + i * a_row, a_row, a_col, b + j, ldb,
                   c + i * ldc + j, ldc, how);
  }
}

#endif
