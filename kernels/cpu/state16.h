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

#define PEN_MAGNITUDE 0x7fffffffu
#define PEN_LARGEST 0x7f7fffffu

/* Three numbers of sixteen elements. */
struct state16 {
  v16 p, m, v;
};

/* An update's constants, taken out of memory once: what is stored might else have
 * changed them. */
struct state16_job {
  v16 factor, one_minus_beta1, beta2, one_minus_beta2, step_size, eps, decay;
  size_t decay_begin, decay_end;
  const uint16_t *grad;
  uint64_t key, first;
  float decay1;
  w16 multiples; /* of the first multiplier: 0, 1, .. 15 times */
};

PEN_INLINE struct state16_job state16_job_of(const struct pen_state_update *u)
{
  const struct pen_adamw_params *c = u->params;
  return (struct state16_job){
      .factor = v16_set1(c->factor),
      .one_minus_beta1 = v16_set1(c->one_minus_beta1),
      .beta2 = v16_set1(c->beta2),
      .one_minus_beta2 = v16_set1(c->one_minus_beta2),
      .step_size = v16_set1(c->step_size),
      .eps = v16_set1(c->eps),
      .decay = v16_set1(c->decay),
      .decay_begin = u->decay_begin,
      .decay_end = u->decay_end,
      .grad = u->grad,
      .key = u->key,
      .first = u->first,
      .decay1 = c->decay,
      .multiples = w16_mul1(w16_count(0), 0x9e3779b1u)};
}

/* Of elements i .. i + 15, where decay begins or ends among them: seldom. */
static __attribute__((noinline)) v16 state16_some_decay(size_t i, size_t begin, size_t end,
                                     float decay)
{
  float x[16];
  for (size_t l = 0; l < 16; l++)
    x[l] = i + l >= begin && i + l < end ? decay : 1;
  return v16_load(x);
}

/* 1, or the step's decay for those of elements i .. i + 15 that decay. */
PEN_INLINE v16 state16_decay(const struct state16_job *c, size_t i)
{
  if (i >= c->decay_begin && i + 16 <= c->decay_end)
    return c->decay;
  if (i >= c->decay_end || i + 16 <= c->decay_begin)
    return v16_set1(1);
  return state16_some_decay(i, c->decay_begin, c->decay_end, c->decay1);
}

/* One step of elements i .. i + 15, operation by operation as for fp32. */
PEN_INLINE struct state16 state16_step(const struct state16_job *c, size_t i,
                                       struct state16 s)
{
  v16 g = v16_mul(c->factor, w16_load_bf16(c->grad + i));
  v16 m = w16_one_nan_no_denormal(
      v16_add(s.m, v16_mul(c->one_minus_beta1, v16_sub(g, s.m))));
  v16 v = w16_one_nan_no_denormal(v16_add(
      v16_mul(c->beta2, s.v), v16_mul(v16_mul(c->one_minus_beta2, g), g)));
  v16 step =
      v16_mul(c->step_size, v16_div(m, v16_add(v16_sqrt(v), c->eps)));
  v16 p = w16_one_nan(v16_sub(v16_mul(state16_decay(c, i), s.p),
                                  v16_add(step, v16_set1(0))));
  return (struct state16){p, m, v};
}

/* The upper half that rounding to nearest, ties away from zero, gives. */
PEN_INLINE w16 state16_half(w16 p)
{
  return w16_right1(w16_add1(p, 0x8000), 16);
}

/* 32 random bits each for elements i .. i + 15: a function of the update's key
 * and the element's number in its block.  Two rounds of multiplication and
 * shifts with the constants of C. Wellons, "Hash Prospector" (2018), the key's
 * halves before and between them. */
PEN_INLINE w16 state16_random(const struct state16_job *c, size_t i)
{
  uint64_t number = c->first + i;
  uint32_t begin = (uint32_t)number * 0x9e3779b1u + (uint32_t)c->key +
                   (uint32_t)(number >> 32) * 0x85ebca6bu;
  w16 x = w16_add1(c->multiples, begin);
  x = w16_mul1(w16_xor(x, w16_right1(x, 16)), 0x21f0aaadu);
  x = w16_xor1(w16_xor(x, w16_right1(x, 15)), (uint32_t)(c->key >> 32));
  x = w16_mul1(x, 0x735a2d97u);
  return w16_xor(x, w16_right1(x, 15));
}

/* Has a finite number become none, or was it none? */
#define STATE16_NONE(bits) w16_any(bits, 0x7f800000, 0x7f800000)

/* x with `add` added below the bits that stay: whether the last of these rises.
 * A finite number stays finite, and what is not stays what it is. */
PEN_INLINE w16 state16_raise(v16 x, w16 add)
{
  w16 bits = w16_bits(x), sum = w16_add(bits, add);
  if (__builtin_expect(!STATE16_NONE(sum), 1))
    return sum;
  w16 magnitude = w16_and1(bits, PEN_MAGNITUDE);
  w16 raised = w16_min(w16_add(magnitude, add), w16_set1(PEN_LARGEST));
  return w16_or(w16_and1(bits, ~PEN_MAGNITUDE), w16_max(raised, magnitude));
}

#endif
