/* layer.c: a decoder layer as the papers write it:
 *
 *   h = x + norm(W_o attention(rope(norm(W_qkv norm(x)))))
 *   y = h + norm(W_down f(W_gate_up norm(h)))
 *
 * and its backward pass in reverse; each family has some of the norms.  Runs on
 * the compute lane's thread; allocates nothing.  Invariant: what backward reads
 * from `saved` it would recompute with the same bits, because both run the same
 * functions here.  Disadvantage: norms and activations are computed again in
 * backward even where the rest is saved, which costs time to save memory. */
#include "src/model/layer.h"

#include "src/model/part.h"

/* ---- the residual stream ---- */

/* norm(x), or x where the family has no norm at this place. */
static const void *normed(const struct pen_layer_call *c,
                          const struct pen_norm *n, const void *x)
{
  size_t dim = c->layer->hidden;
  void *y = pen_part_work(c, PEN_WORK_NORM);
  if (!pen_norm_exists(n))
    return x;
  pen_part_norm(c, n, x, dim, y, dim, pen_part_work(c, PEN_WORK_STATS));
  return y;
}

/* d += gradient of x, where the workspace's product is that of normed(x) and
 * its statistics are still there. */
static void normed_backward(const struct pen_layer_call *c,
                            const struct pen_norm *n, const void *x, void *d,
                            float *grad)
{
  size_t dim = c->layer->hidden;
  void *product = pen_part_work(c, PEN_WORK_PRODUCT);
  struct pen_part_gradient g = {product, dim, PEN_ELEM_F32, d, dim, true};
  if (pen_norm_exists(n))
    pen_part_norm_backward(c, n, &g, x, dim, pen_part_work(c, PEN_WORK_STATS),
                           grad);
  else
    c->ops->add_f32(c->stream, c->tokens * dim, product, d);
}

/* Where a half puts its result: it is kept where a norm follows. */
static void *out_of(const struct pen_layer_call *c, const struct pen_norm *n,
                    const void *saved, int i)
{
  return pen_norm_exists(n) ? pen_part_saved(c, saved, i)
                            : pen_part_work(c, PEN_WORK_PRODUCT);
}

/* y = x + norm(out) with out = W in; without a norm x + out, which is one
 * product.  y NULL: out alone, where backward needs it. */
static void join(const struct pen_layer_call *c, const struct pen_linear *map,
                 const struct pen_norm *n, const void *in, const void *x,
                 void *out, void *y)
{
  bool has_norm = pen_norm_exists(n);
  if (has_norm)
    pen_part_linear(c, map, in, NULL, out);
  if (has_norm && y)
    c->ops->add(c->stream, c->tokens * c->layer->hidden, x, normed(c, n, out),
                y);
  if (!has_norm && y)
    pen_part_linear(c, map, in, x, y);
}

/* The gradient of out, where d is that of x + norm(out). */
static const void *join_backward(const struct pen_layer_call *c,
                                 const struct pen_norm *n, const void *out,
                                 const void *d, float *grad)
{
  size_t dim = c->layer->hidden;
  void *dout = pen_part_work(c, PEN_WORK_DOUT);
  struct pen_part_gradient g = {d, dim, c->layer->elem, dout, dim, false};
  if (!pen_norm_exists(n))
    return d;
  normed(c, n, out); /* for its statistics */
  pen_part_norm_backward(c, n, &g, out, dim, pen_part_work(c, PEN_WORK_STATS),
                         grad);
  return dout;
}

/* ---- forward ---- */

/* h = x + norm(W_o attention(rope(norm(W_qkv norm(x))))); h NULL: what is saved
 * of it alone */
static void attention_half(const struct pen_layer_call *c, const void *x,
                           void *h, void *saved)
{
  const struct pen_layer *l = c->layer;
  size_t ld;
  void *qk = pen_part_qk(c, saved, &ld);

  pen_part_linear(c, &l->qkv, normed(c, &l->attn_norm, x), NULL,
                  pen_part_saved(c, saved, PEN_SAVED_QKV));
  if (pen_norm_exists(&l->q_norm))
    pen_part_norm_qk(c, saved);
  pen_part_rotate(c, qk, ld, false);
  pen_part_attend(c, saved);
  join(c, &l->o, &l->attn_post_norm, pen_part_saved(c, saved, PEN_SAVED_O), x,
       out_of(c, &l->attn_post_norm, saved, PEN_SAVED_ATTN_OUT), h);
}

/* gate, up = W_gate_up norm(h) */
static void gate_up(const struct pen_layer_call *c, void *saved)
{
  const struct pen_layer *l = c->layer;
  const void *h = pen_part_saved(c, saved, PEN_SAVED_H);
  pen_part_linear(c, &l->gate_up, normed(c, &l->mlp_norm, h), NULL,
                  pen_part_saved(c, saved, PEN_SAVED_GATE_UP));
}

