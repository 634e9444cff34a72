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

static void update(const struct pen_state_update *u, void *const *arrays)
{
  const struct state16_job c = state16_job_of(u);
  const struct bf16 a = arrays_of(arrays);
  uint16_t *half = u->weight;
  for (size_t i = 0; i < u->part.n; i += 16) {
    w16 random = state16_random(&c, i);
    struct state16 s = {v16_from_bits(w16_load_split(half + i, a.low + i)),
                        w16_load_bf16(a.m + i), w16_load_bf16(a.v + i)};
    s = state16_step(&c, i, s);
    w16_store_split(half + i, a.low + i, w16_bits(s.p));
    /* Up with probability (bits below) / 2^16; NaN has none of these bits. */
    w16_store_uppers(a.m + i, a.v + i,
                     state16_raise(s.m, w16_right1(random, 16)),
                     state16_raise(s.v, w16_and1(random, 0xffff)));
  }
}

static void pack(size_t n, void *const *arrays, uint16_t *half, const float *p,
                 const float *m, const float *v)
{
  struct bf16 a = arrays_of(arrays);
  for (size_t i = 0; i < n; i += 16) {
    w16_store_split(half + i, a.low + i, w16_bits(w16_one_nan(v16_load(p + i))));
    v16_store_bf16(a.m + i, v16_load(m + i));
    v16_store_bf16(a.v + i, v16_load(v + i));
  }
}

static void unpack(size_t n, void *const *arrays, const uint16_t *half,
                   float *p, float *m, float *v)
{
  struct bf16 a = arrays_of(arrays);
  for (size_t i = 0; i < n; i += 16) {
    v16_store(p + i, v16_from_bits(w16_load_split(half + i, a.low + i)));
    v16_store(m + i, w16_load_bf16(a.m + i));
    v16_store(v + i, w16_load_bf16(a.v + i));
  }
}

const struct pen_state_row PEN_STATE_ROW(pen_state_bf16) = {
    .update = update, .pack = pack, .unpack = unpack};
