/* mixture.c: a mixture of experts as the papers write it (Shazeer et al. 2017;
 * Jiang et al. 2024):
 *
 *   p = softmax(W_r norm(x)), w = p of the chosen experts, which may sum to 1
 *   y = x + sum over the chosen of w_e W_down_e f(W_gate_up_e norm(x))
 *
 * Sums over experts are fp32, in the order of the experts.  Runs on the compute
 * lane's thread; allocates nothing.  Invariant: of what differs from run to run
 * by where bytes lie nothing is read here: an expert that no token goes to is
 * simply not called.  Disadvantage: nothing of an expert is kept for backward,
 * which computes gate and up again. */
#include "src/model/mixture.h"

#include "src/model/part.h"

#define ALIGN ((size_t)64)

/* ---- where things lie ---- */

static size_t place(size_t *end, size_t bytes)
{
  size_t begin = *end;
  *end += (bytes + ALIGN - 1) / ALIGN * ALIGN;
  return begin;
}

void pen_mixture_init(struct pen_mixture *m, const struct pen_params *params,
                      enum pen_elem elem, size_t max_tokens)
{
  const struct pen_model_config *c = &params->config;
  size_t chosen = max_tokens * c->experts_per_token, n = sizeof(uint32_t);
  size_t act = max_tokens * c->hidden_size;
  *m = (struct pen_mixture){.experts = c->n_experts,
                            .per_token = c->experts_per_token,
                            .normalises = c->normalises_experts,
                            .balance_coef = c->balance_coef};
  for (size_t layer = 0; layer < c->n_layers; layer++)
    m->n_layers += pen_model_config_is_sparse(c, layer);
  if (!m->n_layers)
    return;
  m->rows_at = place(&m->routes_bytes, chosen * n);
  m->places_at = place(&m->routes_bytes, chosen * n);
  m->chosen_at = place(&m->routes_bytes, chosen * n);
  m->weights_at = place(&m->routes_bytes, chosen * sizeof(float));
  m->probs_at = place(&m->routes_bytes, max_tokens * m->experts * sizeof(float));
  m->in_at = place(&m->mix_bytes, act * pen_elem_bytes(elem));
  m->sums_at = place(&m->mix_bytes, act * sizeof(float));
  m->dweights_at = place(&m->mix_bytes, chosen * sizeof(float));
  if (m->balance_coef > 0)
    m->balance_bytes = 2 * m->experts * sizeof(float);
}

static void *at(const void *base, size_t bytes)
{
  return (char *)(uintptr_t)base + bytes;
}

static struct pen_routing routing_of(const struct pen_mixture *m,
                                     size_t tokens, const void *routes,
                                     uint32_t *counts)
{
  return (struct pen_routing){.tokens = tokens,
                              .experts = m->experts,
                              .per_token = m->per_token,
                              .normalise = m->normalises,
                              .counts = counts,
                              .rows = at(routes, m->rows_at),
                              .places = at(routes, m->places_at),
                              .chosen = at(routes, m->chosen_at),
                              .weights = at(routes, m->weights_at),
                              .probs = at(routes, m->probs_at)};
}

float pen_mixture_balance_scale(const struct pen_mixture *m, size_t tokens,
                                size_t targets)
{
  double rows = (double)m->n_layers * (double)tokens;
  return (float)(m->balance_coef * (double)targets * (double)m->experts /
                 (rows * rows));
}

/* ---- router ---- */

/* What the experts take. */
static void norm_in(const struct pen_mixture *m, const struct pen_layer_call *c,
                    const void *x, void *mix)
{
  const struct pen_layer *l = c->layer;
  pen_part_norm(c, &l->mlp_norm, x, l->hidden, at(mix, m->in_at), l->hidden,
                pen_part_work(c, PEN_WORK_STATS));
  c->ops->zero_f32(c->stream, c->tokens * l->hidden, at(mix, m->sums_at));
}

