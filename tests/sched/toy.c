/* toy.c: blocks of fp32 arithmetic in a fixed order. */
#include "tests/sched/toy.h"

#include <math.h>
#include <string.h>

#define TOKENS TOY_TOKENS
#define ACT TOY_ACT
#define WIDTH (ACT / TOKENS)
#define ROWS_PER_BLOCK 16

float toy_initial(size_t block, size_t elem)
{
  uint32_t h = (uint32_t)(block * 2654435761u + elem * 40503u);
  h ^= h >> 13;
  h *= 0x5bd1e995u;
  h ^= h >> 15;
  return ((float)(h & 0xffff) / 65536.0f - 0.5f) * 0.5f;
}

static size_t n_rows(const struct toy *toy)
{
  return (toy->workload.rows_end - toy->workload.rows_begin) * ROWS_PER_BLOCK;
}

static size_t id_of(const struct toy *toy, size_t micro, size_t token)
{
  uint32_t h = toy->seed * 97u + (uint32_t)(micro * 31 + token) * 2654435761u;
  return (h >> 8) % n_rows(toy);
}

static int gather(void *ctx, size_t block, size_t micro, const void *w, void *x)
{
  struct toy *toy = ctx;
  size_t first = (block - toy->workload.rows_begin) * ROWS_PER_BLOCK;
  for (size_t t = 0; t < TOKENS; t++) {
    size_t id = id_of(toy, micro, t);
    if (id >= first && id < first + ROWS_PER_BLOCK)
      memcpy((float *)x + t * WIDTH, (const float *)w + (id - first) * WIDTH,
             WIDTH * sizeof(float));
  }
  return 0;
}

static int gather_ahead(void *ctx, size_t micro, const void *rows, void *x)
{
  struct toy *toy = ctx;
  for (size_t t = 0; t < TOKENS; t++)
    memcpy((float *)x + t * WIDTH,
           (const float *)rows + id_of(toy, micro, t) * WIDTH,
           WIDTH * sizeof(float));
  return 0;
}

/* A step's rows are all there are, in their own order. */
static void step_rows(void *ctx, size_t block, struct pen_step_rows *ret_rows)
{
  struct toy *toy = ctx;
  static const uint32_t ids[] = {
      0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
      16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
      32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47};
  size_t begin = (block - toy->workload.rows_begin) * ROWS_PER_BLOCK;
  *ret_rows = (struct pen_step_rows){.ids = ids,
                                     .n = n_rows(toy),
                                     .begin = begin,
                                     .end = begin + ROWS_PER_BLOCK,
                                     .width = WIDTH};
}

static size_t first_of_rows(const struct toy *toy, size_t block)
{
  return (block - toy->workload.rows_begin) * ROWS_PER_BLOCK * WIDTH;
}

static int scatter(void *ctx, size_t micro, const void *d, float *sums)
{
  struct toy *toy = ctx;
  for (size_t t = 0; t < TOKENS; t++)
    for (size_t i = 0; i < WIDTH; i++)
      sums[id_of(toy, micro, t) * WIDTH + i] +=
          ((const float *)d)[t * WIDTH + i];
  return 0;
}

static int put_inputs(void *ctx, size_t micro, void *inputs)
{
  struct toy *toy = ctx;
  for (size_t t = 0; t < TOKENS; t++)
    ((float *)inputs)[t] = (float)(id_of(toy, micro, t) % 7) * 0.01f;
  return 0;
}

/* What the micro-batch and the tables say of a token. */
static float told(const struct pen_inputs *in, size_t token)
{
  return ((const float *)in->micro)[token] +
         ((const float *)in->tables)[token];
}

/* y = x / 2 + every weight once, each against some input. */
static void body(const struct toy *toy, const struct pen_inputs *in,
                 size_t block, const float *w, const float *x, float *y)
{
  size_t n = toy->blocks[block].elems;
  for (size_t i = 0; i < ACT; i++)
    y[i] = 0.5f * x[i] + told(in, i / WIDTH);
  for (size_t k = 0; k < n; k++)
    y[k % ACT] += w[k] * x[(k * 7 + 3) % ACT] * 0.05f;
  for (size_t i = 0; i < ACT; i++)
    y[i] = y[i] / (1.0f + fabsf(y[i]));
}

static int forward(void *ctx, size_t block, size_t micro,
                   const struct pen_inputs *in, const void *w, const void *x,
                   void *y, void *saved, void *work)
{
  struct toy *toy = ctx;
  (void)micro;
  memset(work, 0xff, toy->workload.work_bytes);
  body(toy, in, block, w, x, y);
  if (saved)
    memcpy(saved, y, ACT * sizeof(float));
  return 0;
}

