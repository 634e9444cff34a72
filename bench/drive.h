/* drive.h: what a drive gives to plain threads: direct pread and pwrite of
 * requests as large as a tile, none of our engines. */
#ifndef PEN_BENCH_DRIVE_H
#define PEN_BENCH_DRIVE_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

enum pen_drive_kind {
  PEN_DRIVE_READ,
  PEN_DRIVE_WRITE, /* and fdatasync */
  PEN_DRIVE_MIXED, /* one half read, the other written, in turn; fdatasync */
  PEN_DRIVE_KINDS,
};

struct pen_drive {
  char path[PATH_MAX]; /* of a file of its own, removed at the end */
  int fd;
  size_t request; /* bytes, multiple of 4096 */
  size_t n;       /* requests in the file, even */
  size_t n_threads;
  unsigned char *buffers; /* [n_threads, request] */
};

/* Makes the file, every block of it written with bytes that cannot be
 * compressed.  Ends the program with the reason where that cannot be: no
 * directory, no room, no direct I/O. */
void pen_drive_init(struct pen_drive *ret_drive, const char *dir,
                    size_t request, uint64_t bytes, size_t n_threads);
void pen_drive_done(struct pen_drive *drive);

/* Bytes per second of one pass over the file; of both directions together. */
double pen_drive_run(struct pen_drive *drive, enum pen_drive_kind kind);
const char *pen_drive_kind_name(enum pen_drive_kind kind);

#endif
