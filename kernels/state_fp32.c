/* state_fp32.c: state as three arrays of fp32: master weights and both moments.
 *
 * One row for every instruction set: the kernels of adamw.h choose their own.
 * Any thread.  Disadvantage: 12 bytes a parameter, and the weights besides. */
#include <string.h>

#include "kernels/cpu/rows.h"

/* Elements [begin, end) of the range, all decayed or all not. */
static void update_some(const struct pen_state_update *u, void *const *arrays,
                        bool decays, size_t begin, size_t end)
{
  size_t n = end - begin, elem_bytes = pen_elem_bytes(u->elem);
  float *p = (float *)arrays[0] + begin, *m = (float *)arrays[1] + begin;
  float *v = (float *)arrays[2] + begin;
  const void *grad = (const char *)u->grad + begin * elem_bytes;
  void *weight = (char *)u->weight + begin * elem_bytes;
  if (n == 0)
    return;
  if (u->elem == PEN_ELEM_BF16)
    pen_adamw_update_bf16(u->isa, u->params, decays, n, p, m, v, grad, weight);
  else
    pen_adamw_update_f32(u->isa, u->params, decays, n, p, m, v, grad, weight);
}

static void update(const struct pen_state_update *u, void *const *arrays)
{
  update_some(u, arrays, false, 0, u->decay_begin);
  update_some(u, arrays, true, u->decay_begin, u->decay_end);
  update_some(u, arrays, false, u->decay_end, u->part.n);
}

static void pack(size_t n, void *const *arrays, uint16_t *half, const float *p,
                 const float *m, const float *v)
{
  (void)half;
  memcpy(arrays[0], p, n * sizeof *p);
  memcpy(arrays[1], m, n * sizeof *m);
  memcpy(arrays[2], v, n * sizeof *v);
}

static void unpack(size_t n, void *const *arrays, const uint16_t *half,
                   float *p, float *m, float *v)
{
  (void)half;
  memcpy(p, arrays[0], n * sizeof *p);
  memcpy(m, arrays[1], n * sizeof *m);
  memcpy(v, arrays[2], n * sizeof *v);
}

const struct pen_state_row pen_state_fp32_row = {
    .update = update, .pack = pack, .unpack = unpack};
