/* traffic.h: transfers that go round in a file, a fixed number of them always in
 * flight, as a run's lanes keep a drive busy.
 *
 * A traffic belongs to the thread that opened it, and with it its file. */
#ifndef PEN_SRC_BENCH_TRAFFIC_H
#define PEN_SRC_BENCH_TRAFFIC_H

#include <signal.h>

#include "src/bench/file.h"

enum pen_bench_way {
  PEN_BENCH_READ,
  PEN_BENCH_WRITE,
  /* As an optimizer: a transfer reads in one half of the file, and when it has,
   * what it read is written into the other half; half of the transfers begin
   * with a write.  Bytes each way are equal, and how many of either are in
   * flight the drive decides.  The halves change places with every lap. */
  PEN_BENCH_UPDATE,
  PEN_BENCH_WAYS
};
/* "read", "written", "read and written" */
const char *pen_bench_way_name(enum pen_bench_way way);

struct pen_bench_traffic_options {
  enum pen_bench_way way;
  size_t request; /* bytes of a transfer, multiple of PEN_BENCH_GRAIN */
  size_t depth;   /* transfers in flight, both ways together */
  bool fresh;     /* WRITE: bytes that no page had before, which takes time */
  bool whole;     /* READ: every byte is compared, which takes time; the marks
                     of all pages always are */
  bool blind;     /* but not here: others write to the file too */
  const volatile sig_atomic_t *stop; /* NULL, or when set: -PEN_ESTOPPED */
};

struct pen_bench_traffic;

/* Takes buffers and a queue; nothing moves yet.  -PEN_EUSAGE: the file holds
 * fewer transfers than twice the depth (each half, for UPDATE). */
int pen_bench_traffic_open(struct pen_bench_file *file,
                           const struct pen_bench_traffic_options *options,
                           struct pen_bench_traffic **ret_traffic);
/* Waits for what is in flight; sets NULL. */
void pen_bench_traffic_close(struct pen_bench_traffic **traffic);

/* Moves at least `bytes`, both ways together, for at least `seconds`, and
 * returns with the full depth in flight, so that call after call measures a
 * drive in the middle of its work.  *ret_bytes is what was completed. */
int pen_bench_traffic_move(struct pen_bench_traffic *traffic, uint64_t bytes,
                           double seconds, uint64_t *ret_bytes,
                           double *ret_seconds);
/* Begins no more, waits for what is in flight, and makes it durable; how long
 * the last took. */
int pen_bench_traffic_sync(struct pen_bench_traffic *traffic,
                           double *ret_seconds);

/* Every page of the file once: written with new bytes, or read and compared. */
int pen_bench_traffic_fill(struct pen_bench_file *file,
                           const volatile sig_atomic_t *stop);
int pen_bench_traffic_verify(struct pen_bench_file *file,
                             const volatile sig_atomic_t *stop);

#endif