static int backward(void *ctx, size_t block, size_t micro,
                    const struct pen_inputs *in, const void *w, const void *x,
                    const void *saved, void *d, float *grad, void *work)
{
  struct toy *toy = ctx;
  const float *input = x, *weights = w;
  float *out = d, *y = work, *next = y + ACT;
  if (saved)
    memcpy(y, saved, ACT * sizeof *y);
  else
    body(toy, in, block, w, x, y);
  memset(next, 0, ACT * sizeof *next);
  for (size_t k = 0; k < toy->blocks[block].elems; k++) {
    grad[k] += out[k % ACT] * input[(k * 7 + 3) % ACT] + 0.01f * y[k % ACT];
    next[(k * 7 + 3) % ACT] += out[k % ACT] * weights[k] * 0.05f;
  }
  for (size_t i = 0; i < ACT; i++)
    out[i] = (0.5f * out[i] + next[i]) / (1.0f + fabsf(next[i]));
  if (block == toy->poisoned_block && micro == 0)
    grad[5] = NAN;
  return 0;
}

static int head_begin(void *ctx, size_t micro, float *stats)
{
  (void)ctx;
  for (size_t t = 0; t < TOKENS; t++)
    stats[t] = (float)micro;
  return 0;
}

static float dot(const float *w, const float *x, size_t n)
{
  float sum = 0;
  for (size_t k = 0; k < n; k++)
    sum += w[k] * x[k % WIDTH];
  return sum;
}

static int head_forward(void *ctx, size_t block, size_t micro,
                        const struct pen_inputs *in, const void *w,
                        const void *x, float *stats, void *saved, void *work)
{
  struct toy *toy = ctx;
  (void)micro;
  memset(work, 0xff, toy->workload.work_bytes);
  for (size_t t = 0; t < TOKENS; t++) {
    float logit =
        dot(w, (const float *)x + t * WIDTH, toy->blocks[block].elems);
    stats[t] = stats[t] * 0.9f + told(in, t) + logit;
    if (saved)
      ((float *)saved)[t] = logit;
  }
  return 0;
}

static int head_loss(void *ctx, size_t micro, const struct pen_inputs *in,
                     const float *stats, const void *balance, double *ret_loss)
{
  double loss = 0;
  (void)ctx;
  (void)micro;
  for (size_t i = 0; balance && i < 4; i++)
    loss += (double)((const float *)balance)[i];
  for (size_t t = 0; t < TOKENS; t++)
    loss += fabs((double)stats[t]) + told(in, t);
  *ret_loss = loss;
  return 0;
}

static int head_backward(void *ctx, size_t block, size_t micro,
                         const struct pen_inputs *in, const void *w,
                         const void *x, const float *stats, const void *saved,
                         float *dx, float *grad, void *work)
{
  struct toy *toy = ctx;
  const float *weights = w, *input = x;
  (void)micro;
  memset(work, 0xff, toy->workload.work_bytes);
  if (block == toy->workload.head_begin)
    memset(dx, 0, ACT * sizeof *dx);
  for (size_t t = 0; t < TOKENS; t++) {
    float logit = saved ? ((const float *)saved)[t]
                        : dot(w, input + t * WIDTH, toy->blocks[block].elems);
    float s = (stats[t] - 0.5f * logit) / (1.0f + fabsf(stats[t]));
    for (size_t k = 0; k < toy->blocks[block].elems; k++) {
      grad[k] += (s + told(in, t)) * input[t * WIDTH + k % WIDTH] * 0.1f;
      dx[t * WIDTH + k % WIDTH] += s * weights[k] * 0.1f;
    }
  }
  return 0;
}

static int head_end(void *ctx, size_t micro, const float *dx, void *d)
{
  (void)ctx;
  (void)micro;
  memcpy(d, dx, ACT * sizeof *dx);
  return 0;
}

static int head_logits(void *ctx, size_t block, size_t micro,
                       const struct pen_inputs *in, const void *w,
                       const void *x, float *logits, void *work)
{
  struct toy *toy = ctx;
  (void)work;
  size_t column = block - toy->workload.head_begin;
  size_t columns = toy->workload.head_end - toy->workload.head_begin;
  for (size_t t = 0; t < TOKENS; t++)
    logits[(micro * TOKENS + t) * columns + column] =
        told(in, t) + dot(w, (const float *)x + t * WIDTH, toy->blocks[block].elems);
  return 0;
}

static int finish(void *ctx, size_t block, const float *grad,
                  void *stored, struct pen_finish_result *result)
{
  struct toy *toy = ctx;
  float *out = stored;
  size_t n = toy->blocks[block].elems, nonfinite = 0;
  for (size_t c = 0; c * PEN_NORM_CHUNK_ELEMS < n; c++)
    result->chunk_sumsq[c] = 0;
  for (size_t k = 0; k < n; k++) {
    out[k] = grad[k];
    if (isfinite(out[k]))
      result->chunk_sumsq[k / PEN_NORM_CHUNK_ELEMS] += (double)out[k] * out[k];
    else
      nonfinite++;
  }
  *result->nonfinite = nonfinite;
  return 0;
}

