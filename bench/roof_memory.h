/* roof_memory.h: the memory bandwidth that this machine gives, measured, for
 * benches to hold their own against. */
#ifndef PEN_BENCH_ROOF_MEMORY_H
#define PEN_BENCH_ROOF_MEMORY_H

#include <stddef.h>

#include "base/pool.h"

/* Elements that one item of the pool works on. */
#define ROOF_RANGE_ELEMS ((size_t)1 << 18)

/* One pass of a[i], b[i], c[i] *= factor, in place, over n fp32 elements each,
 * all workers of the pool: 24 bytes of traffic an element, and the access
 * pattern nearest to an optimizer's that does no more.  Returns seconds. */
double roof_memory_update(struct pen_pool *pool, size_t n, float *a, float *b,
                          float *c);

#endif
