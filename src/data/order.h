/* order.h: which rows (sequences, or packed ones) a step trains, as a pure function of seed and step.
 *
 * Nothing is stored and nothing is drawn: the order of an epoch is a keyed
 * permutation evaluated at one index, so that a resumed run needs only the
 * number of its step. */
#ifndef PEN_SRC_DATA_ORDER_H
#define PEN_SRC_DATA_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pen_order {
  uint64_t seed;
  uint64_t n_sequences;     /* rows are 0 .. n_sequences-1; at least 1 */
  uint64_t batch_sequences; /* per micro-batch, at least 1 */
  uint64_t accumulation;    /* micro-batches per step, at least 1 */
  bool shuffle;             /* false: ids in file order (evaluation) */
};

/* One optimizer step.  The last step of an epoch has the micro-batches that
 * are left, and its last micro-batch the sequences that are left. */
struct pen_order_step {
  uint64_t epoch;          /* from 0 */
  uint64_t step_in_epoch;  /* from 0 */
  uint64_t first;          /* place in the epoch of the step's first sequence */
  uint64_t n_sequences;    /* of the step */
  uint64_t n_micro;        /* micro-batches of the step, 1 .. accumulation */
};

/* Refuses a zero in any count with -PEN_EUSAGE and the text. */
int pen_order_check(const struct pen_order *order);

/* Optimizer steps in an epoch: ceil(ceil(n / batch) / accumulation). */
uint64_t pen_order_epoch_steps(const struct pen_order *order);

/* The step with number `step` (from 0, over all epochs). */
void pen_order_step(const struct pen_order *order, uint64_t step,
                    struct pen_order_step *ret_step);

/* Writes the sequence ids of micro-batch `micro` (0 .. n_micro-1) of `step`
 * to ret_ids[batch_sequences]; returns how many there are (at least 1). */
size_t pen_order_micro(const struct pen_order *order,
                       const struct pen_order_step *step, uint64_t micro,
                       uint64_t *ret_ids);

/* Place `index` of the permutation of 0 .. n-1 that (seed, epoch) names;
 * index < n.  A bijection for every n: swap-or-not (Hoang, Morris, Rogaway
 * 2012), which needs no power of two and no memory. */
uint64_t pen_order_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t index);

#endif
