/* layer_layout.c: which matrices, norms, saved activations and workspace blocks
 * of one kind have, and where they lie: a decoder layer, its half, an expert, a
 * norm.
 *
 * Pure functions.  Invariant: every buffer begins on a 64-byte line; the two
 * halves of the backward workspace share their bytes.  Disadvantage: offsets
 * are for max_tokens, so shorter micro-batches leave gaps. */
#include "src/model/layer_layout.h"

#define ALIGN ((size_t)64)
#define NONE PEN_N_ROLES

static size_t max_size(size_t a, size_t b)
{
  return a > b ? a : b;
}

/* ---- maps and norms ---- */

/* The table a layer's maps and norms are read from. */
struct tensors {
  const struct pen_params *params;
  const struct pen_param_block *info;
};

static size_t elems_of(const struct tensors *t, enum pen_param_role role)
{
  return pen_params_elems(t->params, t->info, role);
}

static enum pen_param_role if_present(const struct tensors *t,
                                      enum pen_param_role role)
{
  return role != NONE && elems_of(t, role) ? role : NONE;
}

/* Does `next` begin where `role` ends?  Tensors that do not exist do. */
static bool follows(const struct tensors *t, enum pen_param_role role,
                    enum pen_param_role next)
{
  if (role == NONE || next == NONE)
    return role == next;
  return t->info->role_offset[role] + elems_of(t, role) ==
         t->info->role_offset[next];
}

/* Puts the next matrix beside those the map has; one that lies right behind
 * them in the block joins their product.  Nothing where it does not exist: its
 * rows are then in another matrix. */
static void add_part(struct pen_linear *l, const struct tensors *t,
                     enum pen_param_role weight, enum pen_param_role bias)
{
  struct pen_linear_part part = {.weight = weight, .bias = if_present(t, bias),
                                 .out = l->in ? elems_of(t, weight) / l->in : 0,
                                 .col = l->out};
  l->out += part.out;
  if (part.out)
    l->parts[l->n_parts++] = part;
}

/* The parts as one, where each follows the one before. */
static void merge_parts(struct pen_linear *l, const struct tensors *t)
{
  for (size_t i = 1; i < l->n_parts; i++)
    if (!follows(t, l->parts[i - 1].weight, l->parts[i].weight) ||
        !follows(t, l->parts[i - 1].bias, l->parts[i].bias))
      return;
  l->parts[0].out = l->out;
  l->n_parts = 1;
}

static struct pen_linear linear_of(const struct tensors *t, size_t in,
                                   enum pen_param_role weight,
                                   enum pen_param_role bias)
{
  struct pen_linear l = {
      .in = in, .transposed = t->params->config.family->transposed};
  add_part(&l, t, weight, bias);
  return l;
}

static void init_linears(struct pen_layer *l, const struct tensors *t)
{
  l->qkv = linear_of(t, l->hidden, PEN_ROLE_Q, PEN_ROLE_Q_BIAS);
  add_part(&l->qkv, t, PEN_ROLE_K, PEN_ROLE_K_BIAS);
  add_part(&l->qkv, t, PEN_ROLE_V, PEN_ROLE_V_BIAS);
  merge_parts(&l->qkv, t);
  l->o = linear_of(t, l->heads * l->head_dim, PEN_ROLE_O, PEN_ROLE_O_BIAS);
  l->gate_up = linear_of(t, l->hidden, PEN_ROLE_GATE, PEN_ROLE_GATE_BIAS);
  add_part(&l->gate_up, t, PEN_ROLE_UP, PEN_ROLE_UP_BIAS);
  merge_parts(&l->gate_up, t);
  l->down = linear_of(t, l->ffn, PEN_ROLE_DOWN, PEN_ROLE_DOWN_BIAS);
}

/* Of vectors as long as the weight that make up `width` elements. */
static struct pen_norm norm_of(const struct tensors *t,
                               enum pen_param_role weight,
                               enum pen_param_role bias, size_t width)
{
  struct pen_norm n = {.weight = if_present(t, weight),
                       .bias = if_present(t, bias)};
  if (pen_norm_exists(&n)) {
    n.dim = elems_of(t, weight);
    n.heads = width / n.dim;
  }
  return n;
}

