/* cpu/state_bf16.c: the exact master weight of split32, moments in bf16 with
 * stochastic rounding.
 *
 * A moment moves by less than half a step of bf16 at most updates and would
 * stand still if it were rounded to nearest; rounded up with the probability
 * that its distance asks for, it moves as it should on average.  Compiled once
 * per instruction set.  Disadvantage: 7 bits of a moment are left. */
#include "kernels/cpu/state16.h"

struct bf16 {
  uint16_t *low, *m, *v;
};

static struct bf16 arrays_of(void *const *arrays)
{
  return (struct bf16){arrays[0], arrays[1], arrays[2]};
}

/* Up with probability (bits below) / 2^16, by 16 random bits; finite numbers
 * stay finite.  NaN has none of these bits. */
PEN_INLINE w16 round_random(v16 x, w16 random)
{
  return w16_right1(state16_raise(x, random), 16);
}

static void update(const struct pen_state_update *u, void *const *arrays)
{
  const struct state16_job c = state16_job_of(u);
  const struct bf16 a = arrays_of(arrays);
  uint16_t *half = u->weight;
  for (size_t i = 0; i < u->part.n; i += 16) {
    w16 low = w16_load_u16(a.low + i), random = state16_random(&c, i);
    struct state16 s = {
        v16_from_bits(state16_join(w16_load_u16(half + i), low)),
        w16_load_bf16(a.m + i), w16_load_bf16(a.v + i)};
    s = state16_step(&c, i, s);
    w16_store_u16(half + i, state16_half(w16_bits(s.p)));
    w16_store_u16(a.low + i, w16_and1(w16_bits(s.p), 0xffff));
    w16_store_u16(a.m + i, round_random(s.m, w16_right1(random, 16)));
    w16_store_u16(a.v + i, round_random(s.v, w16_and1(random, 0xffff)));
  }
}

static void pack(size_t n, void *const *arrays, uint16_t *half, const float *p,
                 const float *m, const float *v)
{
  struct bf16 a = arrays_of(arrays);
  for (size_t i = 0; i < n; i += 16) {
    w16 bits = w16_bits(state16_one_nan(v16_load(p + i)));
    w16_store_u16(half + i, state16_half(bits));
    w16_store_u16(a.low + i, w16_and1(bits, 0xffff));
    v16_store_bf16(a.m + i, v16_load(m + i));
    v16_store_bf16(a.v + i, v16_load(v + i));
  }
}

static void unpack(size_t n, void *const *arrays, const uint16_t *half,
                   float *p, float *m, float *v)
{
  struct bf16 a = arrays_of(arrays);
  for (size_t i = 0; i < n; i += 16) {
    w16 bits = state16_join(w16_load_u16(half + i), w16_load_u16(a.low + i));
    v16_store(p + i, v16_from_bits(bits));
    v16_store(m + i, w16_load_bf16(a.m + i));
    v16_store(v + i, w16_load_bf16(a.v + i));
  }
}

const struct pen_state_row PEN_STATE_ROW(pen_state_bf16) = {
    .update = update, .pack = pack, .unpack = unpack};
