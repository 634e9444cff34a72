/* panels_avx512bf16.c: one tile of a bf16 product on one thread: both operands
 * are packed into panels of pairs along k, as VDPBF16PS wants them, and a block
 * of 6 x 64 sums stays in registers while it runs along k.
 *
 * A panel holds 16 rows of A, or 64 columns of B, as [k / 2, 16 or 64] pairs;
 * an odd k and missing rows or columns are zeros.  k is cut into lengths at
 * which a panel of B stays in the second-level cache.  The order of each sum
 * depends on k alone.  Disadvantage: a product with few rows spends its time
 * packing B. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/panels.h"

#define ALWAYS static inline __attribute__((always_inline))

/* Rows of a panel of A: multiplied as 6, 6 and 4. */
#define A_ROWS ((size_t)16)
#define B_COLS ((size_t)64)
#define K_MAX ((size_t)512)

typedef uint32_t pair; /* elements 2 i (low half) and 2 i + 1 along k */

static size_t least(size_t a, size_t b)
{
  return a < b ? a : b;
}

/* ---- packing ---- */

/* Where element (row, k) of an operand lies, whose rows are rows of A or
 * columns of B. */
struct source {
  const uint16_t *x;
  size_t ld;
  bool k_first; /* stored as [k, rows] */
};

ALWAYS void transpose(__m512i r[16])
{
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

/* 16 rows of k elements each, next to each other along k. */
static void pack_rows(pair *out, size_t width, const uint16_t *x, size_t ld,
                      size_t n_rows, size_t n_k)
{
  for (size_t k = 0; k < n_k; k += 32) {
    size_t left = least(32, n_k - k);
    __mmask32 some = (__mmask32)(UINT64_C(0xffffffff) >> (32 - left));
    __m512i r[16];
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++)
      r[i] = i < n_rows ? _mm512_maskz_loadu_epi16(some, x + i * ld + k)
                        : _mm512_setzero_si512();
    transpose(r);
    size_t n_pairs = (left + 1) / 2;
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++)
      if (i < n_pairs)
        _mm512_storeu_si512(out + (k / 2 + i) * width, r[i]);
  }
}

/* The same of an operand whose rows are next to each other. */
static void pack_k_first(pair *out, size_t width, const uint16_t *x, size_t ld,
                         size_t n_rows, size_t n_k)
{
  __mmask16 some = (__mmask16)(0xffff >> (16 - n_rows));
  for (size_t k = 0; k < n_k; k += 2) {
    __mmask16 second = k + 1 < n_k ? some : 0;
    __m512i low = _mm512_cvtepu16_epi32(
        _mm256_maskz_loadu_epi16(some, x + k * ld));
    __m512i high = _mm512_cvtepu16_epi32(
        _mm256_maskz_loadu_epi16(second, second ? x + (k + 1) * ld : x));
    _mm512_storeu_si512(out + k / 2 * width,
                        _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
}

static void pack(pair *out, size_t width, const struct source *s, size_t row,
                 size_t n_rows, size_t k, size_t n_k)
{
  for (size_t i = 0; i < width; i += 16) {
    size_t n = n_rows > i ? least(16, n_rows - i) : 0;
    if (!n)
      for (size_t p = 0; p < (n_k + 1) / 2; p++)
        _mm512_storeu_si512(out + i + p * width, _mm512_setzero_si512());
    else if (s->k_first)
      pack_k_first(out + i, width, s->x + k * s->ld + row + i, s->ld, n, n_k);
    else
      pack_rows(out + i, width, s->x + (row + i) * s->ld + k, s->ld, n, n_k);
  }
}

/* ---- multiplying ---- */

/* Where a block's sums go: added to `before` where there is one, to fp32 or
 * rounded to bf16. */
struct target {
  const float *before;
  float *f32;
  uint16_t *bf16; /* where f32 is NULL */
  size_t before_ld, ld;
  uint64_t columns; /* a bit for each */
};

/* A row of sums; some: the columns of each sixteen that are C's. */
ALWAYS void put(const struct target *t, size_t row, const __m512 *sum,
                const __mmask16 *some)
{
  __m512 x[4];
#pragma GCC unroll 4
  for (size_t v = 0; v < 4; v++)
    x[v] = sum[v];
  if (t->before)
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; v++)
      x[v] = _mm512_add_ps(x[v], _mm512_maskz_loadu_ps(some[v],
                                     t->before + row * t->before_ld + 16 * v));
  if (t->f32)
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; v++)
      _mm512_mask_storeu_ps(t->f32 + row * t->ld + 16 * v, some[v], x[v]);
  else
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; v++)
      _mm256_mask_storeu_epi16(t->bf16 + row * t->ld + 16 * v, some[v],
                               (__m256i)_mm512_cvtneps_pbh(x[v]));
}

/* Asks for the lines that the sums will go to while they are made. */
ALWAYS void fetch_rows(const struct target *t, size_t row, size_t rows)
{
  for (size_t i = row; i < row + rows; i++) {
    const char *to = t->f32 ? (const char *)(t->f32 + i * t->ld)
                            : (const char *)(t->bf16 + i * t->ld);
    for (size_t at = 0; at < B_COLS * (t->f32 ? 4 : 2); at += 64)
      _mm_prefetch(to + at, _MM_HINT_T0);
  }
}

