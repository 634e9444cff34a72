/* update.h: the optimizer driver: AdamW over one tile, by the update workers. */
#ifndef PEN_OFFLOAD_UPDATE_H
#define PEN_OFFLOAD_UPDATE_H

#include "base/pool.h"
#include "kernels/adamw.h"
#include "offload/layout.h"

/* One step over `tile`: state p, m, v [elems] one after the other, in place;
 * grad and weight [elems] in the run's dtype (2 or 4 bytes an element).  Cut
 * among workers by element number, each range decayed or not as its block says.
 * Allocates nothing; the pool's one caller at a time. */
void pen_update_tile(struct pen_pool *pool, enum pen_isa isa,
                     const struct pen_adamw_params *params,
                     const struct pen_block *block,
                     const struct pen_tile *tile, size_t elem_bytes,
                     float *state, const void *grad, void *weight);

#endif
