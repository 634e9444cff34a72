/* toy_queue.c: each call's arguments are kept and the call is made by the
 * stream's thread, as a kernel launch's would be. */
#include "tests/gpu/fake/toy_queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tests/gpu/fake/fake.h"

static struct pen_compute inner;
static struct CUstream_st *queue;

struct call {
  void (*make)(const struct call *c);
  size_t block, micro;
  struct pen_inputs in;
  const void *w, *x, *saved;
  void *y, *d, *work, *saved_out;
  const float *stats, *sum;
  float *stats_out, *dx, *grad;
  double *loss;
  void *routes_out, *mix_out, *balance_out;
  uint32_t *counts_out;
  const void *routes, *mix, *balance;
  const uint32_t *counts;
  struct pen_finish_result finish;
  struct pen_device_update update;
  struct pen_adamw_params params;
};

static void run(void *record)
{
  struct call *c = record;
  c->make(c);
  free(c);
}

static int put(struct call call, void (*make)(const struct call *c))
{
  struct call *c = malloc(sizeof *c);
  *c = call;
  c->make = make;
  int r = fake_launch(queue, run, c);
  if (r)
    free(c);
  return r ? pen_error_set(PEN_EDEVICE, "a launch failed: %d", r) : 0;
}

static void make_forward(const struct call *c)
{
  inner.forward(inner.ctx, c->block, c->micro, &c->in, c->w, c->x, c->y,
                c->saved_out, c->work);
}

static int forward(void *ctx, size_t block, size_t micro,
                   const struct pen_inputs *in, const void *w, const void *x,
                   void *y, void *saved, void *work)
{
  return put((struct call){.block = block, .micro = micro, .in = *in, .w = w,
                           .x = x, .y = y, .saved_out = saved, .work = work},
             make_forward);
}

static void make_backward(const struct call *c)
{
  inner.backward(inner.ctx, c->block, c->micro, &c->in, c->w, c->x, c->saved,
                 c->d, c->grad, c->work);
}

static int backward(void *ctx, size_t block, size_t micro,
                    const struct pen_inputs *in, const void *w, const void *x,
                    const void *saved, void *d, float *grad, void *work)
{
  return put((struct call){.block = block, .micro = micro, .in = *in, .w = w,
                           .x = x, .saved = saved, .d = d, .grad = grad,
                           .work = work},
             make_backward);
}

static void make_route(const struct call *c)
{
  inner.route(inner.ctx, c->block, c->micro, &c->in, c->w, c->x, c->routes_out,
              c->counts_out, c->mix_out, c->work, c->balance_out);
}

static int route(void *ctx, size_t block, size_t micro,
                 const struct pen_inputs *in, const void *w, const void *x,
                 void *routes, uint32_t *counts, void *mix, void *work,
                 void *balance)
{
  return put((struct call){.block = block, .micro = micro, .in = *in, .w = w,
                           .x = x, .routes_out = routes, .counts_out = counts,
                           .mix_out = mix, .work = work,
                           .balance_out = balance},
             make_route);
}

static void make_expert(const struct call *c)
{
  inner.expert(inner.ctx, c->block, c->micro, c->counts, c->w, c->routes,
               c->mix_out, c->work);
}

static int expert(void *ctx, size_t block, size_t micro, const uint32_t *counts,
                  const void *w, const void *routes, void *mix, void *work)
{
  return put((struct call){.block = block, .micro = micro, .counts = counts,
                           .w = w, .routes = routes, .mix_out = mix,
                           .work = work},
             make_expert);
}

static void make_join(const struct call *c)
{
  inner.join(inner.ctx, c->block, c->micro, c->x, c->mix, c->y);
}

static int join(void *ctx, size_t block, size_t micro, const void *x,
                const void *mix, void *y)
{
  return put((struct call){.block = block, .micro = micro, .x = x, .mix = mix,
                           .y = y},
             make_join);
}

static void make_join_backward(const struct call *c)
{
  inner.join_backward(inner.ctx, c->block, c->micro, &c->in, c->w, c->x,
                      c->mix_out, c->work);
}

static int join_backward(void *ctx, size_t block, size_t micro,
                         const struct pen_inputs *in, const void *w,
                         const void *x, void *mix, void *work)
{
  return put((struct call){.block = block, .micro = micro, .in = *in, .w = w,
                           .x = x, .mix_out = mix, .work = work},
             make_join_backward);
}

static void make_expert_backward(const struct call *c)
{
  inner.expert_backward(inner.ctx, c->block, c->micro, c->counts, c->w,
                        c->routes, c->x, c->mix_out, c->grad, c->work);
}

static int expert_backward(void *ctx, size_t block, size_t micro,
                           const uint32_t *counts, const void *w,
                           const void *routes, const void *d, void *mix,
                           float *grad, void *work)
{
  return put((struct call){.block = block, .micro = micro, .counts = counts,
                           .w = w, .routes = routes, .x = d, .mix_out = mix,
                           .grad = grad, .work = work},
             make_expert_backward);
}

