/* xent.c: cross-entropy over a vocabulary that is never all there: running
 * statistics per token, loss, and the gradient of one block of logits.
 *
 * A pool item is a few rows of logits; each row is summed over 16 interleaved
 * lanes and a fixed tree, block after block.  Disadvantage: the exponentials
 * are computed in both passes. */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/log.h"

/* Below any finite logit that matters, and finite: differences stay numbers. */
#define NO_MAX (-3e38f)
#define ROWS_PER_ITEM ((size_t)8)

struct xent_args {
  struct pen_logits shape;
  const float *logits;
  float *stats;       /* xent_add */
  const float *ready; /* xent_backward */
  elem_t *g;
};

void pen_cpu_xent_begin(struct pen_stream *s, size_t tokens, float *stats)
{
  for (size_t t = 0; t < tokens; t++) {
    stats[PEN_XENT_MAX * tokens + t] = NO_MAX;
    stats[PEN_XENT_SUM * tokens + t] = 0;
    stats[PEN_XENT_TARGET * tokens + t] = 0;
  }
}

/* Lanes past n as -Inf, which adds nothing to a softmax. */
PEN_INLINE v16 load_logits(const float *x, size_t n)
{
  return v16_load_rest(x, n, -INFINITY);
}

static void add_row(const float *x, size_t cols, float *max, float *sum)
{
  v16 top = v16_set1(*max);
  for (size_t i = 0; i < cols; i += 16)
    top = v16_max(top, load_logits(x + i, PEN_LEFT(cols, i)));
  float new_max = v16_max_lane(top);
  v16 shift = v16_set1(new_max), lanes = v16_set1(0);
  for (size_t i = 0; i < cols; i += 16) {
    v16 a = load_logits(x + i, PEN_LEFT(cols, i));
    lanes = v16_add(lanes, v16_exp(v16_sub(a, shift)));
  }
  float fade[16];
  v16_store(fade, v16_exp(v16_set1(*max - new_max)));
  *sum = *sum * fade[0] + v16_sum(lanes);
  *max = new_max;
}

static void add_rows(void *ctx, size_t item, size_t worker)
{
  const struct xent_args *g = ctx;
  const struct pen_logits *l = &g->shape;
  size_t end = PEN_MIN(l->rows, (item + 1) * ROWS_PER_ITEM);
  for (size_t r = item * ROWS_PER_ITEM; r < end; r++) {
    size_t t = l->first_token + r;
    const float *x = g->logits + r * l->ld;
    if (l->targets[t] < 0)
      continue;
    size_t column = (size_t)l->targets[t] - l->first_id; /* wraps below */
    if (column < l->cols)
      g->stats[PEN_XENT_TARGET * l->tokens + t] = x[column];
    add_row(x, l->cols, &g->stats[PEN_XENT_MAX * l->tokens + t],
            &g->stats[PEN_XENT_SUM * l->tokens + t]);
  }
}

void pen_cpu_xent_add(struct pen_stream *s, const struct pen_logits *shape,
                      const float *logits, float *stats)
{
  struct xent_args g = {.shape = *shape, .logits = logits, .stats = stats};
  pen_stream_run(s, (shape->rows + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM,
               add_rows, &g);
}

static double log_sum(const float *stats, size_t tokens, size_t t)
{
  return (double)stats[PEN_XENT_MAX * tokens + t] +
         pen_cpu_log(stats[PEN_XENT_SUM * tokens + t]);
}

void pen_cpu_xent_loss(struct pen_stream *s, size_t tokens,
                       const int32_t *targets, const float *stats,
                       double *ret_loss)
{
  double loss = 0;
  for (size_t t = 0; t < tokens; t++)
    if (targets[t] >= 0)
      loss += log_sum(stats, tokens, t) -
              (double)stats[PEN_XENT_TARGET * tokens + t];
  *ret_loss = loss;
}

static void backward_rows(void *ctx, size_t item, size_t worker)
{
  const struct xent_args *g = ctx;
  const struct pen_logits *l = &g->shape;
  size_t end = PEN_MIN(l->rows, (item + 1) * ROWS_PER_ITEM);
  for (size_t r = item * ROWS_PER_ITEM; r < end; r++) {
    size_t t = l->first_token + r;
    const float *x = g->logits + r * l->ld;
    elem_t *out = g->g + r * l->cols;
    bool counts = l->targets[t] >= 0;
    /* e^(x - max) / sum keeps more bits than e^(x - lse). */
    v16 max = v16_set1(g->ready[PEN_XENT_MAX * l->tokens + t]);
    v16 scale = v16_set1(1 / g->ready[PEN_XENT_SUM * l->tokens + t]);
    for (size_t i = 0; i < l->cols; i += 16) {
      size_t n = PEN_LEFT(l->cols, i);
      v16 p = v16_exp(v16_sub(v16_load_n(x + i, n), max));
      elem_store_n(out + i, counts ? v16_mul(p, scale) : v16_set1(0), n);
    }
    size_t column = (size_t)l->targets[t] - l->first_id;
    if (counts && column < l->cols) {
      float p[16];
      v16_store(p, v16_mul(v16_exp(v16_sub(v16_set1(x[column]), max)), scale));
      elem_store_n(out + column, v16_set1(p[0] - 1), 1);
    }
  }
}

void pen_cpu_xent_backward(struct pen_stream *s,
                           const struct pen_logits *shape, const float *logits,
                           const float *stats, void *g)
{
  struct xent_args args = {.shape = *shape, .logits = logits, .ready = stats,
                           .g = g};
  pen_stream_run(s, (shape->rows + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM,
               backward_rows, &args);
}