#define PAIRS_AHEAD 8 /* fetched of B, which is too large for the first cache */

ALWAYS void block(size_t rows, size_t n_pairs, const pair *a, const pair *b,
                  const struct target *t, size_t row)
{
  __m512 sum[6][4];
#pragma GCC unroll 6
  for (size_t i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; v++)
      sum[i][v] = _mm512_setzero_ps();
  fetch_rows(t, row, rows);
  for (size_t p = 0; p < n_pairs; p++) {
    __m512bh y[4];
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; v++)
      _mm_prefetch(b + (p + PAIRS_AHEAD) * B_COLS + 16 * v, _MM_HINT_T0);
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; v++)
      y[v] = (__m512bh)_mm512_loadu_si512(b + p * B_COLS + 16 * v);
#pragma GCC unroll 6
    for (size_t i = 0; i < rows; i++) {
      __m512bh x = (__m512bh)_mm512_set1_epi32((int)a[p * A_ROWS + i]);
#pragma GCC unroll 4
      for (size_t v = 0; v < 4; v++)
        sum[i][v] = _mm512_dpbf16_ps(sum[i][v], x, y[v]);
    }
  }
  __mmask16 some[4];
#pragma GCC unroll 4
  for (size_t v = 0; v < 4; v++)
    some[v] = (__mmask16)(t->columns >> 16 * v);
#pragma GCC unroll 6
  for (size_t i = 0; i < rows; i++)
    put(t, row + i, sum[i], some);
}

/* A panel of A by one of B. */
static void multiply(size_t n_rows, size_t n_pairs, const pair *a,
                     const pair *b, const struct target *t)
{
  size_t row = 0;
  for (; row + 6 <= n_rows; row += 6)
    block(6, n_pairs, a + row, b, t, row);
  for (; row + 4 <= n_rows; row += 4)
    block(4, n_pairs, a + row, b, t, row);
  for (; row < n_rows; row++)
    block(1, n_pairs, a + row, b, t, row);
}

/* ---- a tile ---- */

struct job {
  const struct pen_gemm *g;
  struct source a, b;
  pair *a_panels; /* [tile_rows / 16, k / 2, 16] */
  pair *b_panel;  /* [k / 2, 64] */
  float *sums;    /* [cols / 64, rows, 64]: of a bf16 C, until k is at its end */
};

static struct target find_target(const struct job *job, size_t row, size_t col,
                                 size_t k, bool last)
{
  const struct pen_gemm *g = job->g;
  size_t n_cols = least(B_COLS, g->n - col);
  struct target t = {.columns = UINT64_MAX >> (B_COLS - n_cols)};
  if (g->c_elem == PEN_ELEM_F32) {
    t.f32 = (float *)g->c + row * g->ldc + col;
    t.ld = t.before_ld = g->ldc;
    t.before = k || g->accumulate ? t.f32 : NULL;
    return t;
  }
  float *sums = job->sums + col * PEN_PANELS_ROWS + row * B_COLS;
  t.before = k ? sums : NULL;
  t.before_ld = B_COLS;
  t.f32 = last ? NULL : sums;
  t.bf16 = last ? (uint16_t *)g->c + row * g->ldc + col : NULL;
  t.ld = last ? g->ldc : B_COLS;
  return t;
}

static void multiply_all(const struct job *job, size_t k, size_t n_k)
{
  const struct pen_gemm *g = job->g;
  size_t n_pairs = (n_k + 1) / 2;
  for (size_t row = 0; row < g->m; row += A_ROWS)
    pack(job->a_panels + row * n_pairs, A_ROWS, &job->a, row,
         least(A_ROWS, g->m - row), k, n_k);
  for (size_t col = 0; col < g->n; col += B_COLS) {
    pack(job->b_panel, B_COLS, &job->b, col, least(B_COLS, g->n - col), k, n_k);
    for (size_t row = 0; row < g->m; row += A_ROWS) {
      struct target t = find_target(job, row, col, k, k + n_k == g->k);
      multiply(least(A_ROWS, g->m - row), n_pairs,
               job->a_panels + row * n_pairs, job->b_panel, &t);
    }
  }
}

void pen_panels_tile(const struct pen_gemm *g, void *scratch)
{
  struct job job = {.g = g,
                    .a = {g->a, g->lda, g->a_trans},
                    .b = {g->b, g->ldb, !g->b_trans}};
  job.a_panels = scratch;
  job.b_panel = job.a_panels + PEN_PANELS_ROWS * K_MAX / 2;
  job.sums = (float *)(job.b_panel + K_MAX / 2 * B_COLS);
  size_t n_parts = (g->k + K_MAX - 1) / K_MAX;
  size_t part = (g->k / n_parts + 31) / 32 * 32;
  if (part * n_parts < g->k)
    part += 32;
  for (size_t k = 0; k < g->k; k += part)
    multiply_all(&job, k, least(part, g->k - k));
}
