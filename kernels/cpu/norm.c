/* norm.c: rmsnorm, forward and backward; and sums of per-chunk partials.
 *
 * A vector's sums run over 16 interleaved lanes and a fixed tree.  Pool items
 * are chunks of PEN_OPS_ROW_CHUNK vectors; the gradient of w is summed within a
 * chunk into `partials` in row order, then over the chunks in order.
 * Disadvantage: x is read twice, once for the sum and once for the result. */
#include <math.h>

#include "kernels/cpu/cpu.h"

struct norm_args {
  struct pen_heads shape;
  const elem_t *x;
  size_t ldx;
  const elem_t *w;
  float eps;
  elem_t *y;
  size_t ldy;
  float *rstd_out;
  /* backward */
  const void *dy;
  size_t lddy;
  enum pen_elem dy_elem;
  const float *rstd;
  elem_t *dx;
  size_t lddx;
  bool accumulate;
  float *partials;
};

static size_t n_chunks(size_t rows)
{
  return (rows + PEN_OPS_ROW_CHUNK - 1) / PEN_OPS_ROW_CHUNK;
}

/* Where vector `row` begins in an array of token stride ld. */
static size_t vector_at(const struct pen_heads *shape, size_t row, size_t ld)
{
  return row / shape->heads * ld + row % shape->heads * shape->dim;
}

static void norm_chunk(void *ctx, size_t item, size_t worker)
{
  const struct norm_args *g = ctx;
  size_t dim = g->shape.dim, rows = g->shape.tokens * g->shape.heads;
  size_t end = PEN_MIN(rows, (item + 1) * PEN_OPS_ROW_CHUNK);
  for (size_t r = item * PEN_OPS_ROW_CHUNK; r < end; r++) {
    const elem_t *x = g->x + vector_at(&g->shape, r, g->ldx);
    elem_t *y = g->y + vector_at(&g->shape, r, g->ldy);
    v16 sum = v16_set1(0);
    for (size_t i = 0; i < dim; i += 16) {
      v16 a = elem_load_n(x + i, PEN_LEFT(dim, i));
      sum = v16_muladd(sum, a, a);
    }
    float rstd = 1.0f / sqrtf(v16_sum(sum) / (float)dim + g->eps);
    g->rstd_out[r] = rstd;
    v16 scale = v16_set1(rstd);
    for (size_t i = 0; i < dim; i += 16) {
      size_t n = PEN_LEFT(dim, i);
      v16 a = v16_mul(elem_load_n(x + i, n), scale);
      elem_store_n(y + i, v16_mul(a, elem_load_n(g->w + i, n)), n);
    }
  }
}

void pen_cpu_rmsnorm(struct pen_stream *s, const struct pen_heads *shape,
                     const void *x, size_t ldx, const void *w, float eps,
                     void *y, size_t ldy, float *rstd)
{
  struct norm_args g = {.shape = *shape, .x = x, .ldx = ldx, .w = w,
                        .eps = eps, .y = y, .ldy = ldy, .rstd_out = rstd};
  pen_stream_run(s, n_chunks(shape->tokens * shape->heads), norm_chunk, &g);
}

static v16 load_dy(const struct norm_args *g, size_t at, size_t n)
{
  if (g->dy_elem == PEN_ELEM_F32)
    return v16_load_n((const float *)g->dy + at, n);
  return v16_load_bf16_n((const uint16_t *)g->dy + at, n);
}

/* With h = x rstd: dw += dy h; dx = rstd (dy w - h mean(dy w h)). */
static void norm_backward_chunk(void *ctx, size_t item, size_t worker)
{
  const struct norm_args *g = ctx;
  size_t dim = g->shape.dim, rows = g->shape.tokens * g->shape.heads;
  size_t end = PEN_MIN(rows, (item + 1) * PEN_OPS_ROW_CHUNK);
  float *dw = g->partials + item * dim;
  for (size_t r = item * PEN_OPS_ROW_CHUNK; r < end; r++) {
    bool first = r == item * PEN_OPS_ROW_CHUNK;
    const elem_t *x = g->x + vector_at(&g->shape, r, g->ldx);
    elem_t *dx = g->dx + vector_at(&g->shape, r, g->lddx);
    size_t dy_at = vector_at(&g->shape, r, g->lddy);
    v16 scale = v16_set1(g->rstd[r]), sum = v16_set1(0);
    for (size_t i = 0; i < dim; i += 16) {
      size_t n = PEN_LEFT(dim, i);
      v16 dy = load_dy(g, dy_at + i, n);
      v16 dyh = v16_mul(dy, v16_mul(elem_load_n(x + i, n), scale));
      sum = v16_muladd(sum, dyh, elem_load_n(g->w + i, n));
      v16_store_n(dw + i, first ? dyh : v16_add(v16_load_n(dw + i, n), dyh), n);
    }
    v16 mean = v16_set1(v16_sum(sum) / (float)dim);
    for (size_t i = 0; i < dim; i += 16) {
      size_t n = PEN_LEFT(dim, i);
      v16 h = v16_mul(elem_load_n(x + i, n), scale);
      v16 a = v16_mul(load_dy(g, dy_at + i, n), elem_load_n(g->w + i, n));
      a = v16_mul(scale, v16_sub(a, v16_mul(h, mean)));
      if (g->accumulate)
        a = v16_add(elem_load_n(dx + i, n), a);
      elem_store_n(dx + i, a, n);
    }
  }
}

void pen_cpu_rmsnorm_backward(struct pen_stream *s,
                              const struct pen_heads *shape, const void *dy,
                              size_t lddy, enum pen_elem dy_elem,
                              const void *x, size_t ldx, const void *w,
                              const float *rstd, void *dx, size_t lddx,
                              bool accumulate, float *dw, float *partials)
{
  struct norm_args g = {.shape = *shape, .dy = dy, .lddy = lddy,
                        .dy_elem = dy_elem, .x = x, .ldx = ldx, .w = w,
                        .rstd = rstd, .dx = dx, .lddx = lddx,
                        .accumulate = accumulate, .partials = partials};
  size_t chunks = n_chunks(shape->tokens * shape->heads);
  pen_stream_run(s, chunks, norm_backward_chunk, &g);
  pen_cpu_sum_partials(s, chunks, shape->dim, partials, dw);
}

struct sum_args {
  size_t chunks, cols;
  const float *partials;
  float *out;
};

/* Columns of one pool item. */
#define SUM_COLS ((size_t)256)

static void sum_columns(void *ctx, size_t item, size_t worker)
{
  const struct sum_args *g = ctx;
  size_t end = PEN_MIN(g->cols, (item + 1) * SUM_COLS);
  for (size_t i = item * SUM_COLS; i < end; i += 16) {
    size_t n = PEN_LEFT(end, i);
    v16 sum = v16_set1(0);
    for (size_t chunk = 0; chunk < g->chunks; chunk++)
      sum = v16_add(sum, v16_load_n(g->partials + chunk * g->cols + i, n));
    v16_store_n(g->out + i, v16_add(v16_load_n(g->out + i, n), sum), n);
  }
}

void pen_cpu_sum_partials(struct pen_stream *s, size_t chunks, size_t cols,
                          const float *partials, float *out)
{
  struct sum_args g = {chunks, cols, partials, out};
  pen_stream_run(s, (cols + SUM_COLS - 1) / SUM_COLS, sum_columns, &g);
}
