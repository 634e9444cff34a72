/* head.c: logits chunk by chunk.
 *
 * Runs on the compute lane's thread; allocates nothing.  Invariant: chunks are
 * cut by constants, so every sum has one order.  Disadvantage: logits that are
 * kept are fp32, four bytes for each id and token. */
#include "src/model/head.h"

#define ALIGN ((size_t)64)

static size_t min_size(size_t a, size_t b)
{
  return a < b ? a : b;
}

static size_t aligned(size_t n)
{
  return (n + ALIGN - 1) / ALIGN * ALIGN;
}

size_t pen_head_work_bytes(enum pen_elem elem, size_t hidden,
                           size_t max_tokens)
{
  size_t rows = min_size(max_tokens, PEN_HEAD_CHUNK_TOKENS);
  size_t logits = aligned(rows * PEN_HEAD_CHUNK_IDS * sizeof(float));
  size_t dlogits = rows * PEN_HEAD_CHUNK_IDS * pen_elem_bytes(elem);
  size_t gathered = rows * hidden * pen_elem_bytes(elem);
  size_t most = logits + dlogits;
  return aligned(most > gathered ? most : gathered);
}

size_t pen_head_saved_bytes(size_t n_ids, size_t max_tokens)
{
  return n_ids * max_tokens * sizeof(float);
}

static const void *row(const struct pen_head_call *c, const void *x, size_t i)
{
  return (const char *)x + i * c->hidden * pen_elem_bytes(c->ops->elem);
}

/* out [n_rows, n_ids] of row stride ld = x [n_rows, C] times rows id0... of the
 * block, capped where the model does that. */
static void logits_of(const struct pen_head_call *c, const void *x,
                      size_t n_rows, size_t id0, size_t n_ids, float *out,
                      size_t ld)
{
  struct pen_gemm product = {
      .m = n_rows, .n = n_ids, .k = c->hidden,
      .a = x, .lda = c->hidden,
      .b = row(c, c->w, id0), .ldb = c->hidden, .b_trans = true,
      .c = out, .ldc = ld, .ab_elem = c->ops->elem, .c_elem = PEN_ELEM_F32};
  c->ops->gemm(c->stream, &product);
  if (c->softcap != 0)
    c->ops->softcap(c->stream, n_rows, n_ids, c->softcap, out, ld);
}

static struct pen_logits chunk_shape(const struct pen_head_call *c, size_t id0,
                                     size_t t0)
{
  size_t cols = min_size(PEN_HEAD_CHUNK_IDS, c->n_ids - id0);
  struct pen_logits shape = {
      .rows = min_size(PEN_HEAD_CHUNK_TOKENS, c->tokens - t0), .cols = cols,
      .ld = cols, .first_token = t0, .first_id = c->first_id + id0,
      .tokens = c->tokens, .targets = c->targets};
  return shape;
}

/* Where a chunk's logits lie among those that are kept. */
static size_t saved_at(const struct pen_head_call *c, size_t id0,
                       const struct pen_logits *chunk)
{
  return id0 * c->tokens + chunk->first_token * chunk->cols;
}

void pen_head_forward(const struct pen_head_call *c, float *stats,
                      float *saved)
{
  for (size_t id0 = 0; id0 < c->n_ids; id0 += PEN_HEAD_CHUNK_IDS)
    for (size_t t0 = 0; t0 < c->tokens; t0 += PEN_HEAD_CHUNK_TOKENS) {
      struct pen_logits shape = chunk_shape(c, id0, t0);
      float *logits = saved ? saved + saved_at(c, id0, &shape) : c->work;
      logits_of(c, row(c, c->x, t0), shape.rows, id0, shape.cols, logits,
                shape.ld);
      c->ops->xent_add(c->stream, &shape, logits, stats);
    }
}

void pen_head_backward(const struct pen_head_call *c, const float *stats,
                       const float *saved, float *dx, float *grad)
{
  enum pen_elem elem = c->ops->elem;
  size_t rows_max = min_size(c->tokens, PEN_HEAD_CHUNK_TOKENS);
  void *g = (char *)c->work +
            aligned(rows_max * PEN_HEAD_CHUNK_IDS * sizeof(float));
  for (size_t id0 = 0; id0 < c->n_ids; id0 += PEN_HEAD_CHUNK_IDS)
    for (size_t t0 = 0; t0 < c->tokens; t0 += PEN_HEAD_CHUNK_TOKENS) {
      struct pen_logits shape = chunk_shape(c, id0, t0);
      const void *x = row(c, c->x, t0);
      const float *logits = saved ? saved + saved_at(c, id0, &shape) : c->work;
      if (!saved)
        logits_of(c, x, shape.rows, id0, shape.cols, c->work, shape.ld);
      c->ops->xent_backward(c->stream, &shape, logits, stats, g);
      if (c->softcap != 0)
        c->ops->softcap_backward(c->stream, shape.rows, shape.cols, c->softcap,
                                 logits, shape.ld, g);
      struct pen_gemm to_x = {
          .m = shape.rows, .n = c->hidden, .k = shape.cols,
          .a = g, .lda = shape.cols,
          .b = row(c, c->w, id0), .ldb = c->hidden,
          .c = dx + t0 * c->hidden, .ldc = c->hidden,
          .ab_elem = elem, .c_elem = PEN_ELEM_F32,
          .accumulate = !c->is_first || id0 > 0};
      c->ops->gemm(c->stream, &to_x);
      struct pen_gemm to_w = {
          .m = shape.cols, .n = c->hidden, .k = shape.rows,
          .a = g, .lda = shape.cols, .a_trans = true,
          .b = x, .ldb = c->hidden,
          .c = grad + id0 * c->hidden, .ldc = c->hidden,
          .ab_elem = elem, .c_elem = PEN_ELEM_F32, .accumulate = true};
      c->ops->gemm(c->stream, &to_w);
    }
}

void pen_head_logits(const struct pen_head_call *c, const uint32_t *rows,
                     size_t n_rows, float *logits, size_t ld)
{
  for (size_t r0 = 0; r0 < n_rows; r0 += PEN_HEAD_CHUNK_TOKENS) {
    size_t n = min_size(PEN_HEAD_CHUNK_TOKENS, n_rows - r0);
    c->ops->embed(c->stream, rows + r0, n, 0, c->tokens, c->hidden, 1, c->x,
                  c->work);
    logits_of(c, c->work, n, 0, c->n_ids, logits + r0 * ld + c->first_id, ld);
  }
}