static void init_norms(struct pen_layer *l, const struct tensors *layer)
{
  size_t c = l->hidden, q = l->heads * l->head_dim;
  l->attn_norm = norm_of(layer, PEN_ROLE_ATTN_NORM, PEN_ROLE_ATTN_NORM_BIAS, c);
  l->q_norm = norm_of(layer, PEN_ROLE_Q_NORM, NONE, q);
  l->k_norm = norm_of(layer, PEN_ROLE_K_NORM, NONE, l->kv_heads * l->head_dim);
  l->attn_post_norm = norm_of(layer, PEN_ROLE_ATTN_POST_NORM, NONE, c);
  l->mlp_norm = norm_of(layer, PEN_ROLE_MLP_NORM, PEN_ROLE_MLP_NORM_BIAS, c);
  l->mlp_post_norm = norm_of(layer, PEN_ROLE_MLP_POST_NORM, NONE, c);
  l->final_norm =
      norm_of(layer, PEN_ROLE_FINAL_NORM, PEN_ROLE_FINAL_NORM_BIAS, c);
}

/* ---- buffers ---- */

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

/* fp32 elements of partial sums over rows, of whichever tensor needs most. */
static size_t partials_elems(const struct pen_layer *l, size_t max_tokens)
{
  size_t widest = max_size(l->qkv_width, l->gate_up_width);
  size_t most = pen_ops_partials_elems(max_tokens,
                                       max_size(widest, 2 * l->hidden));
  const struct pen_norm *norms[] = {&l->q_norm, &l->k_norm};
  for (size_t i = 0; i < 2; i++)
    if (pen_norm_exists(norms[i]))
      most = max_size(most, pen_ops_partials_elems(max_tokens * norms[i]->heads,
                                                   norms[i]->dim));
  return most;
}

static void init_saved(struct pen_layer *l)
{
  size_t e = pen_elem_bytes(l->elem), f = sizeof(float);
  bool qk_norm = pen_norm_exists(&l->q_norm);
  size_t attn_out = pen_norm_exists(&l->attn_post_norm) ? e * l->hidden : 0;
  size_t mlp_out = pen_norm_exists(&l->mlp_post_norm) ? e * l->hidden : 0;
  const struct pen_buffer saved[PEN_N_SAVED] = {
      /* after rope; before norm and rope where q and k are normed */
      [PEN_SAVED_QKV] = {"q, k, v", e * l->qkv_width, 0},
      [PEN_SAVED_QK] = {"normed q, k", qk_norm ? e * l->qk_width : 0, 0},
      [PEN_SAVED_QK_RSTD] = {"1/std of q, k",
                             f * (l->q_norm.heads + l->k_norm.heads), 0},
      [PEN_SAVED_O] = {"attention", e * l->heads * l->head_dim, 0},
      [PEN_SAVED_LSE] = {"log-sum-exp", f * l->heads, 0},
      [PEN_SAVED_ATTN_OUT] = {"attention's output", attn_out, 0},
      [PEN_SAVED_H] = {"residual", l->ffn && l->heads ? e * l->hidden : 0, 0},
      [PEN_SAVED_GATE_UP] = {"gate, up", e * l->gate_up_width, 0},
      [PEN_SAVED_MLP_OUT] = {"MLP's output", mlp_out, 0}};
  for (size_t i = 0; i < PEN_N_SAVED; i++)
    l->saved[i] = saved[i];
}

