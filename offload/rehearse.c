/* rehearse.c: builds a few steps one after the other and keeps the last.
 *
 * Main thread.  Disadvantage: takes memory of its own for each rehearsal. */
#include "offload/rehearse.h"

#define STEPS_TO_FULL_FLIGHT 2

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

int pen_rehearsal_open(struct pen_rehearsal *ret_rehearsal,
                       const struct pen_workload *workload,
                       const struct pen_layout *layout,
                       const struct pen_shape *shape, bool commits,
                       enum pen_rehearsal_updates updates)
{
  struct pen_rehearsal *r = ret_rehearsal;
  struct pen_shape drain = {.kind = PEN_STEP_DRAIN};
  *r = (struct pen_rehearsal){.simulate = NULL};
  int rc = pen_carry_init(&r->carry, layout);
  if (rc == 0)
    rc = pen_schedule_init(&r->schedule, workload, layout, 0, 0, true);
  if (rc == 0)
    rc = pen_schedule_init(&r->drain, workload, layout, 0, 0, true);
  for (int step = 0; rc == 0 && step < STEPS_TO_FULL_FLIGHT; step++) {
    rc = pen_schedule_build(workload, layout, shape, commits, &r->carry,
                            &r->schedule);
    if (rc == 0 && updates == PEN_REHEARSAL_DRAINED)
      rc = pen_schedule_build(workload, layout, &drain, commits, &r->carry,
                              &r->drain);
    if (updates == PEN_REHEARSAL_NONE)
      r->carry.pending = r->carry.speculated = false;
  }
  size_t tasks = max_size(r->schedule.n_tasks, r->drain.n_tasks);
  return rc < 0 ? rc : pen_simulate_create(tasks, &r->simulate);
}

/* One after the other. */
static void add(struct pen_simulate_result *sum,
                const struct pen_simulate_result *more)
{
  double seconds = sum->seconds + more->seconds;
  for (size_t n = 0; n < sum->n_resources; n++) {
    sum->load[n] = (sum->load[n] * sum->seconds + more->load[n] * more->seconds) /
                   seconds;
    sum->least_seconds[n] += more->least_seconds[n];
    if (sum->load[n] > sum->load[sum->binds])
      sum->binds = n;
  }
  for (int lane = 0; lane < PEN_LANES; lane++)
    sum->busy_seconds[lane] += more->busy_seconds[lane];
  sum->critical_seconds += more->critical_seconds;
  sum->seconds = seconds;
}

int pen_rehearsal_run(const struct pen_rehearsal *rehearsal,
                      const struct pen_simulate_options *options,
                      struct pen_trace *trace,
                      struct pen_simulate_result *ret_result)
{
  struct pen_simulate_result step, drain;
  int rc = pen_simulate_run(rehearsal->simulate, &rehearsal->schedule, options,
                            trace, 0, &step);
  if (rc == 0 && rehearsal->drain.n_tasks) {
    rc = pen_simulate_run(rehearsal->simulate, &rehearsal->drain, options, trace,
                          (uint64_t)(step.seconds * 1e9), &drain);
    if (rc == 0)
      add(&step, &drain);
  }
  if (rc == 0)
    *ret_result = step;
  return rc;
}

void pen_rehearsal_close(struct pen_rehearsal *rehearsal)
{
  pen_simulate_free(&rehearsal->simulate);
  pen_schedule_done(&rehearsal->schedule);
  pen_schedule_done(&rehearsal->drain);
  pen_carry_done(&rehearsal->carry);
}
