/* adamw.h: one AdamW step over a range of elements, on the CPU, in place.
 *
 * Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019),
 * algorithm 2, with the bias corrections folded into two constants.  The exact
 * sequence of IEEE operations is in docs/NUMERICS.md; every instruction-set
 * level gives the same bits, and since each element stands alone, so does
 * every cut of a range.  Functions here never allocate, block or log; any
 * thread, each on its own range. */
#ifndef PEN_KERNELS_ADAMW_H
#define PEN_KERNELS_ADAMW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/isa.h"

/* What the user chose, for this step. */
struct pen_adamw_hyper {
  double lr;           /* of this step; 0 leaves every weight as it is */
  double beta1, beta2; /* in [0, 1) */
  double eps;          /* above 0 */
  double weight_decay; /* decoupled: weights shrink by 1 - lr * weight_decay */
};

/* The fp32 constants of one step, the same for all its ranges. */
struct pen_adamw_params {
  float factor;          /* on each gradient: clip and normalisation */
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float decay;           /* 1 - lr * weight_decay */
  float step_size;       /* lr * sqrt(1 - beta2^t) / (1 - beta1^t) */
  float eps;             /* eps * sqrt(1 - beta2^t) */
};

/* Computes the constants in double from the 1-based count of applied steps;
 * factor as pen_gradient_factor gives it.  -PEN_EUSAGE with the name and value
 * of what is out of range. */
int pen_adamw_params_init(const struct pen_adamw_hyper *hyper, uint64_t step,
                          float factor, struct pen_adamw_params *ret_params);

/* One step over n elements: p, m, v [n] fp32 updated in place, grad [n] read,
 * weight [n] = the new p, for bf16 rounded to nearest with ties away from
 * zero.  decays false: weight decay is left out for this range.  Arrays must
 * not overlap and are aligned to their elements; a 64-byte aligned weight is
 * fastest.  The bf16 weight is stored past the cache and is visible to other
 * threads after the return in the usual way. */
void pen_adamw_update_bf16(enum pen_isa isa,
                           const struct pen_adamw_params *params, bool decays,
                           size_t n, float *p, float *m, float *v,
                           const uint16_t *grad, uint16_t *weight);

/* The same with fp32 gradients. */
void pen_adamw_update_bf16_f32grad(enum pen_isa isa,
                                   const struct pen_adamw_params *params,
                                   bool decays, size_t n, float *p, float *m,
                                   float *v, const float *grad,
                                   uint16_t *weight);

/* The same with fp32 gradients and an fp32 weight, a copy of p. */
void pen_adamw_update_f32(enum pen_isa isa,
                          const struct pen_adamw_params *params, bool decays,
                          size_t n, float *p, float *m, float *v,
                          const float *grad, float *weight);

#endif