static int keep_rows(void *ctx, size_t block, const float *grad, void *stored,
                     float *kept)
{
  struct toy *toy = ctx;
  size_t bytes = toy->blocks[block].elems * sizeof *grad;
  memcpy(stored, grad, bytes);
  memcpy(kept + first_of_rows(toy, block), grad, bytes);
  return 0;
}

static int finish_rows(void *ctx, size_t block, const float *sums, float *kept,
                       void *stored, struct pen_finish_result *result)
{
  struct toy *toy = ctx;
  float *out = stored;
  size_t first = first_of_rows(toy, block);
  for (size_t k = 0; k < toy->blocks[block].elems; k++)
    out[k] = kept ? kept[first + k] + sums[first + k] : sums[first + k];
  return finish(ctx, block, stored, stored, result);
}

static int update(void *ctx, size_t block, const struct pen_device_update *u)
{
  struct toy *toy = ctx;
  for (size_t k = 0; k < u->elems; k++) { /* the slowest way there is */
    size_t element = u->begin + k;
    float *p = (float *)u->state + k;
    pen_adamw_update_f32(PEN_ISA_SCALAR, u->params,
                         element >= toy->ranges[block][1].begin, 1, p,
                         p + u->elems, p + 2 * u->elems,
                         (const float *)u->grad + k, (float *)u->weight + k);
  }
  return 0;
}

static void set_compute(struct toy *toy)
{
  toy->compute = (struct pen_compute){
      .ctx = toy,
      .gather = gather,
      .gather_ahead = gather_ahead,
      .rows = step_rows,
      .put_inputs = put_inputs,
      .forward = forward,
      .backward = backward,
      .head_begin = head_begin,
      .head_forward = head_forward,
      .head_loss = head_loss,
      .head_backward = head_backward,
      .head_end = head_end,
      .head_logits = head_logits,
      .scatter = scatter,
      .keep_rows = keep_rows,
      .finish = finish,
      .finish_rows = finish_rows,
      .update = update};
}

void toy_init(struct toy *toy, enum toy_kind kind, size_t n_micros_max)
{
  bool tied = kind == TOY_TIED || kind == TOY_TIED_EXPERTS;
  static const char *const names[TOY_BLOCKS_MAX] = {
      "b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9", "b10", "b11",
      "b12", "b13", "b14", "b15"};
  static const size_t bodies[] = {ACT, 2 * PEN_NORM_CHUNK_ELEMS + 192, 64,
                                  PEN_NORM_CHUNK_ELEMS};
  *toy = (struct toy){.seed = 1, .poisoned_block = SIZE_MAX};
  struct pen_workload *w = &toy->workload;
  size_t b = 0, row_elems = ROWS_PER_BLOCK * WIDTH;
  for (; !tied && b < 2; b++)
    toy->blocks[b].elems = row_elems;
  w->rows_end = b;
  w->body_begin = b;
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++, b++) {
    toy->blocks[b].elems = bodies[i];
    toy->blocks[b].saved_bytes = ACT * sizeof(float);
  }
  w->body_end = w->head_begin = b;
  for (size_t i = 0; i < 3; i++, b++) {
    toy->blocks[b].elems = row_elems;
    toy->blocks[b].saved_bytes = TOKENS * sizeof(float);
  }
  w->head_end = b;
  set_compute(toy);
  if (kind >= TOY_EXPERTS)
    b = toy_add_experts(toy, b);
  w->n_blocks = b;
  if (tied) {
    w->rows_begin = w->head_begin;
    w->rows_end = w->head_end;
  }
  for (size_t i = 0; i < b; i++) {
    size_t n = toy->blocks[i].elems, cut = n / 2 / 64 * 64;
    toy->ranges[i][0] = (struct pen_block_range){0, cut, false};
    toy->ranges[i][1] = (struct pen_block_range){cut, n, true};
    toy->blocks[i].name = names[i];
    toy->blocks[i].ranges = toy->ranges[i];
    toy->blocks[i].n_ranges = 2;
    toy->blocks[i].forward_flops_per_token = 2.0 * (double)n;
  }
  w->blocks = toy->blocks;
  w->weight_elem_bytes = sizeof(float);
  w->state = &pen_state_fp32;
  w->n_micros_max = n_micros_max;
  w->act_bytes = w->dhead_bytes = ACT * sizeof(float);
  w->stats_bytes = TOKENS * sizeof(float);
  w->work_bytes = 2 * ACT * sizeof(float);
  w->inputs_bytes = TOKENS * sizeof(float);
  w->rows_bytes = n_rows(toy) * WIDTH * sizeof(float);
  for (size_t t = 0; t < TOKENS; t++)
    toy->tables[t] = 0.001f * (float)(t * t % 11);
  w->tables = toy->tables;
  w->tables_bytes = sizeof toy->tables;
  w->logits_bytes = n_micros_max * TOKENS * 3 * sizeof(float);
}
