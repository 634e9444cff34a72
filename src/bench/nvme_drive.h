/* nvme_drive.h: one drive of `bench nvme`, for the files that measure it. */
#ifndef PEN_SRC_BENCH_NVME_DRIVE_H
#define PEN_SRC_BENCH_NVME_DRIVE_H

#include "src/bench/nvme.h"
#include "src/bench/traffic.h"

/* One drive and what was seen of it. */
struct pen_bench_drive {
  const struct pen_bench_options *o; /* borrowed */
  const volatile sig_atomic_t *stop;
  const char *dir;
  struct pen_bench_file file;
  struct pen_machine_drive found;
  double sync_s;    /* after many bytes; the largest seen */
  double sustained; /* bytes/s written; 0: not known */
};

/* What is measured: a way, and how. */
struct pen_bench_pattern {
  enum pen_bench_way way;
  size_t request, depth;
  double seconds; /* least length of a window */
};

/* seconds [n_runs]: of one byte, in each window. */
int pen_bench_drive_measure(struct pen_bench_drive *drive,
                            const struct pen_bench_pattern *pattern,
                            size_t n_runs, double *ret_seconds);
/* A run's own: transfers of a whole tile, or of what a small file holds. */
struct pen_bench_pattern pen_bench_pattern_of(const struct pen_bench_drive *drive,
                                              enum pen_bench_way way,
                                              uint64_t state_bytes);

/* A file in dir, filled, seen to lie on a drive, and read back.  After any
 * return closing drive->file is right. */
int pen_bench_drive_open(struct pen_bench_drive *drive,
                         const struct pen_bench_drives *drives, const char *dir);
/* Each adds its rows. */
int pen_bench_drive_rates(struct pen_bench_drive *drive,
                          const struct pen_bench_drives *drives,
                          struct pen_bench_table *table);
int pen_bench_drive_soak(struct pen_bench_drive *drive,
                         const struct pen_bench_drives *drives,
                         struct pen_bench_table *table);
/* nvme_sweep.c */
int pen_bench_drive_sweep(struct pen_bench_drive *drive,
                          const struct pen_bench_drives *drives,
                          struct pen_bench_table *table);
/* Reads the file again and looks at it again; then small writes, after which its
 * pages are not known any more; what goes into the profile is complete. */
int pen_bench_drive_finish(struct pen_bench_drive *drive,
                           struct pen_bench_table *table);

#endif
