/* link.h: a device's link: pinned and pageable memory, each way and both. */
#ifndef PEN_SRC_BENCH_LINK_H
#define PEN_SRC_BENCH_LINK_H

#include "kernels/device.h"
#include "src/bench/bench.h"

struct pen_bench_link {
  const struct pen_device *device;
  char *arena, *host, *pageable; /* [bytes] each; host is pinned */
  size_t bytes;                  /* two halves: one a way */
};

/* Pinned memory, as a run's is: what the profile gets.  Adds its rows. */
int pen_bench_link_pinned(const struct pen_bench_options *options,
                          const struct pen_bench_link *link,
                          struct pen_bench_table *table,
                          struct pen_machine *machine);
/* Pageable memory, beside the rates of pinned memory that machine has; and
 * small copies. */
int pen_bench_link_pageable(const struct pen_bench_options *options,
                            const struct pen_bench_link *link,
                            struct pen_bench_table *table,
                            const struct pen_machine *machine);

#endif
