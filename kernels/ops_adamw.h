/* ops_adamw.h: adamw and state_update of the host's tables of operations (ops.h). */
#ifndef PEN_KERNELS_OPS_ADAMW_H
#define PEN_KERNELS_OPS_ADAMW_H

#include "kernels/adamw.h"
#include "kernels/state.h"
#include "kernels/stream.h"

void pen_ops_adamw_bf16(struct pen_stream *s,
                        const struct pen_adamw_params *params, bool decays,
                        size_t n, float *p, float *m, float *v,
                        const void *grad, void *weight);
void pen_ops_adamw_f32(struct pen_stream *s,
                       const struct pen_adamw_params *params, bool decays,
                       size_t n, float *p, float *m, float *v,
                       const void *grad, void *weight);
void pen_ops_state_update(struct pen_stream *s,
                          const struct pen_state_format *format,
                          const struct pen_state_update *update, void *weight);

#endif
