/* rehearse.h: a training step in full flight, built and simulated without a run:
 * what a placement would do before it is taken. */
#ifndef PEN_OFFLOAD_REHEARSE_H
#define PEN_OFFLOAD_REHEARSE_H

#include "offload/run.h"
#include "offload/simulate.h"

struct pen_rehearsal {
  struct pen_carry carry;
  struct pen_schedule schedule;
  struct pen_schedule drain; /* that follows it; without tasks: nothing does */
  struct pen_simulate *simulate;
};

enum pen_rehearsal_updates {
  PEN_REHEARSAL_CARRIED, /* each step's update is applied by the next one */
  PEN_REHEARSAL_DRAINED, /* ... before the next one begins */
  PEN_REHEARSAL_NONE,    /* ... never: nothing is left to hide */
};

/* Builds the second step of a run: the first has no update to apply, and leaves
 * the rings as each later one does.  After any return pen_rehearsal_close is
 * right. */
int pen_rehearsal_open(struct pen_rehearsal *ret_rehearsal,
                       const struct pen_workload *workload,
                       const struct pen_layout *layout,
                       const struct pen_shape *shape, bool commits,
                       enum pen_rehearsal_updates updates);
/* As often as wanted, on any machine; see pen_simulate_run. */
int pen_rehearsal_run(const struct pen_rehearsal *rehearsal,
                      const struct pen_simulate_options *options,
                      struct pen_trace *trace,
                      struct pen_simulate_result *ret_result);
void pen_rehearsal_close(struct pen_rehearsal *rehearsal);

#endif
