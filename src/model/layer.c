/* layer.c: a decoder layer as the papers write it:
 *
 *   h = x + W_o attention(rope(W_qkv norm(x)))
 *   y = h + W_down swiglu(W_gate norm(h), W_up norm(h))
 *
 * and its backward pass in reverse.  Runs on the compute lane's thread;
 * allocates nothing.  Invariant: what backward reads from `saved` it would
 * recompute with the same bits, because both run the same functions here.
 * Disadvantage: norms and swiglu are computed again in backward even where the
 * rest is saved, which costs time to save memory. */
#include "src/model/layer.h"

#include <math.h>

/* ---- pieces ---- */

static void *saved_at(const struct pen_layer_call *c, const void *saved, int i)
{
  return (char *)(uintptr_t)saved + c->layer->saved[i].offset;
}

static void *work_at(const struct pen_layer_call *c, int i)
{
  return (char *)c->work + c->layer->work[i].offset;
}

/* Column `col` of an array of E. */
static void *column(const struct pen_layer_call *c, const void *x, size_t col)
{
  return (char *)(uintptr_t)x + col * pen_elem_bytes(c->layer->elem);
}

static const void *weight(const struct pen_layer_call *c,
                          enum pen_param_role role)
{
  return column(c, c->w, c->role_offset[role]);
}

/* y [T, out] = x [T, in] W^T + b */
static void linear(const struct pen_layer_call *c, const struct pen_linear *l,
                   const void *x, void *y)
{
  for (size_t i = 0; i < l->n_parts; i++) {
    const struct pen_linear_part *part = &l->parts[i];
    enum pen_elem elem = c->layer->elem;
    void *out = column(c, y, part->col);
    struct pen_gemm product = {
        .m = c->tokens, .n = part->out, .k = l->in,
        .a = x, .lda = l->in,
        .b = weight(c, part->weight), .ldb = l->in, .b_trans = true,
        .c = out, .ldc = l->out, .ab_elem = elem, .c_elem = elem};
    c->ops->gemm(c->stream, &product);
    if (part->bias != PEN_N_ROLES)
      c->ops->bias(c->stream, c->tokens, part->out, out, l->out,
                   weight(c, part->bias));
  }
}

/* dW += dy^T x, db += sum of dy, dx [T, in] = dy W.  Several parts add up in
 * dx, which is then fp32. */
static void linear_backward(const struct pen_layer_call *c,
                            const struct pen_linear *l, const void *dy,
                            const void *x, void *dx, enum pen_elem dx_elem,
                            float *grad)
{
  for (size_t i = 0; i < l->n_parts; i++) {
    const struct pen_linear_part *part = &l->parts[i];
    enum pen_elem elem = c->layer->elem;
    const void *d = column(c, dy, part->col);
    struct pen_gemm dw = {
        .m = part->out, .n = l->in, .k = c->tokens,
        .a = d, .lda = l->out, .a_trans = true,
        .b = x, .ldb = l->in,
        .c = grad + c->role_offset[part->weight], .ldc = l->in,
        .ab_elem = elem, .c_elem = PEN_ELEM_F32, .accumulate = true};
    c->ops->gemm(c->stream, &dw);
    if (part->bias != PEN_N_ROLES)
      c->ops->bias_backward(c->stream, c->tokens, part->out, d, l->out,
                            grad + c->role_offset[part->bias],
                            work_at(c, PEN_WORK_PARTIALS));
    struct pen_gemm product = {
        .m = c->tokens, .n = l->in, .k = part->out,
        .a = d, .lda = l->out,
        .b = weight(c, part->weight), .ldb = l->in,
        .c = dx, .ldc = l->in,
        .ab_elem = elem, .c_elem = dx_elem, .accumulate = i > 0};
    c->ops->gemm(c->stream, &product);
  }
}

