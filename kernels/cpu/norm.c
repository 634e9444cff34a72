/* norm.c: rmsnorm and layernorm, forward and backward; and sums of per-chunk
 * partials.
 *
 * Both are one source: rmsnorm is layernorm with mean and b at 0.  A vector's
 * sums run over 16 interleaved lanes and a fixed tree.  Pool items are chunks of
 * PEN_OPS_ROW_CHUNK vectors; gradients of w and b are summed within a chunk into
 * `partials` in row order, then over the chunks in order.  Disadvantage: x is
 * read twice (with a mean three times), once for each sum and for the result. */
#include <math.h>

#include "kernels/cpu/cpu.h"

struct norm_args {
  struct pen_heads shape;
  const elem_t *x;
  size_t ldx;
  const elem_t *w, *b; /* b NULL: rmsnorm */
  float w_plus, eps;
  elem_t *y;
  size_t ldy;
  float *mean_out, *rstd_out;
  /* backward */
  const void *dy;
  size_t lddy;
  enum pen_elem dy_elem;
  const float *mean, *rstd;
  elem_t *dx;
  size_t lddx;
  bool accumulate;
  float *dw_partials, *db_partials; /* [chunks, dim] */
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

PEN_INLINE v16 load_w(const struct norm_args *g, size_t i, size_t n)
{
  return v16_add(elem_load_n(g->w + i, n), v16_set1(g->w_plus));
}

/* x [dim] - mean, lanes past the end 0. */
PEN_INLINE v16 load_centred(const elem_t *x, size_t dim, size_t i, float mean)
{
  size_t n = PEN_LEFT(dim, i);
  float kept[16] = {0};
  v16 a = v16_sub(elem_load_n(x + i, n), v16_set1(mean));
  if (n == 16)
    return a;
  v16_store_n(kept, a, n);
  return v16_load(kept);
}

static float mean_of(const elem_t *x, size_t dim)
{
  v16 sum = v16_set1(0);
  for (size_t i = 0; i < dim; i += 16)
    sum = v16_add(sum, elem_load_n(x + i, PEN_LEFT(dim, i)));
  return v16_sum(sum) / (float)dim;
}

PEN_INLINE void norm_vector(const struct norm_args *g, size_t r, bool centred)
{
  size_t dim = g->shape.dim;
  const elem_t *x = g->x + vector_at(&g->shape, r, g->ldx);
  elem_t *y = g->y + vector_at(&g->shape, r, g->ldy);
  float mean = centred ? mean_of(x, dim) : 0;
  v16 sum = v16_set1(0);
  for (size_t i = 0; i < dim; i += 16) {
    v16 a = load_centred(x, dim, i, mean);
    sum = v16_muladd(sum, a, a);
  }
  float rstd = 1.0f / sqrtf(v16_sum(sum) / (float)dim + g->eps);
  g->rstd_out[r] = rstd;
  if (centred)
    g->mean_out[r] = mean;
  v16 scale = v16_set1(rstd);
  for (size_t i = 0; i < dim; i += 16) {
    size_t n = PEN_LEFT(dim, i);
    v16 a = v16_mul(load_centred(x, dim, i, mean), scale);
    a = v16_mul(a, load_w(g, i, n));
    if (centred)
      a = v16_add(a, elem_load_n(g->b + i, n));
    elem_store_n(y + i, a, n);
  }
}

static void norm_chunk(void *ctx, size_t item, size_t worker)
{
  const struct norm_args *g = ctx;
  size_t rows = g->shape.tokens * g->shape.heads;
  size_t end = PEN_MIN(rows, (item + 1) * PEN_OPS_ROW_CHUNK);
  for (size_t r = item * PEN_OPS_ROW_CHUNK; r < end; r++)
    if (g->b)
      norm_vector(g, r, true);
    else
      norm_vector(g, r, false);
}

void pen_cpu_rmsnorm(struct pen_stream *s, const struct pen_heads *shape,
                     const void *x, size_t ldx, const void *w, float w_plus,
                     float eps, void *y, size_t ldy, float *rstd)
{
  struct norm_args g = {.shape = *shape, .x = x, .ldx = ldx, .w = w,
                        .w_plus = w_plus, .eps = eps, .y = y, .ldy = ldy,
                        .rstd_out = rstd};
  pen_stream_run(s, n_chunks(shape->tokens * shape->heads), norm_chunk, &g);
}

void pen_cpu_layernorm(struct pen_stream *s, size_t rows, size_t dim,
                       const void *x, const void *w, const void *b, float eps,
                       void *y, float *mean, float *rstd)
{
  struct norm_args g = {.shape = {rows, 1, dim}, .x = x, .ldx = dim, .w = w,
                        .b = b, .eps = eps, .y = y, .ldy = dim,
                        .mean_out = mean, .rstd_out = rstd};
  pen_stream_run(s, n_chunks(rows), norm_chunk, &g);
}

static v16 load_dy(const struct norm_args *g, size_t at, size_t n)
{
  if (g->dy_elem == PEN_ELEM_F32)
    return v16_load_n((const float *)g->dy + at, n);
  return v16_load_bf16_n((const uint16_t *)g->dy + at, n);
}

/* out = a (first) or += a */
PEN_INLINE void add_partial(float *out, v16 a, bool first, size_t n)
{
  v16_store_n(out, first ? a : v16_add(v16_load_n(out, n), a), n);
}

/* With h = (x - mean) rstd and a = dy w: dw += dy h, db += dy,
 * dx = rstd (a - h mean(a h) - mean(a)). */
PEN_INLINE void norm_vector_backward(const struct norm_args *g, size_t r,
                                     float *dw, float *db, bool centred)
{
  size_t dim = g->shape.dim, dy_at = vector_at(&g->shape, r, g->lddy);
  const elem_t *x = g->x + vector_at(&g->shape, r, g->ldx);
  elem_t *dx = g->dx + vector_at(&g->shape, r, g->lddx);
  bool first = r % PEN_OPS_ROW_CHUNK == 0;
  float mean = centred ? g->mean[r] : 0;
  v16 scale = v16_set1(g->rstd[r]), sum_ah = v16_set1(0), sum_a = v16_set1(0);
  for (size_t i = 0; i < dim; i += 16) {
    size_t n = PEN_LEFT(dim, i);
    v16 dy = load_dy(g, dy_at + i, n), w = load_w(g, i, n);
    v16 dyh = v16_mul(dy, v16_mul(load_centred(x, dim, i, mean), scale));
    sum_ah = v16_muladd(sum_ah, dyh, w);
    add_partial(dw + i, dyh, first, n);
    if (centred) {
      sum_a = v16_muladd(sum_a, dy, w);
      add_partial(db + i, dy, first, n);
    }
  }
  v16 mean_ah = v16_set1(v16_sum(sum_ah) / (float)dim);
  v16 mean_a = v16_set1(centred ? v16_sum(sum_a) / (float)dim : 0);
  for (size_t i = 0; i < dim; i += 16) {
    size_t n = PEN_LEFT(dim, i);
    v16 h = v16_mul(load_centred(x, dim, i, mean), scale);
    v16 a = v16_mul(load_dy(g, dy_at + i, n), load_w(g, i, n));
    a = v16_sub(a, v16_mul(h, mean_ah));
    if (centred)
      a = v16_sub(a, mean_a);
    a = v16_mul(scale, a);
    if (g->accumulate)
      a = v16_add(elem_load_n(dx + i, n), a);
    elem_store_n(dx + i, a, n);
  }
}

static void norm_backward_chunk(void *ctx, size_t item, size_t worker)
{
  const struct norm_args *g = ctx;
  size_t dim = g->shape.dim, rows = g->shape.tokens * g->shape.heads;
  size_t end = PEN_MIN(rows, (item + 1) * PEN_OPS_ROW_CHUNK);
  float *dw = g->dw_partials + item * dim;
  for (size_t r = item * PEN_OPS_ROW_CHUNK; r < end; r++)
    if (g->db_partials)
      norm_vector_backward(g, r, dw, g->db_partials + item * dim, true);
    else
      norm_vector_backward(g, r, dw, NULL, false);
}

void pen_cpu_rmsnorm_backward(struct pen_stream *s,
                              const struct pen_heads *shape, const void *dy,
                              size_t lddy, enum pen_elem dy_elem,
                              const void *x, size_t ldx, const void *w,
                              float w_plus, const float *rstd, void *dx,
                              size_t lddx, bool accumulate, float *dw,
                              float *partials)
{
  struct norm_args g = {.shape = *shape, .dy = dy, .lddy = lddy,
                        .dy_elem = dy_elem, .x = x, .ldx = ldx, .w = w,
                        .w_plus = w_plus, .rstd = rstd, .dx = dx, .lddx = lddx,
                        .accumulate = accumulate, .dw_partials = partials};
  size_t chunks = n_chunks(shape->tokens * shape->heads);
  pen_stream_run(s, chunks, norm_backward_chunk, &g);
  pen_cpu_sum_partials(s, chunks, shape->dim, partials, dw);
}

void pen_cpu_layernorm_backward(struct pen_stream *s, size_t rows, size_t dim,
                                const void *dy, enum pen_elem dy_elem,
                                const void *x, const void *w,
                                const float *mean, const float *rstd, void *dx,
                                bool accumulate, float *dw, float *db,
                                float *partials)
{
  size_t chunks = n_chunks(rows);
  struct norm_args g = {.shape = {rows, 1, dim}, .dy = dy, .lddy = dim,
                        .dy_elem = dy_elem, .x = x, .ldx = dim, .w = w,
                        .mean = mean, .rstd = rstd, .dx = dx, .lddx = dim,
                        .accumulate = accumulate, .dw_partials = partials,
                        .db_partials = partials + chunks * dim};
  pen_stream_run(s, chunks, norm_backward_chunk, &g);
  pen_cpu_sum_partials(s, chunks, dim, g.dw_partials, dw);
  pen_cpu_sum_partials(s, chunks, dim, g.db_partials, db);
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
