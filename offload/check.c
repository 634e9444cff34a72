/* check.c: the proof that a schedule's waits are enough.
 *
 * Each task gets a vector: per lane, the last ticket certainly retired when it
 * starts.  "Done before" is then one comparison, and a slot's uses need one walk
 * in the order of the schedule.  Lanes retire in order, also the wide ones, so
 * the vector says all there is to say.  Its parts are check_order.c,
 * check_guards.c, check_store.c and check_slots.c.  Main thread; allocates only in
 * init. */
#include "offload/check.h"

#include <stdlib.h>

#include "base/error.h"

int pen_check_init(struct pen_check *check, const struct pen_layout *layout,
                   size_t max_tasks, size_t max_accesses)
{
  struct pen_check c = {.max_tasks = max_tasks,
                        .max_accesses = max_accesses,
                        .n_slots = layout->n_slots};
  size_t t = max_tasks ? max_tasks : 1, a = max_accesses ? max_accesses : 1;
  c.known = calloc(t, sizeof *c.known);
  c.after = calloc(t, sizeof *c.after);
  c.order = calloc(t, sizeof *c.order);
  c.owner = calloc(a, sizeof *c.owner);
  c.next = calloc(a, sizeof *c.next);
  c.first_use = calloc(c.n_slots, sizeof *c.first_use);
  c.last_use = calloc(c.n_slots, sizeof *c.last_use);
  c.is_updated = calloc(layout->n_tiles + 1, sizeof *c.is_updated);
  c.written = calloc(layout->n_tiles + 1, sizeof *c.written);
  c.is_whole = calloc(layout->n_tiles + 1, sizeof *c.is_whole);
  c.is_open = calloc(layout->n_tiles + 1, sizeof *c.is_open);
  bool whole = c.known && c.after && c.order && c.owner && c.next &&
               c.first_use && c.last_use && c.is_updated && c.written &&
               c.is_whole && c.is_open;
  for (int lane = 0; lane < PEN_LANES; lane++)
    whole &= (c.by_ticket[lane] = calloc(t, sizeof(uint32_t))) != NULL;
  *check = c;
  if (whole)
    return 0;
  pen_check_done(check);
  return pen_error_set(PEN_ENOFIT, "no memory to check %zu tasks", max_tasks);
}

void pen_check_done(struct pen_check *check)
{
  if (!check)
    return;
  free(check->known);
  free(check->after);
  free(check->order);
  free(check->owner);
  free(check->next);
  free(check->first_use);
  free(check->last_use);
  free(check->is_updated);
  free(check->written);
  free(check->is_whole);
  free(check->is_open);
  for (int lane = 0; lane < PEN_LANES; lane++)
    free(check->by_ticket[lane]);
  *check = (struct pen_check){0};
}

int pen_check_schedule(struct pen_check *check,
                       const struct pen_layout *layout,
                       const struct pen_schedule *schedule,
                       const struct pen_carry *before)
{
  if (schedule->n_tasks > check->max_tasks ||
      schedule->n_accesses > check->max_accesses)
    return pen_error_set(PEN_ESCHEDULE,
                         "schedule of %zu tasks, room to check %zu",
                         schedule->n_tasks, check->max_tasks);
  int rc = pen_check_order(check, schedule);
  if (rc == 0)
    rc = pen_check_routed(layout, schedule);
  if (rc == 0)
    rc = pen_check_store(check, layout, schedule, before);
  if (rc == 0)
    rc = pen_check_updates(check, layout, schedule, before);
  if (rc == 0)
    rc = pen_check_slots(check, layout, schedule, before);
  return rc;
}
