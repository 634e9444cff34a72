/* demands.h: what the tasks of a schedule take of a machine, each different
 * demand worked out once: a step has thousands of tasks and few kinds of them. */
#ifndef PEN_OFFLOAD_DEMANDS_H
#define PEN_OFFLOAD_DEMANDS_H

#include "offload/demand.h"

#define PEN_DEMANDS_NONE 0 /* the number of a demand that takes no time */

struct pen_demands {
  struct pen_demand *all;        /* [n]; all[PEN_DEMANDS_NONE] */
  const struct pen_task **first; /* [n] the first that had it */
  size_t n, max; /* max grows */
  uint32_t *table; /* by hash of a task; 0: free */
  size_t table_size;
};

int pen_demands_init(struct pen_demands *demands, size_t max_tasks);
void pen_demands_done(struct pen_demands *demands);

/* Forgets all but PEN_DEMANDS_NONE. */
void pen_demands_clear(struct pen_demands *demands);

/* *ret_number: of the task's demand in `all`.  options: the same since the last
 * clear; task: borrowed until the next.  Fails as pen_demand_of does. */
int pen_demands_find(struct pen_demands *demands,
                     const struct pen_demand_options *options,
                     const struct pen_task *task, uint32_t *ret_number);

#endif
