/* adamw_oracle.h: AdamW as published, in double, with a bound on how far fp32
 * may be from it. */
#ifndef PEN_TESTS_CHECK_ADAMW_ORACLE_H
#define PEN_TESTS_CHECK_ADAMW_ORACLE_H

#include <math.h>
#include <stdbool.h>

#include "kernels/adamw.h"

#define ORACLE_UNIT 0x1p-24 /* one rounding to fp32, relative */

struct adamw_oracle {
  double p, m, v;
  double m_abs; /* m with every term's magnitude, since m may cancel */
  double p_error, m_error, v_error; /* bounds on an fp32 run's distance */
};

/* One step with gradient g, t counted from 1.  Roundings in units:
 *   m  the factor, g, g - m, 1 - beta1, product, sum: 6 of m_abs a step
 *   v  the factor and g twice each, 1 - beta2, two products, sum: 8 of v a
 *      step; and up to 2^-126 where the sum is stored as 0
 *   p  step size, sqrt, eps, sum, quotient, product: 6 of the step, beside m's
 *      error and half of v's; decay, product, sum: 3 of both terms */
static inline void adamw_oracle_step(struct adamw_oracle *o,
                                     const struct pen_adamw_hyper *h,
                                     bool decays, int t, double g)
{
  double correction1 = 1 - pow(h->beta1, t), correction2 = 1 - pow(h->beta2, t);
  double decay = decays ? 1 - h->lr * h->weight_decay : 1;
  double p_abs = fabs(o->p);
  o->m = h->beta1 * o->m + (1 - h->beta1) * g;
  o->m_abs = h->beta1 * o->m_abs + (1 - h->beta1) * fabs(g);
  o->v = h->beta2 * o->v + (1 - h->beta2) * g * g;
  o->m_error = 6 * t * ORACLE_UNIT * o->m_abs + 0x1p-126;
  o->v_error = 8 * t * ORACLE_UNIT * o->v + t * 0x1p-126;
  double scale = h->lr / correction1 / (sqrt(o->v / correction2) + h->eps);
  double v_part = o->v > 0x1p-100 ? o->v_error / o->v / 2 : ORACLE_UNIT;
  o->p = decay * o->p - scale * o->m;
  o->p_error += 3 * ORACLE_UNIT * (p_abs + scale * o->m_abs) +
                scale * o->m_error +
                scale * o->m_abs * (v_part + 6 * ORACLE_UNIT);
}

#endif
