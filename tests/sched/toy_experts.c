/* toy_experts.c: blocks of the toy that send tokens to experts.
 *
 * Which expert a token goes to depends on what came before it; an expert that
 * gets none is common.  Disadvantage: all experts are of one size. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "tests/sched/toy.h"

#define WIDTH (TOY_ACT / TOY_TOKENS)
#define EXPERT_ELEMS (2 * WIDTH)
#define NOWHERE UINT32_MAX

/* What such a block and its experts hand each other. */
struct mix {
  float in[TOY_ACT], out[TOY_ACT];
};

static size_t n_experts(const struct toy *toy, size_t block)
{
  return pen_block_n_experts(&toy->blocks[block]);
}

static void fill_in(const struct pen_inputs *in, const float *w,
                    const float *x, struct mix *mix)
{
  for (size_t i = 0; i < TOY_ACT; i++) {
    mix->in[i] = x[i] + w[i % 64] + ((const float *)in->micro)[i / WIDTH];
    mix->out[i] = 0;
  }
}

/* Half of the tokens, and these to some experts only. */
static uint32_t expert_of(const struct toy *toy, size_t block, size_t micro,
                          size_t token, float value)
{
  uint32_t h = toy->seed * 2654435761u + (uint32_t)(micro * 40503 + block * 97);
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint32_t open = h >> 20, expert = (bits >> 13) % (uint32_t)n_experts(toy, block);
  return (token + (bits >> 9)) % 2 && open >> expert & 1 ? expert : NOWHERE;
}

static int route(void *ctx, size_t block, size_t micro,
                 const struct pen_inputs *in, const void *w, const void *x,
                 void *routes, uint32_t *counts, void *mix, void *work,
                 void *balance)
{
  struct toy *toy = ctx;
  struct mix *m = mix;
  float *sums = balance;
  uint32_t *to = routes;
  memset(work, 0xff, toy->workload.work_bytes);
  fill_in(in, w, x, m);
  memset(counts, 0, n_experts(toy, block) * sizeof *counts);
  if (sums && block == toy->first_router)
    memset(sums, 0, toy->workload.balance_bytes);
  for (size_t t = 0; t < TOY_TOKENS; t++) {
    to[t] = expert_of(toy, block, micro, t, m->in[t * WIDTH]);
    if (to[t] == NOWHERE)
      continue;
    counts[to[t]]++;
    if (sums)
      sums[to[t]] += 0.1f * m->in[t * WIDTH];
  }
  return 0;
}

/* The expert's own number, where the counts agree with the routes. */
static bool agrees(struct toy *toy, size_t block, const uint32_t *counts,
                   const uint32_t *to, uint32_t *ret_expert)
{
  *ret_expert = (uint32_t)(block - toy->blocks[toy->blocks[block].owner].experts_begin);
  uint32_t n = 0;
  for (size_t t = 0; t < TOY_TOKENS; t++)
    n += to[t] == *ret_expert;
  toy->expert_calls[block]++;
  return n == counts[*ret_expert] && n > 0;
}

static int expert(void *ctx, size_t block, size_t micro, const uint32_t *counts,
                  const void *w, const void *routes, void *mix, void *work)
{
  struct toy *toy = ctx;
  struct mix *m = mix;
  const float *weights = w;
  const uint32_t *to = routes;
  uint32_t number;
  (void)micro;
  memset(work, 0xff, toy->workload.work_bytes);
  if (!agrees(toy, block, counts, to, &number))
    return -PEN_EFORMAT;
  for (size_t i = 0; i < TOY_ACT; i++)
    if (to[i / WIDTH] == number)
      m->out[i] += weights[i % EXPERT_ELEMS] * m->in[i];
  return 0;
}

static int join(void *ctx, size_t block, size_t micro, const void *x,
                const void *mix, void *y)
{
  const struct mix *m = mix;
  (void)ctx;
  (void)block;
  (void)micro;
  for (size_t i = 0; i < TOY_ACT; i++)
    ((float *)y)[i] = 0.7f * ((const float *)x)[i] + m->out[i];
  return 0;
}

static int join_backward(void *ctx, size_t block, size_t micro,
                         const struct pen_inputs *in, const void *w,
                         const void *x, void *mix, void *work)
{
  struct toy *toy = ctx;
  (void)block;
  (void)micro;
  memset(work, 0xff, toy->workload.work_bytes);
  fill_in(in, w, x, mix);
  return 0;
}

static int expert_backward(void *ctx, size_t block, size_t micro,
                           const uint32_t *counts, const void *w,
                           const void *routes, const void *d, void *mix,
                           float *grad, void *work)
{
  struct toy *toy = ctx;
  struct mix *m = mix;
  const float *weights = w, *dy = d;
  const uint32_t *to = routes;
  uint32_t number;
  (void)micro;
  memset(work, 0xff, toy->workload.work_bytes);
  if (!agrees(toy, block, counts, to, &number))
    return -PEN_EFORMAT;
  for (size_t i = 0; i < TOY_ACT; i++)
    if (to[i / WIDTH] == number) {
      grad[i % EXPERT_ELEMS] += dy[i] * m->in[i];
      m->out[i] += dy[i] * weights[i % EXPERT_ELEMS];
    }
  return 0;
}

static int route_backward(void *ctx, size_t block, size_t micro,
                          const struct pen_inputs *in, const void *w,
                          const void *x, const void *routes, void *mix, void *d,
                          float *grad, void *work, const void *balance)
{
  struct toy *toy = ctx;
  const struct mix *m = mix;
  const float *weights = w, *input = x, *sums = balance;
  float *out = d;
  (void)micro;
  memset(work, 0xff, toy->workload.work_bytes);
  for (size_t i = 0; i < TOY_ACT; i++) {
    float to = (float)(((const uint32_t *)routes)[i / WIDTH] % 5) * 0.01f;
    float all = sums ? sums[i % n_experts(toy, block)] : 0;
    grad[i % 64] += out[i] * (input[i] + to) + all * 0.001f +
                    ((const float *)in->micro)[i / WIDTH];
    out[i] = 0.7f * out[i] + m->out[i] + 0.01f * weights[i % 64];
    out[i] /= 1 + fabsf(out[i]);
  }
  return 0;
}

static size_t add_experts(struct toy *toy, size_t owner, size_t first, size_t n)
{
  struct pen_block *b = &toy->blocks[owner];
  b->elems = 64;
  b->experts_begin = first;
  b->experts_end = first + n;
  b->saved_bytes = 0;
  for (size_t i = first; i < b->experts_end; i++)
    toy->blocks[i] = (struct pen_block){.elems = EXPERT_ELEMS, .owner = owner,
                                        .share = 1.0 / (double)n};
  return b->experts_end;
}

size_t toy_add_experts(struct toy *toy, size_t n_blocks)
{
  struct pen_workload *w = &toy->workload;
  toy->first_router = w->body_begin;
  w->experts_begin = n_blocks;
  n_blocks = add_experts(toy, w->body_begin, n_blocks, 2);
  n_blocks = add_experts(toy, w->body_begin + 2, n_blocks, 4);
  w->experts_end = n_blocks;
  w->mix_bytes = sizeof(struct mix);
  w->routes_bytes = TOY_TOKENS * sizeof(uint32_t);
  w->balance_bytes = 4 * sizeof(float);
  toy->compute.route = route;
  toy->compute.expert = expert;
  toy->compute.join = join;
  toy->compute.join_backward = join_backward;
  toy->compute.expert_backward = expert_backward;
  toy->compute.route_backward = route_backward;
  return n_blocks;
}
