/* tiers.h: latency and bandwidth of each level of memory, from the first cache
 * to a drive, as one thread sees them. */
#ifndef PEN_SRC_BENCH_TIERS_H
#define PEN_SRC_BENCH_TIERS_H

#include "src/bench/bench.h"

#define PEN_BENCH_TIERS_MAX (4 + 1 + PEN_MACHINE_DRIVES_MAX)

struct pen_bench_tier {
  char name[PEN_MACHINE_PATH_BYTES]; /* "L1", "RAM", a drive's directory */
  uint64_t bytes;                    /* of the level; 0: not said */
  double latency_s;                  /* of one load that waits for the last */
  double least_s, most_s;            /* of n_runs */
  double read;                       /* bytes/s, one thread; 0: not known */
};

struct pen_bench_tiers {
  double cycle_s; /* of this core, at work */
  struct pen_bench_tier rows[PEN_BENCH_TIERS_MAX];
  size_t n_rows;
};

/* Caches as the kernel lists them and RAM are measured, on at most
 * options->bytes; drives are those of the profile. */
int pen_bench_tiers(const struct pen_bench_options *options,
                    const struct pen_machine *machine,
                    struct pen_bench_tiers *ret_tiers);

#endif
