/* state16.h: what the compact state formats have in common, sixteen elements at
 * a time: the AdamW step of kernels/ref/adamw.c, random bits, and the master
 * weight in two parts. */
#ifndef PEN_KERNELS_CPU_STATE16_H
#define PEN_KERNELS_CPU_STATE16_H

#include "kernels/cpu/rows.h"
#include "kernels/cpu/w16.h"

#define PEN_CPU_JOIN_(a, b) a##_##b
#define PEN_CPU_JOIN(a, b) PEN_CPU_JOIN_(a, b)
#define PEN_STATE_ROW(name) PEN_CPU_JOIN(name, PEN_CPU_ISA)

#define PEN_EXPONENT 0x7f800000u
#define PEN_MAGNITUDE 0x7fffffffu
#define PEN_LARGEST 0x7f7fffffu

/* Three numbers of sixteen elements. */
struct state16 {
  v16 p, m, v;
};

/* Every NaN as the one that kernels store. */
PEN_INLINE v16 state16_one_nan(v16 x)
{
  m16 is_nan;
  PEN_EACH_PART is_nan.p[i_] = x.p[i_] != x.p[i_];
  return v16_select(is_nan, v16_from_bits(w16_set1(0x7fc00000)), x);
}

/* Below the smallest normal it is 0. */
PEN_INLINE v16 state16_moment(v16 x)
{
  w16 bits = w16_bits(x);
  w16 tiny = w16_less1(w16_and1(bits, PEN_MAGNITUDE), 0x00800000);
  return state16_one_nan(v16_from_bits(w16_select(tiny, w16_set1(0), bits)));
}

/* 1, or the step's decay for those of elements i .. i + 15 that decay. */
PEN_INLINE v16 state16_decay(const struct pen_state_update *u, size_t i)
{
  float decay[16];
  if (i >= u->decay_begin && i + 16 <= u->decay_end)
    return v16_set1(u->params->decay);
  if (i >= u->decay_end || i + 16 <= u->decay_begin)
    return v16_set1(1);
  for (size_t l = 0; l < 16; l++)
    decay[l] = i + l >= u->decay_begin && i + l < u->decay_end
                   ? u->params->decay : 1;
  return v16_load(decay);
}

/* One step of elements i .. i + 15, operation by operation as for fp32. */
PEN_INLINE struct state16 state16_step(const struct pen_state_update *u,
                                       size_t i, struct state16 s)
{
  const struct pen_adamw_params *c = u->params;
  v16 grad = v16_load_bf16((const uint16_t *)u->grad + i);
  v16 g = v16_mul(v16_set1(c->factor), grad);
  v16 m = state16_moment(v16_add(
      s.m, v16_mul(v16_set1(c->one_minus_beta1), v16_sub(g, s.m))));
  v16 v = state16_moment(
      v16_add(v16_mul(v16_set1(c->beta2), s.v),
              v16_mul(v16_mul(v16_set1(c->one_minus_beta2), g), g)));
  v16 step = v16_mul(v16_set1(c->step_size),
                     v16_div(m, v16_add(v16_sqrt(v), v16_set1(c->eps))));
  v16 p = state16_one_nan(v16_sub(v16_mul(state16_decay(u, i), s.p),
                                  v16_add(step, v16_set1(0))));
  return (struct state16){p, m, v};
}

/* The upper half that rounding to nearest, ties away from zero, gives. */
PEN_INLINE w16 state16_half(w16 p)
{
  return w16_right1(w16_add1(p, 0x8000), 16);
}

/* A master weight again, from its half and its lower 16 bits. */
PEN_INLINE w16 state16_join(w16 half, w16 low)
{
  return w16_or(w16_left1(w16_sub(half, w16_right1(low, 15)), 16), low);
}

/* 32 random bits each for elements i .. i + 15: a function of the update's key
 * and the element's number in its block.  Two rounds of multiplication and
 * shifts with the constants of C. Wellons, "Hash Prospector" (2018), the key's
 * halves before and between them. */
PEN_INLINE w16 state16_random(const struct pen_state_update *u, size_t i)
{
  uint64_t number = u->first + i;
  uint32_t before = (uint32_t)u->key + (uint32_t)(number >> 32) * 0x85ebca6bu;
  w16 x = w16_add1(w16_mul1(w16_count((uint32_t)number), 0x9e3779b1u), before);
  x = w16_mul1(w16_xor(x, w16_right1(x, 16)), 0x21f0aaadu);
  x = w16_xor1(w16_xor(x, w16_right1(x, 15)), (uint32_t)(u->key >> 32));
  x = w16_mul1(x, 0x735a2d97u);
  return w16_xor(x, w16_right1(x, 15));
}

/* x with `add` added below the bits that stay: whether the last of these rises.
 * A finite number stays finite. */
PEN_INLINE w16 state16_raise(v16 x, w16 add)
{
  w16 bits = w16_bits(x), magnitude = w16_and1(bits, PEN_MAGNITUDE);
  w16 raised = w16_min1(w16_add(magnitude, add), PEN_LARGEST);
  w16 finite = w16_less1(magnitude, PEN_EXPONENT);
  return w16_or(w16_and1(bits, ~PEN_MAGNITUDE),
                w16_select(finite, raised, magnitude));
}

#endif