static void init_work(struct pen_layer *l, size_t max_tokens)
{
  size_t e = pen_elem_bytes(l->elem), f = sizeof(float);
  bool is_expert = l->ffn && !l->heads;
  bool has_dout = pen_norm_exists(&l->attn_post_norm) ||
                  pen_norm_exists(&l->mlp_post_norm) || is_expert;
  /* Each token is charged a whole row where chunks are short of tokens. */
  size_t partials = (partials_elems(l, max_tokens) * f + max_tokens - 1) /
                    max_tokens;
  const struct pen_buffer work[PEN_N_WORK] = {
      [PEN_WORK_NORM] = {"normed input", e * l->hidden, 0},
      [PEN_WORK_STATS] = {"1/std, mean", 2 * f, 0},
      /* forward: a projection; backward: fp32 gradient of a norm's output */
      [PEN_WORK_PRODUCT] = {"product", f * l->hidden, 0},
      [PEN_WORK_PARTIALS] = {"partial sums", partials, 0},
      [PEN_WORK_DOUT] = {"d output", has_dout ? e * l->hidden : 0, 0},
      /* the MLP's half and ... */
      [PEN_WORK_ACT] = {"activation", e * l->ffn, 0},
      [PEN_WORK_DACT] = {"d activation", e * l->ffn, 0},
      [PEN_WORK_DGATE_UP] = {"d gate, up", e * l->gate_up_width, 0},
      [PEN_WORK_DACT_F32] = {"d activation in fp32",
                             is_expert ? f * l->ffn : 0, 0},
      /* ... the attention's half are never needed together */
      [PEN_WORK_DO] = {"d attention", e * l->heads * l->head_dim, 0},
      [PEN_WORK_DQKV] = {"d q, k, v", e * l->qkv_width, 0},
      [PEN_WORK_DQ_SUMS] = {
          "sums of dq", f * pen_attention_work_per_token(l->heads, l->head_dim),
          0},
      [PEN_WORK_LOGITS] = {"logits of experts", f * l->experts, 0},
      [PEN_WORK_DLOGITS] = {"d logits of experts", e * l->experts, 0}};
  for (size_t i = 0; i < PEN_N_WORK; i++)
    l->work[i] = work[i];
}

static void place_buffers(struct pen_layer *l, size_t max_tokens)
{
  l->saved_bytes = place(l->saved, 0, PEN_N_SAVED - 1, 0, max_tokens);
  size_t begin = place(l->work, PEN_WORK_NORM, PEN_WORK_DOUT, l->saved_bytes,
                       max_tokens);
  l->work_bytes = max_size(
      place(l->work, PEN_WORK_ACT, PEN_WORK_DACT_F32, begin, max_tokens),
      place(l->work, PEN_WORK_DO, PEN_WORK_DLOGITS, begin, max_tokens));
}

void pen_layer_init(struct pen_layer *layer, const struct pen_params *params,
                    enum pen_param_block_kind kind, enum pen_elem elem,
                    size_t max_tokens)
{
  const struct pen_model_config *m = &params->config;
  struct tensors t = {params, pen_params_first(params, kind)};
  *layer = (struct pen_layer){.elem = elem};
  if (!t.info)
    return;
  bool attends = elems_of(&t, PEN_ROLE_Q) > 0;
  size_t heads = attends ? m->n_heads : 0, kv = attends ? m->n_kv_heads : 0;
  *layer = (struct pen_layer){
      .elem = elem,
      .hidden = m->hidden_size,
      .ffn = elems_of(&t, PEN_ROLE_DOWN) / m->hidden_size,
      .experts = elems_of(&t, PEN_ROLE_ROUTER) / m->hidden_size,
      .heads = heads,
      .kv_heads = kv,
      .head_dim = m->head_dim,
      .qk_width = (heads + kv) * m->head_dim,
      .qkv_width = (heads + 2 * kv) * m->head_dim,
      .rotary = m->rope.dim,
      .positions = m->max_positions,
      .query_scale = (float)m->query_scale,
      .softcap = (float)m->attention_cap,
      .norm_eps = (float)m->norm_eps,
      .norm_w_plus = m->family->norm_w_plus,
      .activation = m->activation};
  init_linears(layer, &t);
  layer->gate_up_width = layer->gate_up.out;
  init_norms(layer, &t);
  init_saved(layer);
  init_work(layer, max_tokens);
  place_buffers(layer, max_tokens);
}
