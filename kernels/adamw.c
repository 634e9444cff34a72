/* adamw.c: the constants of an AdamW step, and the way into its kernels.
 *
 * Constants are computed in double from plain operations and sqrt only (no
 * pow, whose last bit differs between C libraries), so a run continues with
 * the same bits on another machine.  No state; any thread.
 * Disadvantage: beta^t by squaring carries up to t roundings in double; they
 * stay far below the fp32 the result is rounded to. */
#include "kernels/adamw.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "base/error.h"
#include "kernels/cpu/rows.h"
#include "kernels/fpmode.h"

static const struct pen_adamw_row *const rows[PEN_ISA_COUNT] =
    PEN_ISA_ROWS(adamw);

static double power(double base, uint64_t exponent)
{
  double result = 1;
  for (; exponent; exponent >>= 1) {
    if (exponent & 1)
      result *= base;
    base *= base;
  }
  return result;
}

static int check_hyper(const struct pen_adamw_hyper *h, uint64_t step,
                       float factor)
{
  const struct { const char *name; double value; bool good; } rules[] = {
    {"learning rate", h->lr, h->lr >= 0 && h->lr <= FLT_MAX},
    {"beta1", h->beta1, h->beta1 >= 0 && h->beta1 < 1},
    {"beta2", h->beta2, h->beta2 >= 0 && h->beta2 < 1},
    {"epsilon", h->eps, h->eps >= 1e-30 && h->eps <= FLT_MAX},
    {"weight decay", h->weight_decay,
     h->weight_decay >= 0 && h->lr * h->weight_decay <= 1},
    {"gradient factor", (double)factor, isfinite(factor)},
    {"step", (double)step, step >= 1},
  };
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
    if (!rules[i].good)
      return pen_error_set(-PEN_EUSAGE,
                           "AdamW cannot run with %s %g (want: learning rate "
                           "0 or more, betas in [0, 1), epsilon 1e-30 or more, "
                           "learning rate times weight decay in [0, 1])",
                           rules[i].name, rules[i].value);
  return 0;
}

int pen_adamw_params_init(const struct pen_adamw_hyper *hyper, uint64_t step,
                          float factor, struct pen_adamw_params *ret_params)
{
  int r = check_hyper(hyper, step, factor);
  if (r < 0)
    return r;
  uint64_t outer = pen_fpmode_begin();
  double correction1 = 1 - power(hyper->beta1, step);
  double correction2 = sqrt(1 - power(hyper->beta2, step));
  *ret_params = (struct pen_adamw_params){
    .factor = factor,
    .one_minus_beta1 = (float)(1 - hyper->beta1),
    .beta2 = (float)hyper->beta2,
    .one_minus_beta2 = (float)(1 - hyper->beta2),
    .decay = (float)(1 - hyper->lr * hyper->weight_decay),
    .step_size = (float)(hyper->lr * correction2 / correction1),
    .eps = (float)(hyper->eps * correction2),
  };
  pen_fpmode_set(outer);
  return 0;
}

void pen_adamw_update_bf16(enum pen_isa isa,
                           const struct pen_adamw_params *params, bool decays,
                           size_t n, float *p, float *m, float *v,
                           const uint16_t *grad, uint16_t *weight)
{
  uint64_t outer = pen_fpmode_begin();
  rows[isa]->bf16(params, decays ? params->decay : 1, n, p, m, v, grad, weight);
  pen_fpmode_set(outer);
}

void pen_adamw_update_bf16_f32grad(enum pen_isa isa,
                                   const struct pen_adamw_params *params,
                                   bool decays, size_t n, float *p, float *m,
                                   float *v, const float *grad,
                                   uint16_t *weight)
{
  uint64_t outer = pen_fpmode_begin();
  rows[isa]->bf16_f32grad(params, decays ? params->decay : 1, n, p, m, v, grad,
                          weight);
  pen_fpmode_set(outer);
}

void pen_adamw_update_f32(enum pen_isa isa,
                          const struct pen_adamw_params *params, bool decays,
                          size_t n, float *p, float *m, float *v,
                          const float *grad, float *weight)
{
  uint64_t outer = pen_fpmode_begin();
  rows[isa]->f32(params, decays ? params->decay : 1, n, p, m, v, grad, weight);
  pen_fpmode_set(outer);
}
