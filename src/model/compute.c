/* compute.c: struct pen_compute over positions, layers, final norm and head; the
 * embedding's rows are in compute_rows.c.
 *
 * put_inputs runs on the update lane, all else on the compute lane; the two share
 * only what is constant during a step.  Nothing here allocates.  Disadvantage: every block of the body is called as if it
 * were a layer, though norm and positions need little of that. */
#include "src/model/compute.h"

#include <string.h>

#include "base/error.h"
#include "kernels/gradient.h"
#include "src/model/head.h"
#include "src/model/layer.h"
#include "src/model/part.h"

static const struct pen_param_block *info_of(const struct pen_model *m,
                                             size_t block)
{
  return &m->params->infos[block];
}

/* ---- inputs ---- */

static void *at(const void *base, size_t bytes)
{
  return (char *)(uintptr_t)base + bytes;
}

static int put_inputs(void *ctx, size_t micro, void *inputs)
{
  struct pen_model *m = ctx;
  const struct pen_compute_micro *b = &m->micros[micro];
  memcpy(at(inputs, m->positions_at), b->positions,
         b->tokens * sizeof *b->positions);
  memcpy(at(inputs, m->first_key_at), b->first_key,
         b->tokens * sizeof *b->first_key);
  memcpy(at(inputs, m->first_in_window_at), b->first_in_window,
         b->tokens * sizeof *b->first_in_window);
  memcpy(at(inputs, m->targets_at), b->targets,
         b->tokens * sizeof *b->targets);
  memcpy(at(inputs, m->logit_rows_at), b->logit_rows,
         b->n_logit_rows * sizeof *b->logit_rows);
  return 0;
}

/* ---- body ---- */

/* A layer's part of the cache, where the micro-batch uses it: per layer keys,
 * then values. */
static struct pen_layer_cache layer_cache(const struct pen_model *m,
                                          size_t block, void *cache,
                                          const struct pen_compute_micro *b)
{
  if (!b->cached)
    return (struct pen_layer_cache){.keys = NULL};
  char *keys =
      (char *)cache + 2 * info_of(m, block)->layer * m->cache_bytes;
  return (struct pen_layer_cache){.keys = keys,
                                  .values = keys + m->cache_bytes,
                                  .first = b->cache_first,
                                  .capacity = m->options.cache_tokens};
}

/* A call that looks at no positions. */
static struct pen_layer_call plain_call(struct pen_model *m, size_t block,
                                        size_t micro, const void *w, void *work)
{
  const struct pen_param_block *info = info_of(m, block);
  return (struct pen_layer_call){.layer = &m->layers[info->kind],
                                 .ops = m->ops,
                                 .stream = &m->stream,
                                 .role_offset = info->role_offset,
                                 .tokens = m->micros[micro].tokens,
                                 .w = w,
                                 .work = work};
}

static struct pen_layer_call layer_call(struct pen_model *m, size_t block,
                                        size_t micro,
                                        const struct pen_inputs *in,
                                        const void *w, void *work)
{
  struct pen_layer_call c = plain_call(m, block, micro, w, work);
  c.window = pen_model_config_window(&m->params->config,
                                     info_of(m, block)->layer);
  c.positions = at(in->micro, m->positions_at);
  c.first_key = at(in->micro, c.window ? m->first_in_window_at
                                       : m->first_key_at);
  c.cosines = in->tables;
  c.sines = at(in->tables, m->sines_at);
  c.cache = layer_cache(m, block, in->kept, &m->micros[micro]);
  return c;
}

static void final_norm(const struct pen_layer_call *c, const void *x, void *y,
                       void *saved)
{
  const struct pen_layer *l = c->layer;
  pen_part_norm(c, &l->final_norm, x, l->hidden, y, l->hidden,
                pen_part_work(c, PEN_WORK_STATS));
}

