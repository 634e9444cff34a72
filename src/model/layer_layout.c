/* layer_layout.c: which matrices, saved activations and workspace a decoder
 * layer has, and where they lie.
 *
 * Pure functions.  Invariant: every buffer begins on a 64-byte line; the two
 * halves of the backward workspace share their bytes.  Disadvantage: offsets
 * are for max_tokens, so shorter micro-batches leave gaps. */
#include "src/model/layer.h"

#define ALIGN ((size_t)64)

static struct pen_linear linear_of(size_t in, size_t out,
                                   enum pen_param_role weight,
                                   enum pen_param_role bias)
{
  struct pen_linear l = {.in = in, .out = out, .n_parts = 1,
                         .parts = {{weight, bias, out, 0}}};
  return l;
}

static void linear_add_part(struct pen_linear *l, enum pen_param_role weight,
                            enum pen_param_role bias, size_t out)
{
  l->parts[l->n_parts++] = (struct pen_linear_part){weight, bias, out, l->out};
  l->out += out;
}

static void init_linears(struct pen_layer *l, const struct pen_params *params)
{
  const struct pen_model_config *m = &params->config;
  enum pen_param_role none = PEN_N_ROLES;
  enum pen_param_role bias = m->qkv_bias ? PEN_ROLE_Q_BIAS : none;
  size_t kv = l->kv_heads * l->head_dim;
  if (params->qkv_adjacent) {
    l->qkv = linear_of(l->hidden, l->qkv_width, PEN_ROLE_Q, bias);
  } else {
    l->qkv = linear_of(l->hidden, l->heads * l->head_dim, PEN_ROLE_Q, bias);
    linear_add_part(&l->qkv, PEN_ROLE_K, m->qkv_bias ? PEN_ROLE_K_BIAS : none,
                    kv);
    linear_add_part(&l->qkv, PEN_ROLE_V, m->qkv_bias ? PEN_ROLE_V_BIAS : none,
                    kv);
  }
  bias = m->mlp_bias ? PEN_ROLE_GATE_BIAS : none;
  if (params->gate_up_adjacent) {
    l->gate_up = linear_of(l->hidden, 2 * l->ffn, PEN_ROLE_GATE, bias);
  } else {
    l->gate_up = linear_of(l->hidden, l->ffn, PEN_ROLE_GATE, bias);
    linear_add_part(&l->gate_up, PEN_ROLE_UP,
                    m->mlp_bias ? PEN_ROLE_UP_BIAS : none, l->ffn);
  }
  l->o = linear_of(l->heads * l->head_dim, l->hidden, PEN_ROLE_O,
                   m->o_bias ? PEN_ROLE_O_BIAS : none);
  l->down = linear_of(l->ffn, l->hidden, PEN_ROLE_DOWN,
                      m->mlp_bias ? PEN_ROLE_DOWN_BIAS : none);
}

/* Places buffers one after the other from `begin` on; returns the end. */
static size_t place(struct pen_buffer *buffers, size_t first, size_t last,
                    size_t begin, size_t max_tokens)
{
  for (size_t i = first; i <= last; i++) {
    buffers[i].offset = begin;
    size_t bytes = buffers[i].bytes_per_token * max_tokens;
    begin += (bytes + ALIGN - 1) / ALIGN * ALIGN;
  }
  return begin;
}

static size_t max_size(size_t a, size_t b)
{
  return a > b ? a : b;
}

static void init_buffers(struct pen_layer *l, size_t max_tokens)
{
  size_t e = pen_elem_bytes(l->elem), f = sizeof(float);
  size_t heads = l->heads, o_width = heads * l->head_dim;
  size_t qk_heads = heads + l->kv_heads;
  const struct pen_buffer saved[PEN_N_SAVED] = {
      /* after rope; before norm and rope where q and k are normed */
      [PEN_SAVED_QKV] = {"q, k, v", e * l->qkv_width, 0},
      [PEN_SAVED_QK] = {"normed q, k", l->qk_norm ? e * l->qk_width : 0, 0},
      [PEN_SAVED_QK_RSTD] = {"1/std of q, k", l->qk_norm ? f * qk_heads : 0, 0},
      [PEN_SAVED_O] = {"attention", e * o_width, 0},
      [PEN_SAVED_LSE] = {"log-sum-exp", f * heads, 0},
      [PEN_SAVED_H] = {"residual", e * l->hidden, 0},
      [PEN_SAVED_GATE_UP] = {"gate, up", e * 2 * l->ffn, 0}};
  /* Sums over rows: a row of partials per chunk of (token, head) vectors; each
   * token is charged a whole row where chunks are short of tokens. */
  size_t widest = max_size(max_size(l->qkv_width, 2 * l->ffn), l->hidden);
  size_t partials = pen_ops_partials_elems(max_tokens, widest);
  if (l->qk_norm)
    partials = max_size(
        partials, pen_ops_partials_elems(max_tokens * heads, l->head_dim));
  size_t partials_per_token = (partials * f + max_tokens - 1) / max_tokens;
  const struct pen_buffer work[PEN_N_WORK] = {
      [PEN_WORK_NORM] = {"normed input", e * l->hidden, 0},
      [PEN_WORK_RSTD] = {"1/std", f, 0},
      /* forward: a projection; backward: fp32 gradient of a norm's output */
      [PEN_WORK_PRODUCT] = {"product", f * l->hidden, 0},
      [PEN_WORK_PARTIALS] = {"partial sums", partials_per_token, 0},
      /* the MLP's half and ... */
      [PEN_WORK_ACT] = {"swiglu", e * l->ffn, 0},
      [PEN_WORK_DACT] = {"d swiglu", e * l->ffn, 0},
      [PEN_WORK_DGATE_UP] = {"d gate, up", e * 2 * l->ffn, 0},
      /* ... the attention's half are never needed together */
      [PEN_WORK_DO] = {"d attention", e * o_width, 0},
      [PEN_WORK_DQKV] = {"d q, k, v", e * l->qkv_width, 0},
      [PEN_WORK_DELTA] = {"delta", f * heads, 0}};
  for (size_t i = 0; i < PEN_N_SAVED; i++)
    l->saved[i] = saved[i];
  for (size_t i = 0; i < PEN_N_WORK; i++)
    l->work[i] = work[i];
  l->saved_bytes = place(l->saved, 0, PEN_N_SAVED - 1, 0, max_tokens);
  size_t begin = place(l->work, PEN_WORK_NORM, PEN_WORK_PARTIALS,
                       l->saved_bytes, max_tokens);
  l->work_bytes = max_size(
      place(l->work, PEN_WORK_ACT, PEN_WORK_DGATE_UP, begin, max_tokens),
      place(l->work, PEN_WORK_DO, PEN_WORK_DELTA, begin, max_tokens));
}

void pen_layer_init(struct pen_layer *layer, const struct pen_params *params,
                    enum pen_elem elem, size_t max_tokens)
{
  const struct pen_model_config *m = &params->config;
  *layer = (struct pen_layer){
      .elem = elem,
      .hidden = m->hidden_size,
      .ffn = m->intermediate_size,
      .heads = m->n_heads,
      .kv_heads = m->n_kv_heads,
      .head_dim = m->head_dim,
      .qk_width = (m->n_heads + m->n_kv_heads) * m->head_dim,
      .qkv_width = (m->n_heads + 2 * m->n_kv_heads) * m->head_dim,
      .qk_norm = m->qk_norm,
      .eps = (float)m->norm_eps};
  init_linears(layer, params);
  init_buffers(layer, max_tokens);
}
