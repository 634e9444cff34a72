/* bf16.h: one bf16 number to and from fp32, as every kernel of every level
 * must do it (docs/NUMERICS.md, "Rounding"). */
#ifndef PEN_KERNELS_BF16_H
#define PEN_KERNELS_BF16_H

#include <stdint.h>
#include <string.h>

/* The one NaN our kernels store, in each format. */
#define PEN_NAN_F32_BITS UINT32_C(0x7fc00000)
#define PEN_NAN_BF16_BITS ((uint16_t)0x7fc0)
#define PEN_NAN_F16_BITS ((uint16_t)0x7e00)

static inline uint32_t pen_f32_bits(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float pen_f32_from_bits(uint32_t bits)
{
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline float pen_bf16_to_f32(uint16_t half)
{
  return pen_f32_from_bits((uint32_t)half << 16);
}

/* Nearest, ties to even: activations, gradients, exported numbers. */
static inline uint16_t pen_bf16_from_f32(float x)
{
  uint32_t bits = pen_f32_bits(x);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return PEN_NAN_BF16_BITS;
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* Nearest, ties away from zero: master weight to weight, and nothing else. */
static inline uint16_t pen_bf16_from_f32_away(float x)
{
  uint32_t bits = pen_f32_bits(x);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return PEN_NAN_BF16_BITS;
  return (uint16_t)((bits + 0x8000) >> 16);
}

#endif