static void final_norm_backward(const struct pen_layer_call *c, const void *x,
                                const void *saved, void *d, float *grad)
{
  const struct pen_layer *l = c->layer;
  size_t dim = l->hidden;
  struct pen_part_gradient g = {d, dim, l->elem, d, dim, false};
  final_norm(c, x, pen_part_work(c, PEN_WORK_NORM), NULL); /* statistics */
  pen_part_norm_backward(c, &l->final_norm, &g, x, dim,
                         pen_part_work(c, PEN_WORK_STATS), grad);
}

/* y = x + the rows of the tokens' positions */
static void positions(const struct pen_layer_call *c, const void *x, void *y,
                      void *saved)
{
  size_t dim = c->layer->hidden;
  c->ops->embed(c->stream, c->positions, c->tokens, 0, c->layer->positions,
                dim, 1, c->w, y);
  c->ops->add(c->stream, c->tokens * dim, x, y, y);
}

static void positions_backward(const struct pen_layer_call *c, const void *x,
                               const void *saved, void *d, float *grad)
{
  const struct pen_layer *l = c->layer;
  c->ops->embed_backward(c->stream, c->positions, c->tokens, 0, l->positions,
                         l->hidden, 1, d, grad);
}

/* What each kind of block of the body does. */
static const struct {
  void (*forward)(const struct pen_layer_call *c, const void *x, void *y,
                  void *saved);
  void (*backward)(const struct pen_layer_call *c, const void *x,
                   const void *saved, void *d, float *grad);
} kinds[] = {
    [PEN_BLOCK_POSITIONS] = {positions, positions_backward},
    [PEN_BLOCK_LAYER] = {pen_layer_forward, pen_layer_backward},
    [PEN_BLOCK_ATTENTION] = {pen_layer_attention, pen_layer_attention_backward},
    [PEN_BLOCK_FINAL_NORM] = {final_norm, final_norm_backward},
};

static int forward(void *ctx, size_t block, size_t micro,
                   const struct pen_inputs *in, const void *w, const void *x,
                   void *y, void *saved, void *work)
{
  struct pen_model *m = ctx;
  struct pen_layer_call c = layer_call(m, block, micro, in, w, work);
  kinds[info_of(m, block)->kind].forward(&c, x, y, saved);
  return pen_stream_take_status(&m->stream);
}

static int backward(void *ctx, size_t block, size_t micro,
                    const struct pen_inputs *in, const void *w, const void *x,
                    const void *saved, void *d, float *grad, void *work)
{
  struct pen_model *m = ctx;
  struct pen_layer_call c = layer_call(m, block, micro, in, w, work);
  kinds[info_of(m, block)->kind].backward(&c, x, saved, d, grad);
  return pen_stream_take_status(&m->stream);
}

/* ---- experts ---- */

static int route(void *ctx, size_t block, size_t micro,
                 const struct pen_inputs *in, const void *w, const void *x,
                 void *routes, uint32_t *counts, void *mix, void *work,
                 void *balance)
{
  struct pen_model *m = ctx;
  struct pen_layer_call c = plain_call(m, block, micro, w, work);
  size_t first = m->workload.blocks[m->workload.experts_begin].owner;
  pen_mixture_route(&m->mixture, &c, x, routes, counts, mix, balance,
                    block == first);
  return pen_stream_take_status(&m->stream);
}

static struct pen_mixture_part part_of(const struct pen_model *m, size_t block,
                                       const uint32_t *counts)
{
  const struct pen_block *blocks = m->workload.blocks;
  size_t first = blocks[blocks[block].owner].experts_begin;
  return (struct pen_mixture_part){block - first, counts};
}

static int expert(void *ctx, size_t block, size_t micro, const uint32_t *counts,
                  const void *w, const void *routes, void *mix, void *work)
{
  struct pen_model *m = ctx;
  struct pen_layer_call c = plain_call(m, block, micro, w, work);
  pen_mixture_expert(&m->mixture, &c, part_of(m, block, counts), routes, mix);
  return pen_stream_take_status(&m->stream);
}

