/* fake.h: a CUDA runtime without a device, for tests: streams are threads, device
 * memory is host memory that host threads may not touch, and the promises of
 * CUDA are kept, no more of them than it makes.
 *
 * The same plugin .c files are linked with it, or with CUDA.  What it shall do is
 * said by PEN_FAKE_... variables, read at the first call, or by fake_settings().
 * It ends the program with a message where CUDA's behaviour would be undefined or
 * slow in a way that a step must not be (`strict`). */
#ifndef PEN_TESTS_GPU_FAKE_FAKE_H
#define PEN_TESTS_GPU_FAKE_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAKE_STREAMS 3 /* numbered in the order of their making */

struct fake_settings {
  int devices;            /* PEN_FAKE_DEVICES */
  int driver;             /* PEN_FAKE_DRIVER: version; 0: none */
  int capability;         /* PEN_FAKE_CAPABILITY: 90 is 9.0 */
  uint64_t memory_bytes;  /* PEN_FAKE_MEMORY: of the device */
  uint64_t pin_bytes;     /* PEN_FAKE_PIN: most host memory that is pinned */
  uint64_t pin_piece;     /* most of it that one call pins */
  uint64_t oom;           /* PEN_FAKE_OOM: this allocation fails, from 1; 0: none */
  uint64_t fault;         /* PEN_FAKE_FAULT: this launch breaks the device */
  uint64_t jitter;        /* PEN_FAKE_JITTER: seed of random delays; 0: none */
  uint64_t bus;           /* PEN_FAKE_BUS: bytes per second of a copy; 0: any */
  int algorithm; /* PEN_FAKE_ALGORITHM: of products, thought the fastest */
  int without;   /* PEN_FAKE_WITHOUT: not offered; -1: all are */
  bool epilogues; /* PEN_FAKE_EPILOGUES: products add a bias; 0: they refuse */
  bool strict;            /* PEN_FAKE_STRICT: pageable copies end the program */
  /* Waits that are left out, for tests: PEN_FAKE_DROP_WAIT=ij, of stream i for
   * what was recorded in j; PEN_FAKE_DROP_SYNC=j, of the host for stream j. */
  int drop_waiter, drop_waited, drop_sync; /* -1: none */
};

struct fake_counts {
  uint64_t allocations, launches, copies, pageable_copies, dropped;
};

struct fake_settings *fake_settings(void);
struct fake_counts *fake_counts(void);

struct CUstream_st;

/* Puts run(record) into a stream, as a kernel launch is; or a cudaError_t, and
 * the record stays the caller's. */
int fake_launch(struct CUstream_st *stream, void (*run)(void *record),
                void *record);

/* ---- among the fake's own files ---- */

/* One more allocation: a cudaError_t. */
int fake_count_allocation(void);
/* Is [at, at + bytes) inside one allocation of the device? */
bool fake_is_device(const void *at, size_t bytes);
/* Of host memory: 1 wholly inside one pinned piece, 0 outside of all, -1 partly
 * inside. */
int fake_is_pinned(const void *at, size_t bytes);
/* Lets the calling thread touch device memory. */
void fake_allow_device_memory(void);
/* Waits for all streams. */
void fake_drain(void);
/* 0, or the error that broke the device, which every call gives from then on. */
int fake_broken(void);
/* An operation of a stream; `device` for copies and fills that CUDA promises to
 * have done when `wait` returns. */
int fake_put(struct CUstream_st *stream, void (*run)(void *record),
             void *record, bool wait);
void fake_end(const char *format, ...)
    __attribute__((format(printf, 1, 2), noreturn));

#ifdef __cplusplus
}
#endif

#endif
