/* part.h: the parts of a decoder layer, each a formula of the papers on one
 * call's tensors: linear maps, norms, rotation, attention, activation. */
#ifndef PEN_SRC_MODEL_PART_H
#define PEN_SRC_MODEL_PART_H

#include "src/model/layer_layout.h"

/* Buffer i of the call. */
void *pen_part_saved(const struct pen_layer_call *c, const void *saved, int i);
void *pen_part_work(const struct pen_layer_call *c, int i);

/* Column `col` of an array of E. */
void *pen_part_column(const struct pen_layer_call *c, const void *x,
                      size_t col);

/* The tensor of this role in the block. */
const void *pen_part_weight(const struct pen_layer_call *c,
                            enum pen_param_role role);

/* y [T, out] = x [T, in] W^T + b + addend; NULL: nothing is added.  A map of
 * several parts takes no addend. */
void pen_part_linear(const struct pen_layer_call *c,
                     const struct pen_linear *l, const void *x,
                     const void *addend, void *y);

/* dW += dy^T x, db += sum of dy, dx [T, in] = dy W.  Several parts add up in
 * dx, which is then fp32. */
void pen_part_linear_backward(const struct pen_layer_call *c,
                              const struct pen_linear *l, const void *dy,
                              const void *x, void *dx, enum pen_elem dx_elem,
                              float *grad);
/* Its two halves: dW and db alone; dx alone. */
void pen_part_linear_weights(const struct pen_layer_call *c,
                             const struct pen_linear *l, const void *dy,
                             const void *x, float *grad);
void pen_part_linear_input(const struct pen_layer_call *c,
                           const struct pen_linear *l, const void *dy, void *dx,
                           enum pen_elem dx_elem);

/* y = norm(x); rows of ldx and ldy elements (a layer norm's have no gaps).
 * stats: fp32 [T, heads], twice that for a layer norm. */
void pen_part_norm(const struct pen_layer_call *c, const struct pen_norm *n,
                   const void *x, size_t ldx, void *y, size_t ldy,
                   float *stats);

/* A gradient on its way through a norm: dy, and where dx goes.  dx may be dy
 * where dy is E and the strides are equal. */
struct pen_part_gradient {
  const void *dy;
  size_t lddy;
  enum pen_elem dy_elem;
  void *dx;
  size_t lddx;
  bool accumulate; /* dx += */
};

void pen_part_norm_backward(const struct pen_layer_call *c,
                            const struct pen_norm *n,
                            const struct pen_part_gradient *g, const void *x,
                            size_t ldx, const float *stats, float *grad);

/* q and k normed, from the saved products to their copy. */
void pen_part_norm_qk(const struct pen_layer_call *c, void *saved);
/* In place on the gradients of q and k. */
void pen_part_norm_qk_backward(const struct pen_layer_call *c,
                               const void *saved, void *dqk, float *grad);

/* What attention reads as q; k follows after the q heads.  ret_ld: of a row. */
void *pen_part_qk(const struct pen_layer_call *c, const void *saved,
                  size_t *ret_ld);

/* q and k turned by their positions, in place; inverse: the backward pass. */
void pen_part_rotate(const struct pen_layer_call *c, void *qk, size_t ld,
                     bool inverse);

/* o = attention(q, k, v), of the document so far where there is a cache. */
void pen_part_attend(const struct pen_layer_call *c, void *saved);
/* dqkv from d_o. */
void pen_part_attend_backward(const struct pen_layer_call *c,
                              const void *saved, const void *d_o, void *dqkv);

/* y [T, F] = f(gate) up, or f(gate) without gating. */
void pen_part_activate(const struct pen_layer_call *c, const void *saved,
                       void *y);
void pen_part_activate_backward(const struct pen_layer_call *c,
                                const void *saved, const void *dy,
                                void *dgate_up);

#endif
