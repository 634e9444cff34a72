/* file.h: a file of our own to measure a drive on: what lies in every page of it
 * is known, and it is gone when the process is, however it ends.
 *
 * Whoever opened it uses it; two files may be used by two threads. */
#ifndef PEN_SRC_BENCH_FILE_H
#define PEN_SRC_BENCH_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/engine.h"

#define PEN_BENCH_PAGE ((size_t)PEN_ENGINE_ALIGN)
#define PEN_BENCH_GRAIN ((size_t)65536) /* of requests: they are multiples */
#define PEN_BENCH_FILL_BYTES ((size_t)1 << 20) /* of files: they are multiples */

struct pen_bench_file {
  const struct pen_engine *engine;
  struct pen_engine_file *file;
  char dir[PATH_MAX], path[PATH_MAX];
  bool named;      /* until its name is gone */
  int fd;          /* our second look at it; -1: no file of the system's */
  uint64_t bytes;  /* a multiple of PEN_BENCH_FILL_BYTES */
  uint64_t *serial; /* [bytes / grain] of the write that filled it; 0: none */
  uint64_t n_writes, n_seeds, written_bytes;
};

/* Makes a file of `bytes` (rounded down) in dir, backed by space, and
 * takes its name away at once.  -PEN_EUNSUPPORTED: nothing of a drive can be
 * seen there (pen_bench_judge); -PEN_ENOFIT: it would take more than nine tenths
 * of what is free.  After any return pen_bench_file_close is right. */
int pen_bench_file_open(const struct pen_engine *engine, const char *dir,
                        uint64_t bytes, struct pen_bench_file *ret_file);
void pen_bench_file_close(struct pen_bench_file *file);

/* Fills the pages [bytes] that a buffer is made of with bytes that no page had
 * before and that cannot be compressed. */
void pen_bench_file_fill(struct pen_bench_file *file, void *buffer,
                         size_t bytes);
/* Marks the buffer's pages as what is now written at `offset`. */
void pen_bench_file_stamp(struct pen_bench_file *file, void *buffer,
                          size_t bytes, uint64_t offset);
/* -PEN_ECORRUPT unless the buffer holds what was last written at `offset`: by
 * the mark of every page or, `whole`, by every byte. */
int pen_bench_file_check(const struct pen_bench_file *file, const void *buffer,
                         size_t bytes, uint64_t offset, bool whole);

/* What speaks for or against a figure being a drive's. */
struct pen_bench_evidence {
  const char *note; /* the engine's remark on the file system; "": none */
  bool direct;
  uint64_t bytes, allocated_bytes;
  uint64_t pages, resident_pages; /* of the page cache */
  bool compressed; /* by the file system, or might be */
  bool unwritten;  /* parts of it lie nowhere on the drive yet */
};

/* -PEN_EUNSUPPORTED with the reason if this is no drive: buffered, cached,
 * sparse, compressed, in memory or elsewhere. */
int pen_bench_judge(const char *dir, const struct pen_bench_evidence *evidence);
/* Looks at the file, which has been written all over, and judges. */
int pen_bench_file_look(struct pen_bench_file *file);

#endif
