/* simulate.h: executes a schedule on a virtual clock: the step that run would
 * make, on a machine that is described. */
#ifndef PEN_OFFLOAD_SIMULATE_H
#define PEN_OFFLOAD_SIMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/trace.h"
#include "offload/demand.h"
#include "offload/schedule.h"

/* Transfers in flight per I/O lane, at most; as run has it. */
#define PEN_SIMULATE_DEPTH_MAX 64

struct pen_simulate_options {
  struct pen_demand_options demand;
  size_t io_depth; /* transfers in flight per I/O lane */
  bool apply;      /* the decision: APPLY tasks run and SKIP ones do not, or
                      the other way round */
  bool redo;       /* with apply: what was done during backward does not stand */
  double enough_s; /* a step that takes as long is not simulated to its end: then
                      `seconds` is no less, and the rest is not known; 0: any is */
};

struct pen_simulate_result {
  double seconds;
  /* As long if every task had the machine to itself: waits and the order of
   * lanes alone.  No sharing makes a step faster. */
  double critical_seconds;
  double busy_seconds[PEN_LANES]; /* with at least one task running */
  size_t n_resources;
  double load[PEN_SHARE_RESOURCES_MAX];          /* used share of the step */
  double least_seconds[PEN_SHARE_RESOURCES_MAX]; /* amount / rate: no schedule
                                                    of this work is faster */
  size_t binds; /* the resource with the highest load */
};

/* Working memory for schedules of up to max_tasks. */
struct pen_simulate;
int pen_simulate_create(size_t max_tasks, struct pen_simulate **ret_simulate);
void pen_simulate_free(struct pen_simulate **simulate);

/* One step.  Deterministic; takes memory only for more different tasks than any
 * step before had.  trace: NULL, or PEN_LANES
 * lanes that get the events run would record, from `begin_ns` on.
 * -PEN_EUSAGE where the machine lacks a rate that the schedule needs;
 * -PEN_ESCHEDULE where the schedule cannot end. */
int pen_simulate_run(struct pen_simulate *simulate,
                     const struct pen_schedule *schedule,
                     const struct pen_simulate_options *options,
                     struct pen_trace *trace, uint64_t begin_ns,
                     struct pen_simulate_result *ret_result);

#endif