void pen_mixture_route(const struct pen_mixture *m,
                       const struct pen_layer_call *c, const void *x,
                       void *routes, uint32_t *counts, void *mix,
                       float *balance, bool is_first)
{
  size_t hidden = c->layer->hidden;
  struct pen_routing r = routing_of(m, c->tokens, routes, counts);
  float *logits = pen_part_work(c, PEN_WORK_LOGITS);
  norm_in(m, c, x, mix);
  struct pen_gemm product = {
      .m = c->tokens, .n = m->experts, .k = hidden,
      .a = at(mix, m->in_at), .lda = hidden,
      .b = pen_part_weight(c, PEN_ROLE_ROUTER), .ldb = hidden, .b_trans = true,
      .c = logits, .ldc = m->experts,
      .ab_elem = c->layer->elem, .c_elem = PEN_ELEM_F32};
  c->ops->gemm(c->stream, &product);
  if (balance && is_first)
    c->ops->zero_f32(c->stream, 2 * m->experts, balance);
  c->ops->route(c->stream, &r, logits, balance);
}

/* dW_r += dlogits^T in; and its part of the gradient of what the experts took. */
static void router_backward(const struct pen_mixture *m,
                            const struct pen_layer_call *c,
                            const void *dlogits, void *mix, float *grad)
{
  size_t hidden = c->layer->hidden;
  struct pen_gemm weights = {
      .m = m->experts, .n = hidden, .k = c->tokens,
      .a = dlogits, .lda = m->experts, .a_trans = true,
      .b = at(mix, m->in_at), .ldb = hidden,
      .c = grad + c->role_offset[PEN_ROLE_ROUTER], .ldc = hidden,
      .ab_elem = c->layer->elem, .c_elem = PEN_ELEM_F32, .accumulate = true};
  struct pen_gemm input = {
      .m = c->tokens, .n = hidden, .k = m->experts,
      .a = dlogits, .lda = m->experts,
      .b = pen_part_weight(c, PEN_ROLE_ROUTER), .ldb = hidden,
      .c = at(mix, m->sums_at), .ldc = hidden,
      .ab_elem = c->layer->elem, .c_elem = PEN_ELEM_F32, .accumulate = true};
  c->ops->gemm(c->stream, &weights);
  c->ops->gemm(c->stream, &input);
}

void pen_mixture_route_backward(const struct pen_mixture *m,
                                const struct pen_layer_call *c, const void *x,
                                const void *routes, const float *balance,
                                float scale, void *mix, void *d, float *grad)
{
  const struct pen_layer *l = c->layer;
  size_t dim = l->hidden;
  struct pen_routing r = routing_of(m, c->tokens, routes, NULL);
  void *dlogits = pen_part_work(c, PEN_WORK_DLOGITS);
  struct pen_part_gradient g = {at(mix, m->sums_at), dim, PEN_ELEM_F32,
                                d, dim, true};
  c->ops->route_backward(c->stream, &r, at(mix, m->dweights_at), balance, scale,
                         dlogits);
  router_backward(m, c, dlogits, mix, grad);
  pen_part_norm(c, &l->mlp_norm, x, dim, pen_part_work(c, PEN_WORK_NORM), dim,
                pen_part_work(c, PEN_WORK_STATS)); /* for its statistics */
  pen_part_norm_backward(c, &l->mlp_norm, &g, x, dim,
                         pen_part_work(c, PEN_WORK_STATS), grad);
}

/* ---- joining ---- */

void pen_mixture_join(const struct pen_mixture *m,
                      const struct pen_layer_call *c, const void *x,
                      const void *mix, void *y)
{
  size_t n = c->tokens * c->layer->hidden;
  c->ops->from_f32(c->stream, n, at(mix, m->sums_at), y);
  c->ops->add(c->stream, n, x, y, y);
}

void pen_mixture_join_backward(const struct pen_mixture *m,
                               const struct pen_layer_call *c, const void *x,
                               void *mix)
{
  norm_in(m, c, x, mix);
}

/* ---- one expert ---- */

