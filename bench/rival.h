/* rival.h: product libraries alone, in each of the ways that they are used
 * without us: what our products are held against. */
#ifndef PEN_BENCH_RIVAL_H
#define PEN_BENCH_RIVAL_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/gemm.h"

/* One library in one way. */
struct pen_rival {
  const char *name;
  /* Makes what one product needs; its matrices are borrowed until done.  NULL:
   * this way cannot multiply that. */
  void *(*begin)(const struct pen_rival *rival, const struct pen_gemm *product,
                 size_t n_threads);
  void (*run)(void *job);
  void (*end)(void *job);
  bool panels;  /* threads of ours, a panel of rows and one thread of the
                   library each; else the library's own threads */
  int packing;  /* the library's own: what of it is told by its file */
};

/* NULL where the number is beyond the last. */
const struct pen_rival *pen_rival_onednn(size_t number);
const struct pen_rival *pen_rival_openblas(size_t number);

#endif
