/* trace.h: who did what when, kept in memory and saved as a timeline. */
#ifndef PEN_BASE_TRACE_H
#define PEN_BASE_TRACE_H

#include <stddef.h>
#include <stdint.h>

struct pen_trace;

/* "does not apply" for the integer fields of an event */
#define PEN_TRACE_NONE (-1)

struct pen_trace_event {
  uint64_t begin_ns, end_ns; /* pen_clock_ns or a virtual clock */
  const char *name;          /* borrowed until pen_trace_free */
  int32_t block, micro, tile; /* or PEN_TRACE_NONE */
};

/* Makes room for n_events_per_lane events on each of n_lanes lanes, all
 * allocated and touched here: sizeof(struct pen_trace_event) each. */
int pen_trace_create(size_t n_lanes, size_t n_events_per_lane,
                     struct pen_trace **ret_trace);

/* Names a lane's track (copied, 31 bytes).  Before recording. */
void pen_trace_name_lane(struct pen_trace *trace, size_t lane,
                         const char *name);

/* Adds an event (copied).  One thread per lane at a time; threads of different
 * lanes need no lock.  A full lane counts the event as dropped.  Does nothing
 * if `trace` is NULL, so that callers need not ask.  Allocates nothing. */
void pen_trace_record(struct pen_trace *trace, size_t lane,
                      const struct pen_trace_event *event);

/* Events that found no room, over all lanes. */
uint64_t pen_trace_n_dropped(const struct pen_trace *trace);

/* Writes Chrome's trace event JSON, which Perfetto opens: one named track per
 * lane, and "NAME 2", "NAME 3" ... for what a lane does at the same time; times
 * from the earliest event in microseconds, block, micro and tile as arguments,
 * dropped events in "otherData".  Sorts each lane's events.  The file appears
 * whole or not at all (temporary file, fsync, rename).  No recording
 * meanwhile. */
int pen_trace_save(struct pen_trace *trace, const char *path);

/* Frees; sets NULL. */
void pen_trace_free(struct pen_trace **trace);

#endif
