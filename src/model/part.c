/* part.c: the parts of a decoder layer on pen_ops.
 *
 * Runs on the compute lane's thread; allocates nothing.  Invariant: which
 * tensors a family has is read from the layer's maps and norms, never asked of
 * the family.  Disadvantage: each part is a pass over memory of its own. */
#include "src/model/part.h"

void *pen_part_saved(const struct pen_layer_call *c, const void *saved, int i)
{
  return (char *)(uintptr_t)saved + c->layer->saved[i].offset;
}

void *pen_part_work(const struct pen_layer_call *c, int i)
{
  return (char *)c->work + c->layer->work[i].offset;
}

void *pen_part_column(const struct pen_layer_call *c, const void *x, size_t col)
{
  return (char *)(uintptr_t)x + col * pen_elem_bytes(c->layer->elem);
}

const void *pen_part_weight(const struct pen_layer_call *c,
                            enum pen_param_role role)
{
  return pen_part_column(c, c->w, c->role_offset[role]);
}

/* ---- linear maps ---- */

void pen_part_linear(const struct pen_layer_call *c,
                     const struct pen_linear *l, const void *x,
                     const void *addend, void *y)
{
  for (size_t i = 0; i < l->n_parts; i++) {
    const struct pen_linear_part *part = &l->parts[i];
    enum pen_elem elem = c->layer->elem;
    bool biased = part->bias != PEN_N_ROLES;
    struct pen_gemm product = {
        .m = c->tokens, .n = part->out, .k = l->in,
        .a = x, .lda = l->in,
        .b = pen_part_weight(c, part->weight),
        .ldb = l->transposed ? l->out : l->in,
        .b_trans = !l->transposed,
        .c = pen_part_column(c, y, part->col), .ldc = l->out,
        .ab_elem = elem, .c_elem = elem,
        .bias = biased ? pen_part_weight(c, part->bias) : NULL,
        .addend = addend};
    c->ops->gemm(c->stream, &product);
  }
}

/* dW [out, in] += d^T x, or stored transposed [in, out] += x^T d. */
static void weight_backward(const struct pen_layer_call *c,
                            const struct pen_linear *l, size_t out,
                            const void *d, const void *x, float *dw)
{
  bool t = l->transposed;
  struct pen_gemm product = {
      .m = t ? l->in : out, .n = t ? out : l->in, .k = c->tokens,
      .a = t ? x : d, .lda = t ? l->in : l->out, .a_trans = true,
      .b = t ? d : x, .ldb = t ? l->out : l->in,
      .c = dw, .ldc = t ? l->out : l->in,
      .ab_elem = c->layer->elem, .c_elem = PEN_ELEM_F32, .accumulate = true};
  c->ops->gemm(c->stream, &product);
}

void pen_part_linear_weights(const struct pen_layer_call *c,
                             const struct pen_linear *l, const void *dy,
                             const void *x, float *grad)
{
  for (size_t i = 0; i < l->n_parts; i++) {
    const struct pen_linear_part *part = &l->parts[i];
    const void *d = pen_part_column(c, dy, part->col);
    weight_backward(c, l, part->out, d, x,
                    grad + c->role_offset[part->weight]);
    if (part->bias != PEN_N_ROLES)
      c->ops->bias_backward(c->stream, c->tokens, part->out, d, l->out,
                            grad + c->role_offset[part->bias],
                            pen_part_work(c, PEN_WORK_PARTIALS));
  }
}

void pen_part_linear_input(const struct pen_layer_call *c,
                           const struct pen_linear *l, const void *dy, void *dx,
                           enum pen_elem dx_elem)
{
  for (size_t i = 0; i < l->n_parts; i++) {
    const struct pen_linear_part *part = &l->parts[i];
    const void *d = pen_part_column(c, dy, part->col);
    struct pen_gemm product = {
        .m = c->tokens, .n = l->in, .k = part->out,
        .a = d, .lda = l->out,
        .b = pen_part_weight(c, part->weight),
        .ldb = l->transposed ? l->out : l->in,
        .b_trans = l->transposed,
        .c = dx, .ldc = l->in,
        .ab_elem = c->layer->elem, .c_elem = dx_elem, .accumulate = i > 0};
    c->ops->gemm(c->stream, &product);
  }
}

