/* gemm_choice.h: which product library a run takes: the one that is fastest at
 * the run's own products, by a trial of less than a second. */
#ifndef PEN_SRC_TRAIN_GEMM_CHOICE_H
#define PEN_SRC_TRAIN_GEMM_CHOICE_H

#include "base/pool.h"
#include "kernels/gemm.h"

#define PEN_GEMM_CHOICE_MAX 4

/* A layer's largest products: [tokens, hidden] by [hidden, ffn] and back. */
struct pen_gemm_trial {
  enum pen_elem elem;
  size_t tokens, hidden, ffn;
};

struct pen_gemm_choice {
  size_t n; /* libraries tried, best by default first; 0: no trial was made */
  const struct pen_gemm_library *libraries[PEN_GEMM_CHOICE_MAX];
  double rates[PEN_GEMM_CHOICE_MAX]; /* FLOP/s */
  const struct pen_gemm_library *chosen;
};

/* Another than the first is taken only if it is faster by this factor, so that
 * runs started side by side do not differ for noise. */
#define PEN_GEMM_CHOICE_MARGIN 1.25
/* Trials of smaller products than this say nothing, and are not made. */
#define PEN_GEMM_CHOICE_FLOP 1e8

/* The libraries that can be had here, the reference only where there is no
 * other.  Before threads are started. */
int pen_gemm_choice_open(enum pen_elem elem, struct pen_gemm_choice *ret_choice);

/* Which of these rates wins: an index.  Pure. */
size_t pen_gemm_choice_pick(const double *rates, size_t n);

/* Tries them on the pool that will multiply and sets `chosen`; without a trial
 * the first is. */
int pen_gemm_choice_make(const struct pen_gemm_trial *trial, enum pen_isa isa,
                         struct pen_pool *pool, struct pen_gemm_choice *choice);

#endif
