/* rehearse.c: builds a few steps one after the other and keeps the last.
 *
 * Main thread.  Disadvantage: takes memory of its own for each rehearsal. */
#include "offload/rehearse.h"

#define STEPS_TO_FULL_FLIGHT 3

int pen_rehearsal_open(struct pen_rehearsal *ret_rehearsal,
                       const struct pen_workload *workload,
                       const struct pen_layout *layout,
                       const struct pen_run_plan *plan,
                       const struct pen_shape *shape, bool commits)
{
  struct pen_rehearsal *r = ret_rehearsal;
  *r = (struct pen_rehearsal){.simulate = NULL};
  int rc = pen_carry_init(&r->carry, layout);
  if (rc == 0)
    rc = pen_schedule_init(&r->schedule, workload, layout, plan->n_tasks,
                           plan->n_accesses, true);
  for (int step = 0; rc == 0 && step < STEPS_TO_FULL_FLIGHT; step++)
    rc = pen_schedule_build(workload, layout, shape, commits, &r->carry,
                            &r->schedule);
  return rc < 0 ? rc : pen_simulate_create(r->schedule.n_tasks, &r->simulate);
}

int pen_rehearsal_run(const struct pen_rehearsal *rehearsal,
                      const struct pen_simulate_options *options,
                      struct pen_trace *trace,
                      struct pen_simulate_result *ret_result)
{
  return pen_simulate_run(rehearsal->simulate, &rehearsal->schedule, options,
                          trace, 0, ret_result);
}

void pen_rehearsal_close(struct pen_rehearsal *rehearsal)
{
  pen_simulate_free(&rehearsal->simulate);
  pen_schedule_done(&rehearsal->schedule);
  pen_carry_done(&rehearsal->carry);
}
