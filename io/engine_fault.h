/* engine_fault.h: an engine that wraps another and makes it fail on demand.
 *
 * Every request is counted from 0: each transfer, blocking or on a ring, each
 * sync, preallocation, rename and removal.  A fault happens at one number, or to a
 * seeded share of all requests.  As text, after "fault:":
 *   ENGINE[,seed=N][,FAULT=N | ,FAULT=P%]...
 *   cut     power is cut: this and all later requests fail with EIO, and of
 *           what was not synced any seeded subset of 512-byte sectors, new
 *           names and new sizes survives below
 *   kill    the process is killed (SIGKILL)
 *   eio enospc einval   the request fails with that errno
 *   eintr eagain        a transfer fails so, and can be tried again
 *   short   a transfer moves only part, often not a whole number of sectors
 *   late    a completion is held back and comes out of order
 * For instance "fault:uring,seed=7,cut=123" or "fault:threads,eagain=10%". */
#ifndef PEN_IO_ENGINE_FAULT_H
#define PEN_IO_ENGINE_FAULT_H

#include "io/engine.h"

enum pen_engine_fault_kind {
  PEN_FAULT_CUT,
  PEN_FAULT_KILL,
  PEN_FAULT_EIO,
  PEN_FAULT_ENOSPC,
  PEN_FAULT_EINVAL,
  PEN_FAULT_EINTR,
  PEN_FAULT_EAGAIN,
  PEN_FAULT_SHORT,
  PEN_FAULT_LATE,
  PEN_FAULT_KINDS
};

#define PEN_FAULT_NEVER UINT64_MAX

struct pen_engine_fault_config {
  uint64_t seed;
  struct {
    uint64_t at;      /* number of the request; PEN_FAULT_NEVER */
    unsigned percent; /* of all requests, 0 to 100 */
  } faults[PEN_FAULT_KINDS];
};

/* No fault at all. */
void pen_engine_fault_config_init(struct pen_engine_fault_config *config);

/* Caller owns *ret_engine; free it when no file or ring uses it. */
int pen_engine_fault_create(const struct pen_engine *inner,
                            const struct pen_engine_fault_config *config,
                            const struct pen_engine **ret_engine);
void pen_engine_fault_free(const struct pen_engine *engine);

/* From the text after "fault:ENGINE,", NULL where there is none; -PEN_EUSAGE. */
int pen_engine_fault_parse(const struct pen_engine *inner, const char *text,
                           const struct pen_engine **ret_engine);

/* Requests counted so far. */
uint64_t pen_engine_fault_requests(const struct pen_engine *engine);

#endif
