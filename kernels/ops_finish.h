/* ops_finish.h: gradient_finish of the host's tables of operations (ops.h). */
#ifndef PEN_KERNELS_OPS_FINISH_H
#define PEN_KERNELS_OPS_FINISH_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/stream.h"

void pen_ops_finish_bf16(struct pen_stream *s, size_t n, size_t chunk_elems,
                         const float *grad, void *stored, double *chunk_sumsq,
                         uint64_t *nonfinite);
void pen_ops_finish_f32(struct pen_stream *s, size_t n, size_t chunk_elems,
                        const float *grad, void *stored, double *chunk_sumsq,
                        uint64_t *nonfinite);

#endif
