/* elementwise.c: rope, bias, residual add, embedding rows, casts.
 *
 * Pool items are ranges of rows (or of elements), or of columns where rows are
 * accumulated in order.  Disadvantage: each is a pass over memory of its own;
 * nothing is fused into the products. */
#include <string.h>

#include "kernels/cpu/cpu.h"

/* Elements a pool item handles, about: enough to pay for handing it out. */
#define ITEM_ELEMS ((size_t)16384)

static size_t rows_per_item(size_t cols)
{
  return cols < ITEM_ELEMS ? ITEM_ELEMS / cols : 1;
}

static size_t n_items(size_t n, size_t per_item)
{
  return (n + per_item - 1) / per_item;
}

/* ---- rope ---- */

struct rope_args {
  struct pen_heads shape;
  size_t rotary;
  elem_t *x;
  size_t ldx;
  const uint32_t *positions;
  const float *cosines, *sines;
  bool inverse;
};

static void rope_vector(elem_t *x, size_t half, const float *cosines,
                        const float *sines, v16 sign)
{
  for (size_t i = 0; i < half; i += 16) {
    size_t n = PEN_LEFT(half, i);
    v16 c = v16_load_n(cosines + i, n);
    v16 sn = v16_mul(sign, v16_load_n(sines + i, n));
    v16 a = elem_load_n(x + i, n), b = elem_load_n(x + half + i, n);
    elem_store_n(x + i, v16_sub(v16_mul(a, c), v16_mul(b, sn)), n);
    elem_store_n(x + half + i, v16_add(v16_mul(b, c), v16_mul(a, sn)), n);
  }
}

static void rope_rows(void *ctx, size_t item, size_t worker)
{
  const struct rope_args *g = ctx;
  size_t half = g->rotary / 2;
  size_t per_item = rows_per_item(g->shape.heads * g->shape.dim);
  size_t end = PEN_MIN(g->shape.tokens, (item + 1) * per_item);
  v16 sign = v16_set1(g->inverse ? -1 : 1);
  for (size_t t = item * per_item; t < end; t++)
    for (size_t h = 0; h < g->shape.heads; h++)
      rope_vector(g->x + t * g->ldx + h * g->shape.dim, half,
                  g->cosines + g->positions[t] * half,
                  g->sines + g->positions[t] * half, sign);
}

void pen_cpu_rope(struct pen_stream *s, const struct pen_heads *shape,
                  size_t rotary, void *x, size_t ldx,
                  const uint32_t *positions, const float *cosines,
                  const float *sines, bool inverse)
{
  struct rope_args g = {*shape,    rotary,  x,     ldx,
                        positions, cosines, sines, inverse};
  size_t per_item = rows_per_item(shape->heads * shape->dim);
  pen_stream_run(s, n_items(shape->tokens, per_item), rope_rows, &g);
}

/* ---- embedding ---- */

struct embed_args {
  const uint32_t *ids;
  size_t tokens, first_row, rows, dim;
  float scale;
  const elem_t *table, *d;
  elem_t *x;
  float *grad;
};

static void embed_rows(void *ctx, size_t item, size_t worker)
{
  const struct embed_args *g = ctx;
  size_t per_item = rows_per_item(g->dim);
  size_t end = PEN_MIN(g->tokens, (item + 1) * per_item);
  v16 scale = v16_set1(g->scale);
  for (size_t t = item * per_item; t < end; t++) {
    size_t row = (size_t)g->ids[t] - g->first_row; /* wraps below first_row */
    for (size_t i = 0; i < g->dim && row < g->rows; i += 16) {
      size_t n = PEN_LEFT(g->dim, i);
      v16 a = elem_load_n(g->table + row * g->dim + i, n);
      elem_store_n(g->x + t * g->dim + i, v16_mul(scale, a), n);
    }
  }
}

void pen_cpu_embed(struct pen_stream *s, const uint32_t *ids, size_t tokens,
                   size_t first_row, size_t rows, size_t dim, float scale,
                   const void *table, void *x)
{
  struct embed_args g = {.ids = ids, .tokens = tokens, .first_row = first_row,
                         .rows = rows, .dim = dim, .scale = scale,
                         .table = table, .x = x};
  pen_stream_run(s, n_items(tokens, rows_per_item(dim)), embed_rows, &g);
}

/* Columns of one pool item where rows are added in order. */
#define ORDERED_COLS ((size_t)64)

static void embed_backward_columns(void *ctx, size_t item, size_t worker)
{
  const struct embed_args *g = ctx;
  size_t begin = item * ORDERED_COLS;
  size_t end = PEN_MIN(g->dim, begin + ORDERED_COLS);
  v16 scale = v16_set1(g->scale);
  for (size_t t = 0; t < g->tokens; t++) {
    size_t row = (size_t)g->ids[t] - g->first_row;
    if (row >= g->rows)
      continue;
    const elem_t *d = g->d + t * g->dim;
    float *grad = g->grad + row * g->dim;
    for (size_t i = begin; i < end; i += 16) {
      size_t n = PEN_LEFT(end, i);
      v16 a = v16_mul(scale, elem_load_n(d + i, n));
      v16_store_n(grad + i, v16_add(v16_load_n(grad + i, n), a), n);
    }
  }
}

void pen_cpu_embed_backward(struct pen_stream *s, const uint32_t *ids,
                            size_t tokens, size_t first_row, size_t rows,
                            size_t dim, float scale, const void *d,
                            float *grad)
{
  struct embed_args g = {.ids = ids, .tokens = tokens, .first_row = first_row,
                         .rows = rows, .dim = dim, .scale = scale, .d = d,
                         .grad = grad};
  pen_stream_run(s, n_items(dim, ORDERED_COLS), embed_backward_columns, &g);
}

