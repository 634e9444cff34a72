/* roof_memory.c: in-place passes over three arrays, as plain as can be; the
 * compiler's own vectors reach the bandwidth.
 * Disadvantage: one pattern only (as many bytes written as read). */
#include "bench/roof_memory.h"

#include "base/clock.h"

struct pass {
  size_t n;
  float *a, *b, *c;
};

static void update_range(void *ctx, size_t item, size_t worker)
{
  const struct pass *pass = ctx;
  const float factor = 0.999f;
  size_t begin = item * ROOF_RANGE_ELEMS;
  size_t end = begin + ROOF_RANGE_ELEMS < pass->n ? begin + ROOF_RANGE_ELEMS
                                                  : pass->n;
  float *restrict a = pass->a, *restrict b = pass->b, *restrict c = pass->c;
  for (size_t i = begin; i < end; i++) {
    a[i] *= factor;
    b[i] *= factor;
    c[i] *= factor;
  }
}

double roof_memory_update(struct pen_pool *pool, size_t n, float *a, float *b,
                          float *c)
{
  struct pass pass = {n, a, b, c};
  size_t items = (n + ROOF_RANGE_ELEMS - 1) / ROOF_RANGE_ELEMS;
  uint64_t begin = pen_clock_ns();
  pen_pool_run(pool, items, update_range, &pass);
  return (double)(pen_clock_ns() - begin) * 1e-9;
}
