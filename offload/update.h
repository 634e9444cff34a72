/* update.h: the optimizer driver: AdamW over one tile, by the update workers. */
#ifndef PEN_OFFLOAD_UPDATE_H
#define PEN_OFFLOAD_UPDATE_H

#include "base/pool.h"
#include "kernels/adamw.h"
#include "offload/layout.h"

/* One step over a tile: in place, or from an old state that stays. */
struct pen_update {
  enum pen_isa isa;
  const struct pen_adamw_params *params;
  const struct pen_workload *workload; /* its dtype and state format */
  const struct pen_tile *tile;
  void *state;      /* its arrays, of tile->elems */
  const void *grad; /* [tile->elems] in the run's dtype */
  void *weight;     /* the same; out, and where the format has a half that */
  void *copy;       /* the new halves go here too; NULL: nowhere */
  const void *old_state; /* what `state` is made from; NULL: it is there */
  const void *old_half;  /* the same of a half in `weight` */
  uint64_t seed, step; /* random rounding is a function of both */
};

/* Cut among workers by element number, each range decayed or not as its block
 * says.  Allocates nothing; the pool's one caller at a time. */
void pen_update_tile(struct pen_pool *pool, const struct pen_update *update);

/* The weights that a tile's step will make of the parts of rows that it holds, in
 * an array of the step's rows; `update`'s arrays and weights stay as they are. */
struct pen_update_ahead {
  const struct pen_update *update;
  const struct pen_step_rows *rows;
  bool applies; /* false: the weights there are */
  void *out;    /* [rows->n, rows->width] */
};
void pen_update_rows(struct pen_pool *pool, const struct pen_update_ahead *ahead);

#endif
