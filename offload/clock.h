/* clock.h: tasks that run at once on a machine, on a virtual clock.
 *
 * A task's demand is given by number: those of equal demand are equally fast, so
 * they end in the order in which they began, and what the clock does between two
 * ends depends on how many demands there are, not on how many tasks. */
#ifndef PEN_OFFLOAD_CLOCK_H
#define PEN_OFFLOAD_CLOCK_H

#include <stdint.h>

#include "offload/demand.h"

/* Tasks that may run at once. */
#define PEN_CLOCK_RUNNING_MAX 256

struct pen_clock {
  double now_s;
  double used_s[PEN_SHARE_RESOURCES_MAX]; /* of each resource alone, so far */
  size_t n_running;
  struct pen_clock_work *works; /* [max_works] by number of their demand */
  size_t max_works;             /* grows */
  struct pen_clock_task *tasks; /* [max_tasks] */
  uint32_t live[PEN_CLOCK_RUNNING_MAX]; /* works with a running task ... */
  size_t n_live;                        /* ... are so many */
  uint32_t ended[PEN_CLOCK_RUNNING_MAX];
  const struct pen_machine *machine;
  size_t n_resources;
};

/* For tasks of numbers below max_tasks. */
int pen_clock_init(struct pen_clock *clock, size_t max_tasks);
void pen_clock_done(struct pen_clock *clock);

/* Second 0: nothing runs.  demands: borrowed until the next start; machine: what
 * they were made for. */
int pen_clock_start(struct pen_clock *clock, const struct pen_demand *demands,
                    size_t n_demands, const struct pen_machine *machine);

/* A task begins now, one that takes time, with its latency. */
void pen_clock_begin(struct pen_clock *clock, uint32_t task, uint32_t demand);

/* On to the next end of a task or of a latency.  *ret_ended: the tasks that are
 * over, so many, until the next call. */
size_t pen_clock_advance(struct pen_clock *clock, const uint32_t **ret_ended);

/* When the task began, in seconds. */
double pen_clock_began(const struct pen_clock *clock, uint32_t task);

#endif
