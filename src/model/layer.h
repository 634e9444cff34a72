/* layer.h: forward and backward of one decoder layer of any family, or of its
 * half where experts take the place of the other, written once against
 * pen_ops. */
#ifndef PEN_SRC_MODEL_LAYER_H
#define PEN_SRC_MODEL_LAYER_H

#include "src/model/layer_layout.h"

/* y [T, C] = layer(x).  saved: saved_bytes, or NULL. */
void pen_layer_forward(const struct pen_layer_call *c, const void *x, void *y,
                       void *saved);

/* d [T, C]: in dL/dy, out dL/dx.  grad += dL/dw (fp32, laid out as the block).
 * saved NULL: recomputed, giving the same bits. */
void pen_layer_backward(const struct pen_layer_call *c, const void *x,
                        const void *saved, void *d, float *grad);

/* The half of a layer that attends: y = x + attention; as above. */
void pen_layer_attention(const struct pen_layer_call *c, const void *x,
                         void *y, void *saved);
void pen_layer_attention_backward(const struct pen_layer_call *c,
                                  const void *x, const void *saved, void *d,
                                  float *grad);

#endif
