/* state_fp32.c: state as three arrays of fp32: master weights and both moments.
 *
 * Any thread.  Disadvantage: 12 bytes a parameter, and the weights besides. */
#include <string.h>

#include "kernels/state.h"

enum { P, M, V };

/* Elements [begin, end) of the range, all decayed or all not. */
static void update_some(enum pen_isa isa, const struct pen_state_update *u,
                        bool decays, size_t begin, size_t end)
{
  struct pen_state_part part = u->part;
  size_t n = end - begin, elem_bytes = pen_elem_bytes(u->elem);
  part.begin += begin;
  if (n == 0)
    return;
  float *p = (float *)part.arrays + part.begin, *m = p + part.elems;
  float *v = m + part.elems;
  const void *grad = (const char *)u->grad + begin * elem_bytes;
  void *weight = (char *)u->weight + begin * elem_bytes;
  if (u->elem == PEN_ELEM_BF16)
    pen_adamw_update_bf16(isa, u->params, decays, n, p, m, v, grad, weight);
  else
    pen_adamw_update_f32(isa, u->params, decays, n, p, m, v, grad, weight);
}

static void update(enum pen_isa isa, const struct pen_state_update *u)
{
  update_some(isa, u, false, 0, u->decay_begin);
  update_some(isa, u, true, u->decay_begin, u->decay_end);
  update_some(isa, u, false, u->decay_end, u->part.n);
}

static void pack(enum pen_isa isa, const struct pen_state_part *part,
                 const float *p, const float *m, const float *v)
{
  const float *from[] = {p, m, v};
  (void)isa;
  for (size_t i = P; i <= V; i++)
    memcpy(pen_state_at(&pen_state_fp32, part, i), from[i],
           part->n * sizeof(float));
}

static void unpack(enum pen_isa isa, const struct pen_state_part *part,
                   float *p, float *m, float *v)
{
  float *to[] = {p, m, v};
  (void)isa;
  for (size_t i = P; i <= V; i++)
    memcpy(to[i], pen_state_at(&pen_state_fp32, part, i),
           part->n * sizeof(float));
}

#define GROUP_F32 (PEN_STATE_GROUP_ELEMS * sizeof(float))

const struct pen_state_format pen_state_fp32 = {
  .name = "fp32",
  .exact = true,
  .is_plain = true,
  .n_arrays = 3,
  .arrays = {{"p", GROUP_F32}, {"m", GROUP_F32}, {"v", GROUP_F32}},
  .update = update,
  .pack = pack,
  .unpack = unpack,
};
