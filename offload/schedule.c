/* schedule.c: the containers of a schedule and of what is carried, and sums
 * over tasks.
 *
 * Main thread only.  A schedule that may grow doubles its arrays; a fixed one
 * never allocates after init.  Disadvantage: a fixed one must be sized by
 * building the largest shapes first. */
#include "offload/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

const char *pen_lane_name(enum pen_lane lane)
{
  static const char *const names[PEN_LANES] = {
#define X(name, text, wide) text,
      PEN_LANE_LIST(X)
#undef X
  };
  return names[lane];
}

bool pen_lane_is_wide(enum pen_lane lane)
{
  static const bool widths[PEN_LANES] = {
#define X(name, text, wide) wide,
      PEN_LANE_LIST(X)
#undef X
  };
  return widths[lane];
}

const char *pen_task_name(enum pen_task_kind kind)
{
  static const char *const names[PEN_TASK_KINDS] = {
#define X(name, text) text,
      PEN_TASK_LIST(X)
#undef X
  };
  return names[kind];
}

bool pen_task_is_transfer(const struct pen_task *task)
{
  switch (task->kind) {
  case PEN_TASK_READ:
  case PEN_TASK_WRITE:
  case PEN_TASK_READ_TILE:
  case PEN_TASK_WRITE_TILE:
  case PEN_TASK_WRITE_HALVES:
  case PEN_TASK_WRITE_ASIDE:
    return true;
  default:
    return false;
  }
}

int pen_carry_init(struct pen_carry *carry, const struct pen_layout *layout)
{
  size_t n = layout->n_slots;
  struct pen_carry made = {.n_slots = n};
  made.generation = calloc(n, sizeof *made.generation);
  made.object = malloc(n * sizeof *made.object);
  made.turn = calloc(n, sizeof *made.turn);
  if (!made.generation || !made.object || !made.turn) {
    pen_carry_done(&made);
    return pen_error_set(PEN_ENOFIT, "no memory for a carry of %zu slots", n);
  }
  for (size_t i = 0; i < n; i++)
    made.object[i] = PEN_NONE;
  *carry = made;
  return 0;
}

void pen_carry_done(struct pen_carry *carry)
{
  if (!carry)
    return;
  free(carry->generation);
  free(carry->object);
  free(carry->turn);
  *carry = (struct pen_carry){0};
}

void pen_carry_copy(struct pen_carry *to, const struct pen_carry *from)
{
  to->pending = from->pending;
  to->speculated = from->speculated;
  to->halves_due = from->halves_due;
  memcpy(to->generation, from->generation,
         from->n_slots * sizeof *to->generation);
  memcpy(to->object, from->object, from->n_slots * sizeof *to->object);
  memcpy(to->turn, from->turn, from->n_slots * sizeof *to->turn);
}

int pen_schedule_init(struct pen_schedule *schedule,
                      const struct pen_workload *workload,
                      const struct pen_layout *layout, size_t tasks,
                      size_t accesses, bool may_grow)
{
  struct pen_schedule made = {.max_tasks = tasks ? tasks : 64,
                              .max_accesses = accesses ? accesses : 256,
                              .may_grow = may_grow};
  made.tasks = calloc(made.max_tasks, sizeof *made.tasks);
  made.accesses = calloc(made.max_accesses, sizeof *made.accesses);
  made.uses = calloc(layout->n_slots, sizeof *made.uses);
  made.updated = calloc(workload->n_blocks, sizeof *made.updated);
  made.written = calloc(layout->n_tiles + 1, sizeof *made.written);
  if (!made.tasks || !made.accesses || !made.uses || !made.updated ||
      !made.written) {
    pen_schedule_done(&made);
    return pen_error_set(PEN_ENOFIT, "no memory for a schedule of %zu tasks",
                         made.max_tasks);
  }
  *schedule = made;
  return 0;
}

void pen_schedule_done(struct pen_schedule *schedule)
{
  if (!schedule)
    return;
  free(schedule->tasks);
  free(schedule->accesses);
  free(schedule->uses);
  free(schedule->updated);
  free(schedule->written);
  *schedule = (struct pen_schedule){0};
}

/* Is it written only where the pending update is skipped? */
static bool is_written_if_skipped(const struct pen_task *t)
{
  return t->lane == PEN_LANE_WRITE && t->guard == PEN_GUARD_SKIP;
}

struct pen_cost pen_schedule_cost(const struct pen_schedule *schedule)
{
  struct pen_cost sum = {0};
  for (size_t i = 0; i < schedule->n_tasks; i++) {
    const struct pen_task *t = &schedule->tasks[i];
    const struct pen_cost *cost = &t->cost;
    if (t->guard == PEN_GUARD_REDO || is_written_if_skipped(t))
      continue;
    sum.flops += cost->flops;
    sum.vector_flops += cost->vector_flops;
    sum.pass_elems += cost->pass_elems;
    sum.link_bytes += cost->link_bytes;
    sum.nvme_bytes += cost->nvme_bytes;
    sum.dram_read_bytes += cost->dram_read_bytes;
    sum.dram_written_bytes += cost->dram_written_bytes;
    sum.device_read_bytes += cost->device_read_bytes;
    sum.device_written_bytes += cost->device_written_bytes;
    sum.update_elems += cost->update_elems;
  }
  return sum;
}

uint64_t pen_schedule_nvme_written(const struct pen_schedule *schedule,
                                   bool redone)
{
  uint64_t sum = 0;
  for (size_t i = 0; i < schedule->n_tasks; i++) {
    const struct pen_task *t = &schedule->tasks[i];
    if (t->lane == PEN_LANE_WRITE && !is_written_if_skipped(t) &&
        (t->guard == PEN_GUARD_REDO) == redone)
      sum += t->cost.nvme_bytes;
  }
  return sum;
}
