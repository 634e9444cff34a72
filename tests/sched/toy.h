/* toy.h: a workload small enough to run thousands of times, whose every byte
 * depends on every other: whatever a schedule mixes up shows in the result.
 * Not a model: no gradient here is anyone's derivative. */
#ifndef PEN_TESTS_SCHED_TOY_H
#define PEN_TESTS_SCHED_TOY_H

#include "offload/workload.h"

#define TOY_MICROS_MAX 5
#define TOY_BLOCKS_MAX 16
#define TOY_TOKENS 16
#define TOY_ACT (TOY_TOKENS * 64) /* elements of an activation */

/* Where the rows lie, and whether there are experts. */
enum toy_kind {
  TOY_UNTIED,
  TOY_TIED, /* the rows are the head's blocks */
  TOY_EXPERTS, /* untied; the first and the third body block have some */
  TOY_TIED_EXPERTS,
  TOY_KINDS
};

struct toy {
  struct pen_workload workload;
  struct pen_compute compute;
  struct pen_block blocks[TOY_BLOCKS_MAX];
  struct pen_block_range ranges[TOY_BLOCKS_MAX][2];
  float tables[16];
  uint32_t seed; /* of the step's batch */
  size_t poisoned_block; /* its gradient gets a NaN; SIZE_MAX: none */
  size_t first_router;   /* the first block with experts */
  size_t expert_calls[TOY_BLOCKS_MAX]; /* of expert and expert_backward */
};

void toy_init(struct toy *toy, enum toy_kind kind, size_t n_micros_max);

/* Gives two body blocks experts, from block n_blocks on; the number after. */
size_t toy_add_experts(struct toy *toy, size_t n_blocks);

/* The value of element e of block b before the first step. */
float toy_initial(size_t block, size_t elem);

#endif