/* y [T, C] = norm(x); 1/std in the workspace. */
static void norm(const struct pen_layer_call *c, enum pen_param_role role,
                 const void *x, void *y)
{
  size_t dim = c->layer->hidden;
  struct pen_heads shape = {c->tokens, 1, dim};
  c->ops->rmsnorm(c->stream, &shape, x, dim, weight(c, role), 0, c->layer->eps,
                  y, dim, work_at(c, PEN_WORK_RSTD));
}

/* d += gradient of x, where the workspace's product is that of norm(x). */
static void norm_backward(const struct pen_layer_call *c,
                          enum pen_param_role role, const void *x, void *d,
                          float *grad)
{
  size_t dim = c->layer->hidden;
  struct pen_heads shape = {c->tokens, 1, dim};
  c->ops->rmsnorm_backward(
      c->stream, &shape, work_at(c, PEN_WORK_PRODUCT), dim, PEN_ELEM_F32, x,
      dim, weight(c, role), 0, work_at(c, PEN_WORK_RSTD), d, dim, true,
      grad + c->role_offset[role], work_at(c, PEN_WORK_PARTIALS));
}

static struct pen_attention attention_shape(const struct pen_layer_call *c)
{
  const struct pen_layer *l = c->layer;
  size_t ldq = l->qk_norm ? l->qk_width : l->qkv_width;
  struct pen_attention a = {
      .tokens = c->tokens, .heads = l->heads, .kv_heads = l->kv_heads,
      .dim = l->head_dim, .scale = (float)(1 / sqrt((double)l->head_dim)),
      .first_key = c->first_key, .ldq = ldq, .ldk = ldq, .ldv = l->qkv_width,
      .ldo = l->heads * l->head_dim, .ldd = l->qkv_width};
  return a;
}

/* What attention reads as q; k follows after the q heads. */
static void *rotated_qk(const struct pen_layer_call *c, const void *saved)
{
  return saved_at(c, saved, c->layer->qk_norm ? PEN_SAVED_QK : PEN_SAVED_QKV);
}

/* q and k normed per head (Qwen3): from the saved products to their copy. */
static void norm_qk(const struct pen_layer_call *c, void *saved)
{
  const struct pen_layer *l = c->layer;
  void *raw = saved_at(c, saved, PEN_SAVED_QKV);
  void *normed = saved_at(c, saved, PEN_SAVED_QK);
  float *rstd = saved_at(c, saved, PEN_SAVED_QK_RSTD);
  struct pen_heads q = {c->tokens, l->heads, l->head_dim};
  struct pen_heads k = {c->tokens, l->kv_heads, l->head_dim};
  size_t k_col = l->heads * l->head_dim;
  c->ops->rmsnorm(c->stream, &q, raw, l->qkv_width, weight(c, PEN_ROLE_Q_NORM),
                  0, l->eps, normed, l->qk_width, rstd);
  c->ops->rmsnorm(c->stream, &k, column(c, raw, k_col), l->qkv_width,
                  weight(c, PEN_ROLE_K_NORM), 0, l->eps, column(c, normed, k_col),
                  l->qk_width, rstd + c->tokens * l->heads);
}

/* In place on the gradients of q and k. */
static void norm_qk_backward(const struct pen_layer_call *c, const void *saved,
                             void *dqk, float *grad)
{
  const struct pen_layer *l = c->layer;
  const void *raw = saved_at(c, saved, PEN_SAVED_QKV);
  const float *rstd = saved_at(c, saved, PEN_SAVED_QK_RSTD);
  float *partials = work_at(c, PEN_WORK_PARTIALS);
  struct pen_heads q = {c->tokens, l->heads, l->head_dim};
  struct pen_heads k = {c->tokens, l->kv_heads, l->head_dim};
  size_t k_col = l->heads * l->head_dim, ld = l->qkv_width;
  void *dk = column(c, dqk, k_col);
  c->ops->rmsnorm_backward(c->stream, &q, dqk, ld, l->elem, raw, ld,
                           weight(c, PEN_ROLE_Q_NORM), 0, rstd, dqk, ld, false,
                           grad + c->role_offset[PEN_ROLE_Q_NORM], partials);
  c->ops->rmsnorm_backward(c->stream, &k, dk, ld, l->elem,
                           column(c, raw, k_col), ld,
                           weight(c, PEN_ROLE_K_NORM), 0,
                           rstd + c->tokens * l->heads, dk, ld, false,
                           grad + c->role_offset[PEN_ROLE_K_NORM], partials);
}

