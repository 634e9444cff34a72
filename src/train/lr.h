/* lr.h: the learning rate as a pure function of the optimizer step. */
#ifndef PEN_SRC_TRAIN_LR_H
#define PEN_SRC_TRAIN_LR_H

#include <stdint.h>

/* Shapes are those of transformers' get_scheduler:
 *   constant  peak
 *   linear    peak to min at n_steps, a straight line
 *   cosine    min + (peak - min) (1 + cos(pi progress)) / 2
 *   wsd       peak, then over the last decay_steps as cosine to min
 * each after a linear rise from 0 over warmup_steps. */
enum pen_lr_shape {
  PEN_LR_CONSTANT,
  PEN_LR_LINEAR,
  PEN_LR_COSINE,
  PEN_LR_WSD,
};

struct pen_lr {
  enum pen_lr_shape shape;
  double peak, min;
  uint64_t n_steps, warmup_steps, decay_steps;
};

/* Checks and resolves: `warmup` and `decay` below 1 are shares of n_steps,
 * rounded up; from 1 on they are whole numbers of steps.  decay counts for wsd
 * only.  -PEN_EUSAGE, naming the option, for fractions of steps, and for wsd
 * whose warmup and decay together are longer than the run. */
int pen_lr_init(enum pen_lr_shape shape, double peak, double min,
                uint64_t n_steps, double warmup, double decay,
                struct pen_lr *ret_lr);

/* The rate of optimizer step `step`, counted from 0: the first step of a
 * warmup has rate 0.  Depends on nothing else: not on micro-batches, time or
 * whether the run was resumed.  From n_steps on it stays at its end. */
double pen_lr_at(const struct pen_lr *lr, uint64_t step);

#endif
