/* ref/adamw.c: AdamW in plain C: the definition every other level is held
 * against, the level of machines without one, and the ends of ranges.
 *
 * One rounding per operator; the project is built without contraction.
 * Disadvantage: stores the weight through the cache, which costs a read of
 * each line. */
#include <math.h>

#include "kernels/bf16.h"
#include "kernels/cpu/rows.h"

/* A moment as it is stored: below the smallest normal it is 0, or rows that
 * are seldom seen would keep denormals, and their slowness, for ever. */
static inline float stored_moment(float x)
{
  uint32_t magnitude = pen_f32_bits(x) & 0x7fffffff;
  if (magnitude < 0x00800000)
    return 0;
  return magnitude > 0x7f800000 ? pen_f32_from_bits(PEN_NAN_F32_BITS) : x;
}

static inline float update_one(const struct pen_adamw_params *c, float decay,
                               float grad, float *p, float *m, float *v)
{
  float g = c->factor * grad;
  float m1 = stored_moment(*m + c->one_minus_beta1 * (g - *m));
  float v1 = stored_moment(c->beta2 * *v + (c->one_minus_beta2 * g) * g);
  float step = c->step_size * (m1 / (sqrtf(v1) + c->eps));
  /* + 0 makes a step of -0 into +0, which leaves a weight of -0 alone. */
  float p1 = decay * *p - (step + 0.0f);
  if (isnan(p1))
    p1 = pen_f32_from_bits(PEN_NAN_F32_BITS);
  *m = m1;
  *v = v1;
  *p = p1;
  return p1;
}

static void update_bf16(const struct pen_adamw_params *c, float decay,
                        size_t n, float *p, float *m, float *v,
                        const uint16_t *grad, uint16_t *weight)
{
  for (size_t i = 0; i < n; i++)
    weight[i] = pen_bf16_from_f32_away(
        update_one(c, decay, pen_bf16_to_f32(grad[i]), p + i, m + i, v + i));
}

static void update_bf16_f32grad(const struct pen_adamw_params *c, float decay,
                                size_t n, float *p, float *m, float *v,
                                const float *grad, uint16_t *weight)
{
  for (size_t i = 0; i < n; i++)
    weight[i] = pen_bf16_from_f32_away(
        update_one(c, decay, grad[i], p + i, m + i, v + i));
}

static void update_f32(const struct pen_adamw_params *c, float decay, size_t n,
                       float *p, float *m, float *v, const float *grad,
                       float *weight)
{
  for (size_t i = 0; i < n; i++)
    weight[i] = update_one(c, decay, grad[i], p + i, m + i, v + i);
}

const struct pen_adamw_row pen_adamw_scalar = {
  .bf16 = update_bf16,
  .bf16_f32grad = update_bf16_f32grad,
  .f32 = update_f32,
};
