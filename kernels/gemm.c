/* gemm.c: the list of product libraries, and how a product is cut.
 *
 * Tiles are cut by shape alone, unless the library says that any cut gives the
 * same bits; each is one library call on one worker.
 * Disadvantage: every tile packs its operands again. */
#include "kernels/gemm.h"

#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "kernels/ops.h"

/* Best first for each precision: "auto" takes the first that opens. */
static const struct pen_gemm_library *const best_bf16[] = {
    &pen_gemm_panels, &pen_gemm_onednn, &pen_gemm_openblas,
    &pen_gemm_reference};
static const struct pen_gemm_library *const best_bf16_tiles[] = {
    &pen_gemm_onednn, &pen_gemm_panels, &pen_gemm_openblas,
    &pen_gemm_reference};
static const struct pen_gemm_library *const best_f32[] = {
    &pen_gemm_openblas, &pen_gemm_onednn, &pen_gemm_panels,
    &pen_gemm_reference};
#define N_LIBRARIES (sizeof best_bf16 / sizeof best_bf16[0])

int pen_gemm_find(const char *name, enum pen_elem elem,
                  const struct pen_gemm_library **ret_library)
{
  const struct pen_gemm_library *const *list =
      elem != PEN_ELEM_BF16        ? best_f32
      : pen_isa_has_bf16_tiles() ? best_bf16_tiles
                                 : best_bf16;
  bool any = !strcmp(name, "auto");
  for (size_t i = 0; i < N_LIBRARIES; i++) {
    if (!any && strcmp(name, list[i]->name))
      continue;
    int r = list[i]->open(elem);
    if (!r)
      *ret_library = list[i];
    if (!r || !any)
      return r;
    pen_error_clear();
  }
  return pen_error_set(PEN_EUSAGE,
                       "no product library is called \"%s\": choose auto, "
                       "onednn, panels, openblas or reference",
                       name);
}

/* ---- cutting ---- */

/* Enough tiles for this many workers, unless tiles get smaller than this. */
#define TILES_WANTED 16
#define TILES_EACH 4
#define TILE_FLOP_MIN 4e6
#define TILE_ROWS_MIN ((size_t)32)
#define TILE_COLS_MIN ((size_t)64)

struct run {
  const struct pen_stream *s;
  const struct pen_gemm *g;
  size_t rows, cols; /* of a tile */
  size_t n_across;   /* tiles side by side */
  atomic_int status; /* written by workers; read after the pool is done */
};

static size_t n_pieces(size_t n, size_t piece)
{
  return (n + piece - 1) / piece;
}

static size_t up_to(size_t n, size_t grain)
{
  return (n + grain - 1) / grain * grain;
}

static size_t half(size_t n, size_t grain)
{
  return up_to(n / 2, grain);
}

static double flop(size_t rows, size_t cols, const struct pen_gemm *g)
{
  return 2.0 * (double)rows * (double)cols * (double)g->k;
}

/* Even pieces, a few for each thread.  One more piece down packs B once more,
 * one more across A. */
static void choose_even_tile(const struct pen_gemm_library *library,
                             const struct pen_gemm *g, size_t n_threads,
                             struct run *run)
{
  size_t down = n_pieces(g->m, library->tile_rows);
  size_t across = n_pieces(g->n, library->tile_cols);
  for (;;) {
    run->rows = up_to(n_pieces(g->m, down), TILE_ROWS_MIN / 2);
    run->cols = up_to(n_pieces(g->n, across), TILE_COLS_MIN);
    bool narrow = run->cols <= TILE_COLS_MIN, low = run->rows <= TILE_ROWS_MIN;
    if (down * across >= TILES_EACH * n_threads || (narrow && low) ||
        flop(run->rows, run->cols, g) <= 2 * TILE_FLOP_MIN)
      break;
    if (narrow || (!low && g->n <= g->m))
      down++;
    else
      across++;
  }
  run->n_across = n_pieces(g->n, run->cols);
}

static void choose_tile(const struct pen_gemm_library *library,
                        const struct pen_gemm *g, struct run *run)
{
  size_t rows = g->m < library->tile_rows ? g->m : library->tile_rows;
  size_t cols = g->n < library->tile_cols ? g->n : library->tile_cols;
  while (n_pieces(g->m, rows) * n_pieces(g->n, cols) < TILES_WANTED &&
         flop(rows, cols, g) > 2 * TILE_FLOP_MIN) {
    if (cols >= 2 * rows && cols > TILE_COLS_MIN)
      cols = half(cols, TILE_COLS_MIN);
    else if (rows > TILE_ROWS_MIN)
      rows = half(rows, TILE_ROWS_MIN / 2);
    else if (cols > TILE_COLS_MIN)
      cols = half(cols, TILE_COLS_MIN);
    else
      break;
  }
  run->rows = rows;
  run->cols = cols;
  run->n_across = n_pieces(g->n, cols);
}

static const char *at(const void *x, size_t row, size_t col, size_t ld,
                      enum pen_elem elem)
{
  return (const char *)x + (row * ld + col) * pen_elem_bytes(elem);
}

static void run_tile(void *ctx, size_t item, size_t worker)
{
  struct run *run = ctx;
  const struct pen_gemm *g = run->g;
  size_t row = item / run->n_across * run->rows;
  size_t col = item % run->n_across * run->cols;
  struct pen_gemm tile = *g;
  tile.m = g->m - row < run->rows ? g->m - row : run->rows;
  tile.n = g->n - col < run->cols ? g->n - col : run->cols;
  tile.a = g->a_trans ? at(g->a, 0, row, g->lda, g->ab_elem)
                      : at(g->a, row, 0, g->lda, g->ab_elem);
  tile.b = g->b_trans ? at(g->b, col, 0, g->ldb, g->ab_elem)
                      : at(g->b, 0, col, g->ldb, g->ab_elem);
  tile.c = (char *)at(g->c, row, col, g->ldc, g->c_elem);
  int r = run->s->gemm->tile(run->s->isa, &tile,
                             pen_stream_scratch(run->s, worker));
  if (r)
    atomic_store(&run->status, r);
}

/* What comes behind a product, as passes of their own. */
static void finish(struct pen_stream *s, const struct pen_gemm *g)
{
  const struct pen_ops *ops = pen_ops_host(s->isa, g->c_elem);
  if (g->bias)
    ops->bias(s, g->m, g->n, g->c, g->ldc, g->bias);
  if (g->addend)
    ops->add(s, g->m * g->n, g->addend, g->c, g->c);
}

void pen_gemm_run(struct pen_stream *s, const struct pen_gemm *g)
{
  if (!g->m || !g->n)
    return;
  struct run run = {.s = s, .g = g, .status = 0};
  if (s->gemm->any_cut)
    choose_even_tile(s->gemm, g, pen_pool_n_threads(s->pool), &run);
  else
    choose_tile(s->gemm, g, &run);
  pen_stream_run(s, n_pieces(g->m, run.rows) * run.n_across, run_tile, &run);
  if (atomic_load(&run.status) && !s->error.code) {
    pen_error_set(atomic_load(&run.status),
                  "%s could not multiply [%zu, %zu] by [%zu, %zu] in %s: try "
                  "--gemm reference",
                  s->gemm->name, g->m, g->k, g->k, g->n,
                  pen_elem_name(g->ab_elem));
    pen_error_take(&s->error);
  }
  finish(s, g);
}
