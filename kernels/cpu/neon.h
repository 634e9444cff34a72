/* neon.h: 4 numbers at a time on 64-bit Arm: loads, stores and roundings that
 * the NEON kernels share. */
#ifndef PEN_KERNELS_CPU_NEON_H
#define PEN_KERNELS_CPU_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/bf16.h"

static inline uint32x4_t pen_neon_is_number(float32x4_t x)
{
  return vceqq_f32(x, x);
}

static inline float32x4_t pen_neon_one_nan(float32x4_t x)
{
  return vbslq_f32(pen_neon_is_number(x), x,
                   vreinterpretq_f32_u32(vdupq_n_u32(PEN_NAN_F32_BITS)));
}

static inline float32x4_t pen_neon_load_bf16(const uint16_t *half)
{
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(half), 16));
}

/* The upper halves of the lanes, NaNs made one. */
static inline uint16x4_t pen_neon_upper(float32x4_t x, uint32x4_t rounded)
{
  uint16x4_t is_number = vmovn_u32(pen_neon_is_number(x));
  return vbsl_u16(is_number, vshrn_n_u32(rounded, 16),
                  vdup_n_u16(PEN_NAN_BF16_BITS));
}

/* Ties to even. */
static inline uint16x4_t pen_neon_to_bf16(float32x4_t x)
{
  uint32x4_t bits = vreinterpretq_u32_f32(x);
  uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  return pen_neon_upper(
      x, vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))));
}

/* Ties away from zero. */
static inline uint16x4_t pen_neon_to_bf16_away(float32x4_t x)
{
  return pen_neon_upper(
      x, vaddq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(0x8000)));
}

#endif