static void make_route_backward(const struct call *c)
{
  inner.route_backward(inner.ctx, c->block, c->micro, &c->in, c->w, c->x,
                       c->routes, c->mix_out, c->d, c->grad, c->work, c->balance);
}

static int route_backward(void *ctx, size_t block, size_t micro,
                          const struct pen_inputs *in, const void *w,
                          const void *x, const void *routes, void *mix, void *d,
                          float *grad, void *work, const void *balance)
{
  return put((struct call){.block = block, .micro = micro, .in = *in, .w = w,
                           .x = x, .routes = routes, .mix_out = mix, .d = d,
                           .grad = grad, .work = work, .balance = balance},
             make_route_backward);
}

static void make_head_begin(const struct call *c)
{
  inner.head_begin(inner.ctx, c->micro, c->stats_out);
}

static int head_begin(void *ctx, size_t micro, float *stats)
{
  return put((struct call){.micro = micro, .stats_out = stats},
             make_head_begin);
}

static void make_head_forward(const struct call *c)
{
  inner.head_forward(inner.ctx, c->block, c->micro, &c->in, c->w, c->x,
                     c->stats_out, c->saved_out, c->work);
}

static int head_forward(void *ctx, size_t block, size_t micro,
                        const struct pen_inputs *in, const void *w,
                        const void *x, float *stats, void *saved, void *work)
{
  return put((struct call){.block = block, .micro = micro, .in = *in, .w = w,
                           .x = x, .stats_out = stats, .saved_out = saved,
                           .work = work},
             make_head_forward);
}

static void make_head_loss(const struct call *c)
{
  inner.head_loss(inner.ctx, c->micro, &c->in, c->stats, c->balance, c->loss);
}

static int head_loss(void *ctx, size_t micro, const struct pen_inputs *in,
                     const float *stats, const void *balance, double *ret_loss)
{
  return put((struct call){.micro = micro, .in = *in, .stats = stats,
                           .balance = balance, .loss = ret_loss},
             make_head_loss);
}

static void make_head_backward(const struct call *c)
{
  inner.head_backward(inner.ctx, c->block, c->micro, &c->in, c->w, c->x,
                      c->stats, c->saved, c->dx, c->grad, c->work);
}

static int head_backward(void *ctx, size_t block, size_t micro,
                         const struct pen_inputs *in, const void *w,
                         const void *x, const float *stats, const void *saved,
                         float *dx, float *grad, void *work)
{
  return put((struct call){.block = block, .micro = micro, .in = *in, .w = w,
                           .x = x, .stats = stats, .saved = saved, .dx = dx,
                           .grad = grad, .work = work},
             make_head_backward);
}

static void make_head_end(const struct call *c)
{
  inner.head_end(inner.ctx, c->micro, c->sum, c->d);
}

static int head_end(void *ctx, size_t micro, const float *dx, void *d)
{
  return put((struct call){.micro = micro, .sum = dx, .d = d}, make_head_end);
}

static void make_head_logits(const struct call *c)
{
  inner.head_logits(inner.ctx, c->block, c->micro, &c->in, c->w, c->x, c->dx,
                    c->work);
}

static int head_logits(void *ctx, size_t block, size_t micro,
                       const struct pen_inputs *in, const void *w,
                       const void *x, float *logits, void *work)
{
  return put((struct call){.block = block, .micro = micro, .in = *in, .w = w,
                           .x = x, .dx = logits, .work = work},
             make_head_logits);
}

static void make_finish(const struct call *c)
{
  struct pen_finish_result result = c->finish;
  inner.finish(inner.ctx, c->block, c->sum, c->y, &result);
}

static int finish(void *ctx, size_t block, const float *grad,
                  void *stored, struct pen_finish_result *result)
{
  return put((struct call){.block = block, .sum = grad, .y = stored,
                           .finish = *result},
             make_finish);
}

static void make_update(const struct call *c)
{
  struct pen_device_update u = c->update;
  u.params = &c->params;
  inner.update(inner.ctx, c->block, &u);
}

static int update(void *ctx, size_t block, const struct pen_device_update *u)
{
  return put((struct call){.block = block, .update = *u, .params = *u->params},
             make_update);
}

void toy_queue_use(struct CUstream_st *stream)
{
  queue = stream;
}

void toy_queue_wrap(struct pen_compute *compute)
{
  inner = *compute;
  compute->forward = forward;
  compute->backward = backward;
  compute->route = route;
  compute->expert = expert;
  compute->join = join;
  compute->join_backward = join_backward;
  compute->expert_backward = expert_backward;
  compute->route_backward = route_backward;
  compute->head_begin = head_begin;
  compute->head_forward = head_forward;
  compute->head_loss = head_loss;
  compute->head_backward = head_backward;
  compute->head_end = head_end;
  compute->head_logits = head_logits;
  compute->finish = finish;
  compute->update = update;
}
