/* table.h: the CUDA kernels as a table of operations, so that tests which know
 * kernels/ops.h can run them; and the orders of threads they run in. */
#ifndef PEN_TESTS_GPU_TABLE_H
#define PEN_TESTS_GPU_TABLE_H

#include "kernels/ops.h"

/* Operations of kernels/cuda/launch.h on the null stream.  A launch that fails
 * fails the test.  One precision at a time: valid until the next call. */
const struct pen_ops *table_of(enum pen_elem elem);

/* Calls run(ctx) with threads in order, reversed and in two random orders (of
 * PEN_SEED), or once where races are looked for; fails if one was found.  The name of the order is printed if
 * the test fails. */
void table_each_order(void (*run)(void *ctx), void *ctx);

#endif