void pen_part_linear_backward(const struct pen_layer_call *c,
                              const struct pen_linear *l, const void *dy,
                              const void *x, void *dx, enum pen_elem dx_elem,
                              float *grad)
{
  pen_part_linear_weights(c, l, dy, x, grad);
  pen_part_linear_input(c, l, dy, dx, dx_elem);
}

/* ---- norms ---- */

void pen_part_norm(const struct pen_layer_call *c, const struct pen_norm *n,
                   const void *x, size_t ldx, void *y, size_t ldy,
                   float *stats)
{
  const struct pen_layer *l = c->layer;
  if (n->bias != PEN_N_ROLES) {
    c->ops->layernorm(c->stream, c->tokens, n->dim, x,
                      pen_part_weight(c, n->weight),
                      pen_part_weight(c, n->bias), l->norm_eps, y,
                      stats + c->tokens, stats);
    return;
  }
  struct pen_heads shape = {c->tokens, n->heads, n->dim};
  c->ops->rmsnorm(c->stream, &shape, x, ldx, pen_part_weight(c, n->weight),
                  l->norm_w_plus, l->norm_eps, y, ldy, stats);
}

void pen_part_norm_backward(const struct pen_layer_call *c,
                            const struct pen_norm *n,
                            const struct pen_part_gradient *g, const void *x,
                            size_t ldx, const float *stats, float *grad)
{
  float *partials = pen_part_work(c, PEN_WORK_PARTIALS);
  float *dw = grad + c->role_offset[n->weight];
  if (n->bias != PEN_N_ROLES) {
    c->ops->layernorm_backward(c->stream, c->tokens, n->dim, g->dy, g->dy_elem,
                               x, pen_part_weight(c, n->weight), stats + c->tokens,
                               stats, g->dx, g->accumulate, dw,
                               grad + c->role_offset[n->bias], partials);
    return;
  }
  struct pen_heads shape = {c->tokens, n->heads, n->dim};
  c->ops->rmsnorm_backward(c->stream, &shape, g->dy, g->lddy, g->dy_elem, x,
                           ldx, pen_part_weight(c, n->weight), c->layer->norm_w_plus,
                           stats, g->dx, g->lddx, g->accumulate, dw, partials);
}

void pen_part_norm_qk(const struct pen_layer_call *c, void *saved)
{
  const struct pen_layer *l = c->layer;
  void *raw = pen_part_saved(c, saved, PEN_SAVED_QKV);
  void *normed = pen_part_saved(c, saved, PEN_SAVED_QK);
  float *rstd = pen_part_saved(c, saved, PEN_SAVED_QK_RSTD);
  size_t k_col = l->heads * l->head_dim;
  pen_part_norm(c, &l->q_norm, raw, l->qkv_width, normed, l->qk_width, rstd);
  pen_part_norm(c, &l->k_norm, pen_part_column(c, raw, k_col), l->qkv_width,
                pen_part_column(c, normed, k_col), l->qk_width,
                rstd + c->tokens * l->q_norm.heads);
}

void pen_part_norm_qk_backward(const struct pen_layer_call *c,
                               const void *saved, void *dqk, float *grad)
{
  const struct pen_layer *l = c->layer;
  const void *raw = pen_part_saved(c, saved, PEN_SAVED_QKV);
  const float *rstd = pen_part_saved(c, saved, PEN_SAVED_QK_RSTD);
  size_t k_col = l->heads * l->head_dim, ld = l->qkv_width;
  void *dk = pen_part_column(c, dqk, k_col);
  struct pen_part_gradient q = {dqk, ld, l->elem, dqk, ld, false};
  struct pen_part_gradient k = {dk, ld, l->elem, dk, ld, false};
  pen_part_norm_backward(c, &l->q_norm, &q, raw, ld, rstd, grad);
  pen_part_norm_backward(c, &l->k_norm, &k, pen_part_column(c, raw, k_col), ld,
                         rstd + c->tokens * l->q_norm.heads, grad);
}

/* ---- rotation and attention ---- */

void *pen_part_qk(const struct pen_layer_call *c, const void *saved,
                  size_t *ret_ld)
{
  bool normed = pen_norm_exists(&c->layer->q_norm);
  *ret_ld = normed ? c->layer->qk_width : c->layer->qkv_width;
  return pen_part_saved(c, saved, normed ? PEN_SAVED_QK : PEN_SAVED_QKV);
}

