/* check_guards.c: the part of the proof that is about what decides whether a task
 * runs.
 *
 * Main thread. */
#include <string.h>

#include "base/error.h"
#include "offload/check_part.h"

/* A guard must be known when it is asked: its counts are among what the task
 * reads, and so checked to be filled before. */
int pen_check_routed(const struct pen_layout *l,
                 const struct pen_schedule *s)
{
  for (uint32_t i = 0; i < s->n_tasks; i++) {
    const struct pen_task *t = &s->tasks[i];
    bool reads = t->guard != PEN_GUARD_ROUTED;
    for (uint32_t k = 0; k < t->n_accesses && !reads; k++) {
      const struct pen_access *a = &s->accesses[t->first_access + k];
      reads = a->mode == PEN_ACCESS_READ && t->block != PEN_NONE &&
              a->slot == l->routed_by[t->block];
    }
    if (!reads)
      return pen_check_bad_task(s, i,
                                "does not read the counts its guard looks at");
  }
  return 0;
}

/* Each tile once, behind the guard that goes with what was done before. */
int pen_check_updates(struct pen_check *c, const struct pen_layout *l,
                  const struct pen_schedule *s,
                  const struct pen_carry *before)
{
  size_t n = 0;
  memset(c->is_updated, 0, l->n_tiles * sizeof *c->is_updated);
  for (uint32_t i = 0; i < s->n_tasks; i++) {
    const struct pen_task *t = &s->tasks[i];
    if (t->kind != PEN_TASK_UPDATE)
      continue;
    bool early = before->speculated && l->weight_shadow[t->block] != PEN_NONE;
    if (t->guard != (early ? PEN_GUARD_REDO : PEN_GUARD_APPLY))
      return pen_check_bad_task(
          s, i, "it does not depend on whether it was done early");
    if (t->tile >= l->n_tiles || c->is_updated[t->tile])
      return pen_check_bad_task(s, i, "its tile is updated twice");
    c->is_updated[t->tile] = true;
    n++;
  }
  if (n == (before->pending ? l->n_tiles : 0))
    return 0;
  return pen_error_set(PEN_ESCHEDULE, "schedule: %zu of %zu tiles are updated, "
                       "and an update is %s", n, l->n_tiles,
                       before->pending ? "pending" : "not pending");
}
