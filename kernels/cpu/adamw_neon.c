/* cpu/adamw_neon.c: AdamW, 4 elements at a time; the last few through the
 * plain C row.  Disadvantage: the weight is stored through the cache, which
 * costs a read of each line on cores without write streaming. */
#include "kernels/cpu/neon.h"
#include "kernels/cpu/rows.h"

#define STEP 4

/* Below the smallest normal (exponent bits 0) it is 0. */
static inline float32x4_t stored_moment(float32x4_t x)
{
  uint32x4_t bits = vreinterpretq_u32_f32(x);
  uint32x4_t normal = vtstq_u32(bits, vdupq_n_u32(0x7f800000));
  return pen_neon_one_nan(vreinterpretq_f32_u32(vandq_u32(bits, normal)));
}

static inline float32x4_t update4(const struct pen_adamw_params *c,
                                  float decay, float32x4_t grad, float *p,
                                  float *m, float *v)
{
  float32x4_t g = vmulq_f32(vdupq_n_f32(c->factor), grad);
  float32x4_t m0 = vld1q_f32(m), v0 = vld1q_f32(v);
  float32x4_t m1 = stored_moment(vaddq_f32(
      m0, vmulq_f32(vdupq_n_f32(c->one_minus_beta1), vsubq_f32(g, m0))));
  float32x4_t v1 = stored_moment(vaddq_f32(
      vmulq_f32(vdupq_n_f32(c->beta2), v0),
      vmulq_f32(vmulq_f32(vdupq_n_f32(c->one_minus_beta2), g), g)));
  float32x4_t step = vmulq_f32(
      vdupq_n_f32(c->step_size),
      vdivq_f32(m1, vaddq_f32(vsqrtq_f32(v1), vdupq_n_f32(c->eps))));
  float32x4_t p1 = pen_neon_one_nan(
      vsubq_f32(vmulq_f32(vdupq_n_f32(decay), vld1q_f32(p)),
                vaddq_f32(step, vdupq_n_f32(0))));
  vst1q_f32(m, m1);
  vst1q_f32(v, v1);
  vst1q_f32(p, p1);
  return p1;
}

static void update_bf16(const struct pen_adamw_params *c, float decay,
                        size_t n, float *p, float *m, float *v,
                        const uint16_t *grad, uint16_t *weight)
{
  size_t i = 0;
  for (; n - i >= STEP; i += STEP)
    vst1_u16(weight + i, pen_neon_to_bf16_away(
                             update4(c, decay, pen_neon_load_bf16(grad + i),
                                     p + i, m + i, v + i)));
  pen_adamw_scalar.bf16(c, decay, n - i, p + i, m + i, v + i, grad + i,
                        weight + i);
}

static void update_bf16_f32grad(const struct pen_adamw_params *c, float decay,
                                size_t n, float *p, float *m, float *v,
                                const float *grad, uint16_t *weight)
{
  size_t i = 0;
  for (; n - i >= STEP; i += STEP)
    vst1_u16(weight + i, pen_neon_to_bf16_away(
                             update4(c, decay, vld1q_f32(grad + i), p + i,
                                     m + i, v + i)));
  pen_adamw_scalar.bf16_f32grad(c, decay, n - i, p + i, m + i, v + i, grad + i,
                                weight + i);
}

static void update_f32(const struct pen_adamw_params *c, float decay, size_t n,
                       float *p, float *m, float *v, const float *grad,
                       float *weight)
{
  size_t i = 0;
  for (; n - i >= STEP; i += STEP)
    vst1q_f32(weight + i, update4(c, decay, vld1q_f32(grad + i), p + i, m + i,
                                  v + i));
  pen_adamw_scalar.f32(c, decay, n - i, p + i, m + i, v + i, grad + i,
                       weight + i);
}

const struct pen_adamw_row pen_adamw_neon = {
  .bf16 = update_bf16,
  .bf16_f32grad = update_bf16_f32grad,
  .f32 = update_f32,
};