void pen_part_rotate(const struct pen_layer_call *c, void *qk, size_t ld,
                     bool inverse)
{
  const struct pen_layer *l = c->layer;
  struct pen_heads shape = {c->tokens, l->heads + l->kv_heads, l->head_dim};
  if (l->rotary)
    c->ops->rope(c->stream, &shape, l->rotary, qk, ld, c->positions,
                 c->cosines, c->sines, inverse);
}

/* q, k, v of a call. */
struct attention_inputs {
  struct pen_attention shape;
  const void *q, *k, *v;
};

static struct attention_inputs attention_inputs(const struct pen_layer_call *c,
                                                const void *saved)
{
  const struct pen_layer *l = c->layer;
  struct attention_inputs in;
  size_t ld;
  in.q = pen_part_qk(c, saved, &ld);
  in.k = pen_part_column(c, in.q, l->heads * l->head_dim);
  in.v = pen_part_column(c, pen_part_saved(c, saved, PEN_SAVED_QKV),
                         l->qk_width);
  in.shape = (struct pen_attention){
      .tokens = c->tokens, .heads = l->heads, .kv_heads = l->kv_heads,
      .dim = l->head_dim, .scale = l->query_scale, .softcap = l->softcap,
      .first_key = c->first_key, .ldq = ld, .ldk = ld, .ldv = l->qkv_width,
      .ldo = l->heads * l->head_dim, .ldd = l->qkv_width};
  return in;
}

static void attend_cached(const struct pen_layer_call *c,
                          const struct attention_inputs *in, void *o)
{
  const struct pen_attention *a = &in->shape;
  struct pen_attention_cache shape = {
      .tokens = a->tokens, .heads = a->heads, .kv_heads = a->kv_heads,
      .dim = a->dim, .scale = a->scale, .softcap = a->softcap,
      .first = c->cache.first, .capacity = c->cache.capacity,
      .window = c->window, .ldq = a->ldq, .ldk = a->ldk, .ldv = a->ldv, .ldo = a->ldo};
  c->ops->attention_cached(c->stream, &shape, in->q, in->k, in->v,
                           c->cache.keys, c->cache.values, o);
}

void pen_part_attend(const struct pen_layer_call *c, void *saved)
{
  struct attention_inputs in = attention_inputs(c, saved);
  void *o = pen_part_saved(c, saved, PEN_SAVED_O);
  if (c->cache.keys)
    attend_cached(c, &in, o);
  else
    c->ops->attention(c->stream, &in.shape, in.q, in.k, in.v, o,
                      pen_part_saved(c, saved, PEN_SAVED_LSE));
}

void pen_part_attend_backward(const struct pen_layer_call *c,
                              const void *saved, const void *d_o, void *dqkv)
{
  const struct pen_layer *l = c->layer;
  struct attention_inputs in = attention_inputs(c, saved);
  c->ops->attention_backward(
      c->stream, &in.shape, in.q, in.k, in.v,
      pen_part_saved(c, saved, PEN_SAVED_O),
      pen_part_saved(c, saved, PEN_SAVED_LSE), d_o,
      pen_part_work(c, PEN_WORK_DQ_SUMS), dqkv,
      pen_part_column(c, dqkv, l->heads * l->head_dim),
      pen_part_column(c, dqkv, l->qk_width));
}

/* ---- activation ---- */

/* Where `up` lies beside gate; NULL without gating. */
static void *up_of(const struct pen_layer_call *c, const void *gate)
{
  bool gated = c->layer->gate_up_width > c->layer->ffn;
  return gated ? pen_part_column(c, gate, c->layer->ffn) : NULL;
}

void pen_part_activate(const struct pen_layer_call *c, const void *saved,
                       void *y)
{
  const struct pen_layer *l = c->layer;
  const void *gate = pen_part_saved(c, saved, PEN_SAVED_GATE_UP);
  c->ops->glu(c->stream, l->activation, c->tokens, l->ffn, gate,
              up_of(c, gate), l->gate_up_width, y);
}

void pen_part_activate_backward(const struct pen_layer_call *c,
                                const void *saved, const void *dy,
                                void *dgate_up)
{
  const struct pen_layer *l = c->layer;
  const void *gate = pen_part_saved(c, saved, PEN_SAVED_GATE_UP);
  c->ops->glu_backward(c->stream, l->activation, c->tokens, l->ffn, dy, gate,
                       up_of(c, gate), l->gate_up_width, dgate_up,
                       up_of(c, dgate_up));
}
