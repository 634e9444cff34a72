/* toy.h: a workload small enough to run thousands of times, whose every byte
 * depends on every other: whatever a schedule mixes up shows in the result.
 * Not a model: no gradient here is anyone's derivative. */
#ifndef PEN_TESTS_SCHED_TOY_H
#define PEN_TESTS_SCHED_TOY_H

#include "offload/workload.h"

#define TOY_MICROS_MAX 5
#define TOY_BLOCKS_MAX 12

struct toy {
  struct pen_workload workload;
  struct pen_compute compute;
  struct pen_block blocks[TOY_BLOCKS_MAX];
  struct pen_block_range ranges[TOY_BLOCKS_MAX][2];
  float tables[16];
  uint32_t seed; /* of the step's batch */
  size_t poisoned_block; /* its gradient gets a NaN; SIZE_MAX: none */
};

/* tied: the rows are the head's blocks. */
void toy_init(struct toy *toy, bool tied, size_t n_micros_max);

/* The value of element e of block b before the first step. */
float toy_initial(size_t block, size_t elem);

#endif
