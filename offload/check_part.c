/* check_part.c: what every part of the proof says and asks.
 *
 * Main thread.  Disadvantage: a hazard is told for the first pair found, not for
 * all. */
#include "offload/check_part.h"

#include "base/error.h"

int pen_check_bad_task(const struct pen_schedule *s, uint32_t id,
                       const char *what)
{
  const struct pen_task *t = &s->tasks[id];
  return pen_error_set(PEN_ESCHEDULE,
                       "schedule: task %u (%s on %s, block %d, micro-batch "
                       "%d): %s",
                       id, pen_task_name(t->kind), pen_lane_name(t->lane),
                       (int)t->block, (int)t->micro, what);
}

int pen_check_bad_use(const struct pen_schedule *s, const struct pen_layout *l,
            uint32_t id, const struct pen_access *a, const char *what)
{
  const struct pen_task *t = &s->tasks[id];
  return pen_error_set(PEN_ESCHEDULE,
                       "schedule: task %u (%s on %s, block %d, micro-batch "
                       "%d) and slot %u (%s, generation %u): %s",
                       id, pen_task_name(t->kind), pen_lane_name(t->lane),
                       (int)t->block, (int)t->micro, a->slot,
                       l->slots[a->slot].purpose, a->generation, what);
}

bool pen_check_is_certain(const struct pen_task *t, enum pen_guard decision)
{
  return t->guard == PEN_GUARD_ALWAYS || t->guard == decision ||
         (t->guard == PEN_GUARD_APPLY && decision == PEN_GUARD_REDO);
}

void pen_check_merge(uint32_t into[PEN_LANES], const uint32_t from[PEN_LANES])
{
  for (int lane = 0; lane < PEN_LANES; lane++)
    if (from[lane] > into[lane])
      into[lane] = from[lane];
}
