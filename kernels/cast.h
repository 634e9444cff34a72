/* cast.h: arrays of numbers from one format to another, on the CPU.
 *
 * n elements from src to dst, which must not overlap and are aligned to their
 * elements.  Rounds to nearest even unless the name says away; overflow gives
 * infinity, denormals are kept, and each NaN becomes the one quiet NaN of the
 * target (docs/NUMERICS.md).  Same bits at every level; any thread. */
#ifndef PEN_KERNELS_CAST_H
#define PEN_KERNELS_CAST_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/isa.h"

void pen_cast_f32_to_bf16(enum pen_isa isa, size_t n, const float *src,
                          uint16_t *dst);

/* Ties away from zero: a master weight to the weight that computes. */
void pen_cast_f32_to_bf16_away(enum pen_isa isa, size_t n, const float *src,
                               uint16_t *dst);

/* Exact; a NaN keeps its bits, too. */
void pen_cast_bf16_to_f32(enum pen_isa isa, size_t n, const uint16_t *src,
                          float *dst);

/* IEEE half precision, for files. */
void pen_cast_f32_to_f16(enum pen_isa isa, size_t n, const float *src,
                         uint16_t *dst);
void pen_cast_f16_to_f32(enum pen_isa isa, size_t n, const uint16_t *src,
                         float *dst);

void pen_cast_f64_to_f32(enum pen_isa isa, size_t n, const double *src,
                         float *dst);

#endif