/* ---- bias ---- */

struct bias_args {
  size_t rows, cols, ld;
  elem_t *x;
  const elem_t *b, *dy;
  float *partials;
};

static void bias_rows(void *ctx, size_t item, size_t worker)
{
  const struct bias_args *g = ctx;
  size_t per_item = rows_per_item(g->cols);
  size_t end = PEN_MIN(g->rows, (item + 1) * per_item);
  for (size_t t = item * per_item; t < end; t++)
    for (size_t i = 0; i < g->cols; i += 16) {
      size_t n = PEN_LEFT(g->cols, i);
      elem_t *x = g->x + t * g->ld + i;
      elem_store_n(x, v16_add(elem_load_n(x, n), elem_load_n(g->b + i, n)), n);
    }
}

void pen_cpu_bias(struct pen_stream *s, size_t rows, size_t cols, void *x,
                  size_t ld, const void *b)
{
  struct bias_args g = {.rows = rows, .cols = cols, .ld = ld, .x = x, .b = b};
  pen_stream_run(s, n_items(rows, rows_per_item(cols)), bias_rows, &g);
}

static void bias_backward_chunk(void *ctx, size_t item, size_t worker)
{
  const struct bias_args *g = ctx;
  size_t begin = item * PEN_OPS_ROW_CHUNK;
  size_t end = PEN_MIN(g->rows, begin + PEN_OPS_ROW_CHUNK);
  for (size_t i = 0; i < g->cols; i += 16) {
    size_t n = PEN_LEFT(g->cols, i);
    v16 sum = v16_set1(0);
    for (size_t t = begin; t < end; t++)
      sum = v16_add(sum, elem_load_n(g->dy + t * g->ld + i, n));
    v16_store_n(g->partials + item * g->cols + i, sum, n);
  }
}

void pen_cpu_bias_backward(struct pen_stream *s, size_t rows, size_t cols,
                           const void *dy, size_t ld, float *db,
                           float *partials)
{
  struct bias_args g = {.rows = rows, .cols = cols, .ld = ld, .dy = dy,
                        .partials = partials};
  size_t chunks = n_items(rows, PEN_OPS_ROW_CHUNK);
  pen_stream_run(s, chunks, bias_backward_chunk, &g);
  pen_cpu_sum_partials(s, chunks, cols, partials, db);
}

/* ---- flat arrays ---- */

struct flat_args {
  size_t n;
  const elem_t *a, *b;
  const float *x;
  float *zero;
  elem_t *y;
};

static void add_range(void *ctx, size_t item, size_t worker)
{
  const struct flat_args *g = ctx;
  size_t end = PEN_MIN(g->n, (item + 1) * ITEM_ELEMS);
  for (size_t i = item * ITEM_ELEMS; i < end; i += 16) {
    size_t n = PEN_LEFT(end, i);
    v16 sum = v16_add(elem_load_n(g->a + i, n), elem_load_n(g->b + i, n));
    elem_store_n(g->y + i, sum, n);
  }
}

void pen_cpu_add(struct pen_stream *s, size_t n, const void *a, const void *b,
                 void *y)
{
  struct flat_args g = {.n = n, .a = a, .b = b, .y = y};
  pen_stream_run(s, n_items(n, ITEM_ELEMS), add_range, &g);
}

static void add_f32_range(void *ctx, size_t item, size_t worker)
{
  const struct flat_args *g = ctx;
  size_t end = PEN_MIN(g->n, (item + 1) * ITEM_ELEMS);
  for (size_t i = item * ITEM_ELEMS; i < end; i += 16) {
    size_t n = PEN_LEFT(end, i);
    v16 sum = v16_add(elem_load_n(g->y + i, n), v16_load_n(g->x + i, n));
    elem_store_n(g->y + i, sum, n);
  }
}

void pen_cpu_add_f32(struct pen_stream *s, size_t n, const float *x, void *y)
{
  struct flat_args g = {.n = n, .x = x, .y = y};
  pen_stream_run(s, n_items(n, ITEM_ELEMS), add_f32_range, &g);
}

static void from_f32_range(void *ctx, size_t item, size_t worker)
{
  const struct flat_args *g = ctx;
  size_t end = PEN_MIN(g->n, (item + 1) * ITEM_ELEMS);
  for (size_t i = item * ITEM_ELEMS; i < end; i += 16) {
    size_t n = PEN_LEFT(end, i);
    elem_store_n(g->y + i, v16_load_n(g->x + i, n), n);
  }
}

void pen_cpu_from_f32(struct pen_stream *s, size_t n, const float *x, void *y)
{
  struct flat_args g = {.n = n, .x = x, .y = y};
  pen_stream_run(s, n_items(n, ITEM_ELEMS), from_f32_range, &g);
}

static void zero_f32_range(void *ctx, size_t item, size_t worker)
{
  const struct flat_args *g = ctx;
  size_t begin = item * ITEM_ELEMS;
  size_t end = PEN_MIN(g->n, begin + ITEM_ELEMS);
  memset(g->zero + begin, 0, (end - begin) * sizeof(float));
}

void pen_cpu_zero_f32(struct pen_stream *s, size_t n, float *x)
{
  struct flat_args g = {.n = n, .zero = x};
  pen_stream_run(s, n_items(n, ITEM_ELEMS), zero_f32_range, &g);
}
