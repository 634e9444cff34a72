/* nvme.h: what drives do in a run's own pattern, alone and together. */
#ifndef PEN_SRC_BENCH_NVME_H
#define PEN_SRC_BENCH_NVME_H

#include <signal.h>

#include "io/engine.h"
#include "src/bench/bench.h"

/* Elements of a tile, and transfers in flight of each I/O lane, as a run has
 * them unless it is told otherwise. */
#define PEN_BENCH_TILE_ELEMS ((size_t)1 << 20)
#define PEN_BENCH_LANE_DEPTH 4

struct pen_bench_drives {
  const char *const *dirs; /* [n_dirs] */
  size_t n_dirs;           /* 1 .. PEN_MACHINE_DRIVES_MAX */
  const struct pen_engine *engine;
  /* What is swept, an update of every size with every depth; 0: nothing. */
  uint64_t requests[PEN_BENCH_LIST_MAX], depths[PEN_BENCH_LIST_MAX];
  size_t n_requests, n_depths;
  /* Bytes of state an element, each an update of tiles of that many bytes; the
   * first is the profile's. */
  uint64_t state_bytes[PEN_BENCH_LIST_MAX];
  size_t n_state_bytes;
  /* Writes until the rate changes (soak.h) before all else; what is sustained
   * bounds what the profile says. */
  bool soak;
  uint64_t soak_bytes; /* at most; 0: three times the file */
  double idle_s;
  const volatile sig_atomic_t *stop; /* or NULL */
};

/* Measures each directory's drive by direct I/O on a file of its own of at most
 * options->bytes, then all of them together.  Takes or replaces the profile's
 * drives of these paths.  -PEN_EUNSUPPORTED where what would be measured is no
 * drive (pen_bench_judge); -PEN_ECORRUPT where what is read is not what was
 * written. */
int pen_bench_nvme(const struct pen_bench_options *options,
                   const struct pen_bench_drives *drives,
                   struct pen_bench_table *table, struct pen_machine *machine);

#endif
