/* gemm_tile.c: the reference product: packed fp32 panels, one multiply and one
 * add per step in the order of k, so that it equals the textbook triple loop
 * bit for bit (starting from C where it accumulates).
 *
 * Runs on the calling thread with its scratch.  Disadvantage: no fused
 * multiply-add, by design; a third of a library's speed. */
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/mm.h"

/* Rows of C and steps of k held packed at once. */
#define PACK_ROWS ((size_t)96)
#define PACK_K ((size_t)512)

/* out [n_rows, n_cols] of row stride ld_out = X (row0 + i, col0 + j), where X
 * is stored transposed or not. */
static void pack(float *out, size_t ld_out, const elem_t *x, size_t ld,
                 bool trans, size_t row0, size_t n_rows, size_t col0,
                 size_t n_cols)
{
  if (!trans) {
    for (size_t i = 0; i < n_rows; i++)
      for (size_t j = 0; j < n_cols; j += 16) {
        size_t n = PEN_LEFT(n_cols, j);
        v16_store_n(out + i * ld_out + j,
                    elem_load_n(x + (row0 + i) * ld + col0 + j, n), n);
      }
    return;
  }
  for (size_t j = 0; j < n_cols; j++)
    for (size_t i = 0; i < n_rows; i += 16) {
      float lanes[16];
      size_t n = PEN_LEFT(n_rows, i);
      v16_store(lanes, elem_load_n(x + (col0 + j) * ld + row0 + i, n));
      for (size_t l = 0; l < n; l++)
        out[(i + l) * ld_out + j] = lanes[l];
    }
}

static void store_c(const struct pen_gemm *g, const float *c, size_t row0,
                    size_t n_rows, size_t col0, size_t n_cols)
{
  for (size_t i = 0; i < n_rows; i++)
    for (size_t j = 0; j < n_cols; j += 16) {
      size_t n = PEN_LEFT(n_cols, j);
      size_t at = (row0 + i) * g->ldc + col0 + j;
      v16 x = v16_load_n(c + i * PEN_MM_COLS + j, n);
      if (g->c_elem == PEN_ELEM_F32)
        v16_store_n((float *)g->c + at, x, n);
      else
        v16_store_bf16_n((uint16_t *)g->c + at, x, n);
    }
}

static void load_c(const struct pen_gemm *g, float *c, size_t row0,
                   size_t n_rows, size_t col0, size_t n_cols)
{
  for (size_t i = 0; i < n_rows; i++)
    for (size_t j = 0; j < PEN_MM_COLS; j += 16) {
      size_t n = j < n_cols ? PEN_LEFT(n_cols, j) : 0;
      const float *row = (const float *)g->c + (row0 + i) * g->ldc + col0 + j;
      v16_store(c + i * PEN_MM_COLS + j,
                g->accumulate ? v16_load_n(row, n) : v16_set1(0));
    }
}

int pen_cpu_gemm_tile(const struct pen_gemm *g, void *scratch)
{
  float *a = scratch;                 /* [PACK_ROWS, PACK_K] */
  float *b = a + PACK_ROWS * PACK_K;  /* [PACK_K, 64] */
  float *c = b + PACK_K * PEN_MM_COLS; /* [PACK_ROWS, 64] */
  memset(b, 0, PACK_K * PEN_MM_COLS * sizeof(float));
  for (size_t col = 0; col < g->n; col += PEN_MM_COLS) {
    size_t n_cols = PEN_MIN(PEN_MM_COLS, g->n - col);
    for (size_t row = 0; row < g->m; row += PACK_ROWS) {
      size_t n_rows = PEN_MIN(PACK_ROWS, g->m - row);
      load_c(g, c, row, n_rows, col, n_cols);
      for (size_t k = 0; k < g->k; k += PACK_K) {
        size_t n_k = PEN_MIN(PACK_K, g->k - k);
        pack(b, PEN_MM_COLS, g->b, g->ldb, g->b_trans, k, n_k, col, n_cols);
        pack(a, PACK_K, g->a, g->lda, g->a_trans, row, n_rows, k, n_k);
        pen_mm(n_rows, n_k, a, PACK_K, 1, b, PEN_MM_COLS, c, PEN_MM_COLS,
               PEN_MM_ADD);
      }
      store_c(g, c, row, n_rows, col, n_cols);
    }
  }
  return 0;
}