/* y = h + norm(W_down f(gate, up)); y NULL: what is saved of it alone */
static void down(const struct pen_layer_call *c, void *y, void *saved)
{
  const struct pen_layer *l = c->layer;
  void *act = pen_part_work(c, PEN_WORK_ACT);
  pen_part_activate(c, saved, act);
  join(c, &l->down, &l->mlp_post_norm, act,
       pen_part_saved(c, saved, PEN_SAVED_H),
       out_of(c, &l->mlp_post_norm, saved, PEN_SAVED_MLP_OUT), y);
}

void pen_layer_forward(const struct pen_layer_call *c, const void *x, void *y,
                       void *saved)
{
  if (!saved)
    saved = c->work;
  attention_half(c, x, pen_part_saved(c, saved, PEN_SAVED_H), saved);
  gate_up(c, saved);
  down(c, y, saved);
}

/* ---- backward ---- */

/* What forward would have saved. */
static void recompute(const struct pen_layer_call *c, const void *x)
{
  attention_half(c, x, pen_part_saved(c, c->work, PEN_SAVED_H), c->work);
  gate_up(c, c->work);
  if (pen_norm_exists(&c->layer->mlp_post_norm))
    down(c, NULL, c->work);
}

/* From d = dL/dy to dL/dh. */
static void mlp_half_backward(const struct pen_layer_call *c,
                              const void *saved, void *d, float *grad)
{
  const struct pen_layer *l = c->layer;
  const void *h = pen_part_saved(c, saved, PEN_SAVED_H);
  const void *out = out_of(c, &l->mlp_post_norm, saved, PEN_SAVED_MLP_OUT);
  void *act = pen_part_work(c, PEN_WORK_ACT);
  void *dact = pen_part_work(c, PEN_WORK_DACT);
  void *dgate_up = pen_part_work(c, PEN_WORK_DGATE_UP);

  const void *dout = join_backward(c, &l->mlp_post_norm, out, d, grad);
  pen_part_activate(c, saved, act);
  pen_part_linear_backward(c, &l->down, dout, act, dact, l->elem, grad);
  pen_part_activate_backward(c, saved, dact, dgate_up);
  pen_part_linear_backward(c, &l->gate_up, dgate_up, normed(c, &l->mlp_norm, h),
                           pen_part_work(c, PEN_WORK_PRODUCT), PEN_ELEM_F32,
                           grad);
  normed_backward(c, &l->mlp_norm, h, d, grad);
}

/* From d = dL/dh to dL/dx. */
static void attention_half_backward(const struct pen_layer_call *c,
                                    const void *x, const void *saved, void *d,
                                    float *grad)
{
  const struct pen_layer *l = c->layer;
  const void *o = pen_part_saved(c, saved, PEN_SAVED_O);
  const void *out = out_of(c, &l->attn_post_norm, saved, PEN_SAVED_ATTN_OUT);
  void *d_o = pen_part_work(c, PEN_WORK_DO);
  void *dqkv = pen_part_work(c, PEN_WORK_DQKV);

  const void *dout = join_backward(c, &l->attn_post_norm, out, d, grad);
  pen_part_linear_backward(c, &l->o, dout, o, d_o, l->elem, grad);
  pen_part_attend_backward(c, saved, d_o, dqkv);
  pen_part_rotate(c, dqkv, l->qkv_width, true);
  if (pen_norm_exists(&l->q_norm))
    pen_part_norm_qk_backward(c, saved, dqkv, grad);
  pen_part_linear_backward(c, &l->qkv, dqkv, normed(c, &l->attn_norm, x),
                           pen_part_work(c, PEN_WORK_PRODUCT), PEN_ELEM_F32,
                           grad);
  normed_backward(c, &l->attn_norm, x, d, grad);
}

void pen_layer_backward(const struct pen_layer_call *c, const void *x,
                        const void *saved, void *d, float *grad)
{
  if (!saved) {
    recompute(c, x);
    saved = c->work;
  }
  mlp_half_backward(c, saved, d, grad);
  attention_half_backward(c, x, saved, d, grad);
}

/* ---- attention alone ---- */

void pen_layer_attention(const struct pen_layer_call *c, const void *x,
                         void *y, void *saved)
{
  attention_half(c, x, y, saved ? saved : c->work);
}

void pen_layer_attention_backward(const struct pen_layer_call *c,
                                  const void *x, const void *saved, void *d,
                                  float *grad)
{
  if (!saved) {
    attention_half(c, x, NULL, c->work);
    saved = c->work;
  }
  attention_half_backward(c, x, saved, d, grad);
}