/* Its tokens; dim: of their rows. */
static struct pen_expert_rows rows_of(const struct pen_mixture *m,
                                      struct pen_mixture_part part,
                                      const void *routes, size_t dim)
{
  size_t begin = 0;
  for (size_t e = 0; e < part.expert; e++)
    begin += part.counts[e];
  return (struct pen_expert_rows){
      .n = part.counts[part.expert],
      .dim = dim,
      .rows = (const uint32_t *)at(routes, m->rows_at) + begin,
      .places = (const uint32_t *)at(routes, m->places_at) + begin,
      .weights = at(routes, m->weights_at)};
}

/* The rows of x [T, C] that are this expert's. */
static void pick(const struct pen_layer_call *c, const struct pen_expert_rows *e,
                 size_t tokens, const void *x, void *y)
{
  c->ops->embed(c->stream, e->rows, e->n, 0, tokens, c->layer->hidden, 1, x, y);
}

/* act = f(W_gate_up in) of its tokens. */
static void *activate(const struct pen_mixture *m,
                      const struct pen_layer_call *c,
                      const struct pen_expert_rows *e, const void *mix)
{
  const struct pen_layer *l = c->layer;
  struct pen_layer_call own = *c;
  void *in = pen_part_work(c, PEN_WORK_NORM);
  void *act = pen_part_work(c, PEN_WORK_ACT);
  own.tokens = e->n;
  pick(c, e, c->tokens, at(mix, m->in_at), in);
  pen_part_linear(&own, &l->gate_up, in, NULL,
                  pen_part_saved(c, c->work, PEN_SAVED_GATE_UP));
  pen_part_activate(&own, c->work, act);
  return act;
}

void pen_mixture_expert(const struct pen_mixture *m,
                        const struct pen_layer_call *c,
                        struct pen_mixture_part part, const void *routes,
                        void *mix)
{
  const struct pen_layer *l = c->layer;
  struct pen_expert_rows e = rows_of(m, part, routes, l->hidden);
  float *out = pen_part_work(c, PEN_WORK_PRODUCT);
  struct pen_gemm product = {
      .m = e.n, .n = l->hidden, .k = l->ffn,
      .a = activate(m, c, &e, mix), .lda = l->ffn,
      .b = pen_part_weight(c, PEN_ROLE_DOWN), .ldb = l->ffn, .b_trans = true,
      .c = out, .ldc = l->hidden,
      .ab_elem = l->elem, .c_elem = PEN_ELEM_F32};
  c->ops->gemm(c->stream, &product);
  c->ops->expert_add(c->stream, &e, out, at(mix, m->sums_at));
}

void pen_mixture_expert_backward(const struct pen_mixture *m,
                                 const struct pen_layer_call *c,
                                 struct pen_mixture_part part,
                                 const void *routes, const void *d, void *mix,
                                 float *grad)
{
  const struct pen_layer *l = c->layer;
  struct pen_expert_rows e = rows_of(m, part, routes, l->hidden);
  struct pen_expert_rows inner = rows_of(m, part, routes, l->ffn);
  struct pen_layer_call own = *c;
  float *dact_f32 = pen_part_work(c, PEN_WORK_DACT_F32);
  float *din = pen_part_work(c, PEN_WORK_PRODUCT);
  void *dout = pen_part_work(c, PEN_WORK_DOUT);
  void *dact = pen_part_work(c, PEN_WORK_DACT);
  void *dgate_up = pen_part_work(c, PEN_WORK_DGATE_UP);
  void *act = activate(m, c, &e, mix);
  own.tokens = e.n;

  pick(c, &e, c->tokens, d, dout);
  pen_part_linear_input(&own, &l->down, dout, dact_f32, PEN_ELEM_F32);
  c->ops->expert_weigh(c->stream, &inner, dact_f32, act, dact,
                       at(mix, m->dweights_at));
  pen_part_linear_weights(&own, &l->down, dout, act, grad);
  pen_part_activate_backward(&own, c->work, dact, dgate_up);
  pen_part_linear_backward(&own, &l->gate_up, dgate_up,
                           pen_part_work(c, PEN_WORK_NORM), din, PEN_ELEM_F32,
                           grad);
  e.weights = NULL;
  c->ops->expert_add(c->stream, &e, din, at(mix, m->sums_at));
}