static void rotate(const struct pen_layer_call *c, void *qk, size_t ld,
                   bool inverse)
{
  const struct pen_layer *l = c->layer;
  struct pen_heads shape = {c->tokens, l->heads + l->kv_heads, l->head_dim};
  c->ops->rope(c->stream, &shape, l->head_dim, qk, ld, c->positions, c->cosines, c->sines,
               inverse);
}

/* o = attention(q, k, v), of the document so far where there is a cache. */
static void attend(const struct pen_layer_call *c, const void *qk,
                   const void *v, void *saved)
{
  const struct pen_layer *l = c->layer;
  struct pen_attention shape = attention_shape(c);
  const void *k = column(c, qk, l->heads * l->head_dim);
  void *o = saved_at(c, saved, PEN_SAVED_O);
  if (!c->cache.keys) {
    c->ops->attention(c->stream, &shape, qk, k, v, o,
                      saved_at(c, saved, PEN_SAVED_LSE));
    return;
  }
  struct pen_attention_cache cached = {
      .tokens = c->tokens, .heads = l->heads, .kv_heads = l->kv_heads,
      .dim = l->head_dim, .scale = shape.scale, .first = c->cache.first,
      .capacity = c->cache.capacity, .ldq = shape.ldq, .ldk = shape.ldk,
      .ldv = shape.ldv, .ldo = shape.ldo};
  c->ops->attention_cached(c->stream, &cached, qk, k, v, c->cache.keys,
                           c->cache.values, o);
}

/* ---- the layer ---- */

/* h = x + W_o attention(rope(W_qkv norm(x))) */
static void attention_half(const struct pen_layer_call *c, const void *x,
                           void *saved)
{
  const struct pen_layer *l = c->layer;
  void *normed = work_at(c, PEN_WORK_NORM);
  void *projected = work_at(c, PEN_WORK_PRODUCT);
  void *qkv = saved_at(c, saved, PEN_SAVED_QKV);
  void *qk = rotated_qk(c, saved);

  norm(c, PEN_ROLE_ATTN_NORM, x, normed);
  linear(c, &l->qkv, normed, qkv);
  if (l->qk_norm)
    norm_qk(c, saved);
  rotate(c, qk, attention_shape(c).ldq, false);
  attend(c, qk, column(c, qkv, l->qk_width), saved);
  linear(c, &l->o, saved_at(c, saved, PEN_SAVED_O), projected);
  c->ops->add(c->stream, c->tokens * l->hidden, x, projected,
              saved_at(c, saved, PEN_SAVED_H));
}

/* gate, up = W_gate_up norm(h) */
static void gate_up(const struct pen_layer_call *c, void *saved)
{
  void *normed = work_at(c, PEN_WORK_NORM);
  norm(c, PEN_ROLE_MLP_NORM, saved_at(c, saved, PEN_SAVED_H), normed);
  linear(c, &c->layer->gate_up, normed, saved_at(c, saved, PEN_SAVED_GATE_UP));
}

static void swiglu(const struct pen_layer_call *c, const void *saved)
{
  size_t ffn = c->layer->ffn;
  const void *gate = saved_at(c, saved, PEN_SAVED_GATE_UP);
  c->ops->glu(c->stream, PEN_ACTIVATION_SILU, c->tokens, ffn, gate, column(c, gate, ffn),
                 2 * ffn, work_at(c, PEN_WORK_ACT));
}

