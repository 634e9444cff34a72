/* fake_drive.h: an engine like a consumer SSD in its own time: so many bytes go
 * into a fast cache, what comes after is slow, idling empties it again, and
 * writing makes it warm. */
#ifndef PEN_TESTS_BENCH_FAKE_DRIVE_H
#define PEN_TESTS_BENCH_FAKE_DRIVE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/engine.h"

struct fake_drive {
  double burst, sustained; /* bytes/s written */
  double read;
  double cache_bytes, recovers; /* bytes; bytes/s while idle */
  double noise;                 /* share of a transfer's time, normal */
  double hot_after;             /* bytes: from there on `throttled`; 0: never */
  double throttled;
  uint64_t fail_after;          /* bytes: then -EIO; 0: never */
  uint64_t stop_after;          /* bytes: then *stop is set; 0: never */
  volatile sig_atomic_t *stop;
  bool corrupts;                /* reads come back with a bit turned */
  const char *sensor;           /* temp1_input to write; NULL: none */
  /* its state */
  double used, now_s, idle_since;
  bool shown_hot;
  uint64_t written, n_transfers;
};

extern struct fake_drive fake_drive; /* the one drive there is */
extern const struct pen_engine fake_drive_engine;

#endif
