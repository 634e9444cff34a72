/* cpu/state_split32.c: the master weight as the bf16 weight and the 16 bits
 * that its rounding left out; moments in fp32.
 *
 * Compiled once per instruction set.  Exact: the same bits as three arrays of
 * fp32.  Disadvantage: the weight is read before it is written. */
#include "kernels/cpu/state16.h"

struct split32 {
  uint16_t *low;
  float *m, *v;
};

static struct split32 arrays_of(void *const *arrays)
{
  return (struct split32){arrays[0], arrays[1], arrays[2]};
}

static void update(const struct pen_state_update *u, void *const *arrays)
{
  const struct state16_job c = state16_job_of(u);
  const struct split32 a = arrays_of(arrays);
  uint16_t *half = u->weight;
  for (size_t i = 0; i < u->part.n; i += 16) {
    struct state16 s = {v16_from_bits(w16_load_split(half + i, a.low + i)),
                        v16_load(a.m + i), v16_load(a.v + i)};
    s = state16_step(&c, i, s);
    w16_store_split(half + i, a.low + i, w16_bits(s.p));
    v16_store(a.m + i, s.m);
    v16_store(a.v + i, s.v);
  }
}

static void pack(size_t n, void *const *arrays, uint16_t *half, const float *p,
                 const float *m, const float *v)
{
  struct split32 a = arrays_of(arrays);
  for (size_t i = 0; i < n; i += 16) {
    w16_store_split(half + i, a.low + i, w16_bits(w16_one_nan(v16_load(p + i))));
    v16_store(a.m + i, v16_load(m + i));
    v16_store(a.v + i, v16_load(v + i));
  }
}

static void unpack(size_t n, void *const *arrays, const uint16_t *half,
                   float *p, float *m, float *v)
{
  struct split32 a = arrays_of(arrays);
  for (size_t i = 0; i < n; i += 16) {
    v16_store(p + i, v16_from_bits(w16_load_split(half + i, a.low + i)));
    v16_store(m + i, v16_load(a.m + i));
    v16_store(v + i, v16_load(a.v + i));
  }
}

const struct pen_state_row PEN_STATE_ROW(pen_state_split32) = {
    .update = update, .pack = pack, .unpack = unpack};
