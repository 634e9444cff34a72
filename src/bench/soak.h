/* soak.h: writes to a drive until its rate changes, and finds out what it can
 * do for long: how much its fast cache takes, what comes after, whether heat or
 * the cache's end was the reason, and how fast the cache comes back. */
#ifndef PEN_SRC_BENCH_SOAK_H
#define PEN_SRC_BENCH_SOAK_H

#include <signal.h>

#include "src/bench/bench.h"
#include "src/bench/disk.h"
#include "src/bench/file.h"
#include "src/bench/plateau.h"

struct pen_bench_soak_options {
  size_t request, depth;
  uint64_t most_bytes;  /* that are written, recovery included */
  double window_s;      /* one rate is of so long, at first */
  double settle_s;      /* that a lower rate must last to be the last one */
  double idle_s;        /* before the cache is tried again; 0: it is not */
  const struct pen_disk *disk; /* for its heat; NULL: not known */
  const volatile sig_atomic_t *stop; /* or NULL; ends it early, with a result */
};

enum pen_bench_why {
  PEN_BENCH_WHY_FASTER,  /* it became faster */
  PEN_BENCH_WHY_CACHE,
  PEN_BENCH_WHY_HEAT,
  PEN_BENCH_WHY_UNKNOWN, /* cache or heat: no sensor is shown */
};

struct pen_bench_soak_level {
  uint64_t from_bytes, bytes; /* written before it, and in it */
  double seconds, rate;       /* rate: the median of its windows */
  double celsius;             /* at its end; NAN: not known */
  enum pen_bench_why why;     /* it began; not of the first */
};

struct pen_bench_soak {
  struct pen_bench_soak_level levels[PEN_PLATEAUS_MAX];
  size_t n_levels;
  uint64_t written_bytes;
  bool dropped; /* only then: */
  uint64_t cache_bytes;    /* written before the first drop */
  double burst, sustained; /* before it; and all that came after it, bytes/s */
  bool idled;   /* only then: */
  uint64_t recovered_bytes; /* written as fast as at first after idle_s */
  bool stopped; /* by `stop` */
};

/* Why a rate fell, by the drive's heat when it did. */
enum pen_bench_why pen_bench_why_of(const struct pen_disk_heat *heat);

/* Round and round in the file, which has been written before. */
int pen_bench_soak(struct pen_bench_file *file,
                   const struct pen_bench_soak_options *options,
                   struct pen_bench_soak *ret_soak);

/* soak_rows.c: as rows and notes. */
void pen_bench_soak_rows(const struct pen_bench_soak *soak,
                         const struct pen_bench_soak_options *options,
                         const char *dir, struct pen_bench_table *table);

#endif
