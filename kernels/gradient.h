/* gradient.h: a gradient from its fp32 accumulator to what is stored, its norm,
 * and the one factor the optimizer applies to it.
 *
 * Arrays are aligned to their elements.  Same bits at every level
 * (docs/NUMERICS.md, "The norm"); never allocates, blocks or logs; any thread,
 * each on its own range. */
#ifndef PEN_KERNELS_GRADIENT_H
#define PEN_KERNELS_GRADIENT_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/isa.h"

/* sum [n] += add [n]; no overlap. */
void pen_gradient_accumulate(enum pen_isa isa, size_t n, float *sum,
                             const float *add);

/* x [n] *= factor. */
void pen_gradient_scale(enum pen_isa isa, size_t n, float *x, float factor);

/* stored [n] = grad [n], rounded to bf16 ties to even (grad NULL: stored is
 * taken as it stands); then, over the STORED values, per chunk of chunk_elems from the first
 * element on, chunk_sumsq [ceil(n / chunk_elems)] = the sum of the squares of
 * the finite ones.  Returns how many are not finite.  No overlap.  A block cut
 * at multiples of chunk_elems gives the same numbers as the whole. */
uint64_t pen_gradient_finish_bf16(enum pen_isa isa, size_t n,
                                  size_t chunk_elems, const float *grad,
                                  uint16_t *stored, double *chunk_sumsq);

/* The same stored as fp32; stored may be grad itself. */
uint64_t pen_gradient_finish_f32(enum pen_isa isa, size_t n,
                                 size_t chunk_elems, const float *grad,
                                 float *stored, double *chunk_sumsq);

/* Sum of n chunk sums in a fixed order: the square of the global norm, before
 * normalisation.  The order of the array is the order of the sum, so it must
 * not depend on placement: blocks ascending, chunks ascending. */
double pen_gradient_total(size_t n, const double *chunk_sumsq);

/* Clips as torch.nn.utils.clip_grad_norm_ does.  sumsq: of the stored
 * gradients; scale: normalisation (1 / target tokens); max_norm: 0 for no
 * clipping.  Returns the factor for pen_adamw_params_init, and in *ret_norm
 * the norm of the normalised gradient before clipping. */
float pen_gradient_factor(double sumsq, double scale, double max_norm,
                          double *ret_norm);

#endif