void pen_layer_forward(const struct pen_layer_call *c, const void *x, void *y,
                       void *saved)
{
  const struct pen_layer *l = c->layer;
  void *projected = work_at(c, PEN_WORK_PRODUCT);
  if (!saved)
    saved = c->work;
  attention_half(c, x, saved);
  gate_up(c, saved);
  swiglu(c, saved);
  linear(c, &l->down, work_at(c, PEN_WORK_ACT), projected);
  c->ops->add(c->stream, c->tokens * l->hidden,
              saved_at(c, saved, PEN_SAVED_H), projected, y);
}

/* From d = dL/dy to dL/dh. */
static void mlp_half_backward(const struct pen_layer_call *c,
                              const void *saved, void *d, float *grad)
{
  const struct pen_layer *l = c->layer;
  const void *h = saved_at(c, saved, PEN_SAVED_H);
  const void *gate = saved_at(c, saved, PEN_SAVED_GATE_UP);
  void *dgate = work_at(c, PEN_WORK_DGATE_UP);
  void *dact = work_at(c, PEN_WORK_DACT);
  void *normed = work_at(c, PEN_WORK_NORM);

  swiglu(c, saved);
  linear_backward(c, &l->down, d, work_at(c, PEN_WORK_ACT), dact, l->elem,
                  grad);
  c->ops->glu_backward(c->stream, PEN_ACTIVATION_SILU, c->tokens, l->ffn, dact, gate,
                          column(c, gate, l->ffn), 2 * l->ffn, dgate,
                          column(c, dgate, l->ffn));
  norm(c, PEN_ROLE_MLP_NORM, h, normed);
  linear_backward(c, &l->gate_up, dgate, normed, work_at(c, PEN_WORK_PRODUCT),
                  PEN_ELEM_F32, grad);
  norm_backward(c, PEN_ROLE_MLP_NORM, h, d, grad);
}

/* From d = dL/dh to dL/dx. */
static void attention_half_backward(const struct pen_layer_call *c,
                                    const void *x, const void *saved, void *d,
                                    float *grad)
{
  const struct pen_layer *l = c->layer;
  const void *o = saved_at(c, saved, PEN_SAVED_O);
  const void *qkv = saved_at(c, saved, PEN_SAVED_QKV);
  const void *qk = rotated_qk(c, saved);
  void *d_o = work_at(c, PEN_WORK_DO), *dqkv = work_at(c, PEN_WORK_DQKV);
  void *normed = work_at(c, PEN_WORK_NORM);
  size_t k_col = l->heads * l->head_dim;
  struct pen_attention shape = attention_shape(c);

  linear_backward(c, &l->o, d, o, d_o, l->elem, grad);
  c->ops->attention_backward(
      c->stream, &shape, qk, column(c, qk, k_col),
      column(c, qkv, l->qk_width), o, saved_at(c, saved, PEN_SAVED_LSE), d_o,
      work_at(c, PEN_WORK_DELTA), dqkv, column(c, dqkv, k_col),
      column(c, dqkv, l->qk_width));
  rotate(c, dqkv, l->qkv_width, true);
  if (l->qk_norm)
    norm_qk_backward(c, saved, dqkv, grad);
  norm(c, PEN_ROLE_ATTN_NORM, x, normed);
  linear_backward(c, &l->qkv, dqkv, normed, work_at(c, PEN_WORK_PRODUCT),
                  PEN_ELEM_F32, grad);
  norm_backward(c, PEN_ROLE_ATTN_NORM, x, d, grad);
}

void pen_layer_backward(const struct pen_layer_call *c, const void *x,
                        const void *saved, void *d, float *grad)
{
  if (!saved) {
    attention_half(c, x, c->work);
    gate_up(c, c->work);
    saved = c->work;
  }
  mlp_half_backward(c, saved, d, grad);
  attention_half_backward(c, x, saved, d, grad);
}