static int join(void *ctx, size_t block, size_t micro, const void *x,
                const void *mix, void *y)
{
  struct pen_model *m = ctx;
  struct pen_layer_call c = plain_call(m, block, micro, NULL, NULL);
  pen_mixture_join(&m->mixture, &c, x, mix, y);
  return pen_stream_take_status(&m->stream);
}

static int join_backward(void *ctx, size_t block, size_t micro,
                         const struct pen_inputs *in, const void *w,
                         const void *x, void *mix, void *work)
{
  struct pen_model *m = ctx;
  struct pen_layer_call c = plain_call(m, block, micro, w, work);
  pen_mixture_join_backward(&m->mixture, &c, x, mix);
  return pen_stream_take_status(&m->stream);
}

static int expert_backward(void *ctx, size_t block, size_t micro,
                           const uint32_t *counts, const void *w,
                           const void *routes, const void *d, void *mix,
                           float *grad, void *work)
{
  struct pen_model *m = ctx;
  struct pen_layer_call c = plain_call(m, block, micro, w, work);
  pen_mixture_expert_backward(&m->mixture, &c, part_of(m, block, counts),
                              routes, d, mix, grad);
  return pen_stream_take_status(&m->stream);
}

static float balance_scale(const struct pen_model *m, size_t micro)
{
  const struct pen_compute_micro *b = &m->micros[micro];
  return pen_mixture_balance_scale(&m->mixture, b->tokens, b->n_targets);
}

static int route_backward(void *ctx, size_t block, size_t micro,
                          const struct pen_inputs *in, const void *w,
                          const void *x, const void *routes, void *mix, void *d,
                          float *grad, void *work, const void *balance)
{
  struct pen_model *m = ctx;
  struct pen_layer_call c = plain_call(m, block, micro, w, work);
  pen_mixture_route_backward(&m->mixture, &c, x, routes, balance,
                             balance_scale(m, micro), mix, d, grad);
  return pen_stream_take_status(&m->stream);
}

/* ---- head ---- */

static struct pen_head_call head_call(struct pen_model *m, size_t block,
                                      size_t micro,
                                      const struct pen_inputs *in,
                                      const void *w, const void *x,
                                      void *work)
{
  const struct pen_compute_micro *b = &m->micros[micro];
  const struct pen_param_block *info = info_of(m, block);
  struct pen_head_call c = {
      .ops = m->ops, .stream = &m->stream, .hidden = m->params->config.hidden_size,
      .first_id = info->row_begin, .n_ids = info->rows_valid,
      .is_first = block == m->workload.head_begin,
      .softcap = (float)m->params->config.final_cap, .tokens = b->tokens,
      .targets = at(in->micro, m->targets_at), .w = w, .x = x, .work = work};
  return c;
}

static int head_begin(void *ctx, size_t micro, float *stats)
{
  struct pen_model *m = ctx;
  m->ops->xent_begin(&m->stream, m->micros[micro].tokens, stats);
  return pen_stream_take_status(&m->stream);
}

static int head_forward(void *ctx, size_t block, size_t micro,
                        const struct pen_inputs *in, const void *w,
                        const void *x, float *stats, void *saved, void *work)
{
  struct pen_model *m = ctx;
  struct pen_head_call c = head_call(m, block, micro, in, w, x, work);
  pen_head_forward(&c, stats, saved);
  return pen_stream_take_status(&m->stream);
}

static int head_loss(void *ctx, size_t micro, const struct pen_inputs *in,
                     const float *stats, const void *balance, double *ret_loss)
{
  struct pen_model *m = ctx;
  const struct pen_compute_micro *b = &m->micros[micro];
  m->ops->xent_loss(&m->stream, b->tokens, at(in->micro, m->targets_at), stats,
                    ret_loss);
  if (balance)
    m->ops->route_balance(&m->stream, m->mixture.experts, balance,
                          balance_scale(m, micro), ret_loss);
  return pen_stream_take_status(&m->stream);
}

static int head_backward(void *ctx, size_t block, size_t micro,
                         const struct pen_inputs *in, const void *w,
                         const void *x, const float *stats, const void *saved,
                         float *dx, float *grad, void *work)
{
  struct pen_model *m = ctx;
  struct pen_head_call c = head_call(m, block, micro, in, w, x, work);
  pen_head_backward(&c, stats, saved, dx, grad);
  return pen_stream_take_status(&m->stream);
}

static int head_end(void *ctx, size_t micro, const float *dx, void *d)
{
  struct pen_model *m = ctx;
  m->ops->from_f32(&m->stream, m->micros[micro].tokens * m->params->config.hidden_size, dx,
                   d);
  return pen_stream_take_status(&m->stream);
}

static int head_logits(void *ctx, size_t block, size_t micro,
                       const struct pen_inputs *in, const void *w,
                       const void *x, float *logits, void *work)
{
  struct pen_model *m = ctx;
  const struct pen_compute_micro *b = &m->micros[micro];
  struct pen_head_call c = head_call(m, block, micro, in, w, x, work);
  pen_head_logits(&c, at(in->micro, m->logit_rows_at), b->n_logit_rows, logits,
                  m->params->config.vocab_size);
  return pen_stream_take_status(&m->stream);
}

/* ---- finishing a gradient ---- */

static int finish(void *ctx, size_t block, const float *grad, void *stored,
                  struct pen_finish_result *result)
{
  struct pen_model *m = ctx;
  m->ops->gradient_finish(&m->stream, m->params->blocks[block].elems,
                          PEN_NORM_CHUNK_ELEMS, grad, stored,
                          result->chunk_sumsq, result->nonfinite);
  return pen_stream_take_status(&m->stream);
}

/* ---- AdamW, where the device keeps state ---- */

/* Elements [from, from + n) of what is updated. */
static void update_range(struct pen_model *m, const struct pen_device_update *u,
                         bool decays, size_t from, size_t n)
{
  size_t elem = pen_elem_bytes(m->options.elem);
  void *grad = at(u->grad, from * elem), *weight = at(u->weight, from * elem);
  float *p = (float *)u->state + from;
  struct pen_state_update part = {
      .params = u->params, .part = {u->state, u->elems, from, n},
      .decay_end = decays ? n : 0, .key = u->key, .first = u->begin + from,
      .elem = m->options.elem, .grad = grad};
  if (!u->half) {
    m->ops->adamw(&m->stream, u->params, decays, n, p, p + u->elems,
                  p + 2 * u->elems, grad, weight);
    return;
  }
  part.weight = (uint16_t *)u->half + from;
  m->ops->state_update(&m->stream, m->options.state, &part, weight);
}

static int update(void *ctx, size_t block, const struct pen_device_update *u)
{
  struct pen_model *m = ctx;
  const struct pen_block *b = &m->params->blocks[block];
  size_t end = u->begin + u->elems;
  for (size_t r = 0; r < b->n_ranges; r++) {
    const struct pen_block_range *range = &b->ranges[r];
    size_t from = range->begin > u->begin ? range->begin : u->begin;
    size_t to = range->end < end ? range->end : end;
    if (from < to)
      update_range(m, u, range->decays, from - u->begin, to - from);
  }
  return pen_stream_take_status(&m->stream);
}

void pen_compute_init(struct pen_model *model)
{
  model->compute = (struct pen_compute){
      .ctx = model, .put_inputs = put_inputs, .forward = forward,
      .backward = backward, .route = route, .expert = expert, .join = join,
      .join_backward = join_backward, .expert_backward = expert_backward,
      .route_backward = route_backward, .head_begin = head_begin,
      .head_forward = head_forward, .head_loss = head_loss,
      .head_backward = head_backward, .head_end = head_end,
      .head_logits = head_logits, .finish = finish, .update = update};
  pen_compute_init_rows(&model->compute);
}
