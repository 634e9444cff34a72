/* check.h: proves that a schedule is safe before it runs. */
#ifndef PEN_OFFLOAD_CHECK_H
#define PEN_OFFLOAD_CHECK_H

#include "offload/check_part.h"

int pen_check_init(struct pen_check *check, const struct pen_layout *layout,
                   size_t max_tasks, size_t max_accesses);
void pen_check_done(struct pen_check *check);

/* 0 when, for every decision of the guards, with `before` as what the step
 * before left:
 *   - every task can start at last (no cycle among waits and lane orders);
 *   - what a task reads was filled, over the whole range it reads, by tasks
 *     that are retired before it starts;
 *   - a slot is filled anew only after every use of its old content is retired;
 *   - two tasks that fill the same bytes do so in order;
 *   - a commit starts only when every write before it is retired, and finds
 *     every tile of the store whole;
 *   - halves are added only to a tile that was written since the newest commit;
 *   - what is updated out of place is so all over;
 *   - a tile is read from the store only after every write of it is retired;
 *   - a pending update comes to each tile once, unless it is skipped or stands.
 * Else -PEN_ESCHEDULE; the text names task, slot and rule.  Does not allocate.
 */
int pen_check_schedule(struct pen_check *check,
                       const struct pen_layout *layout,
                       const struct pen_schedule *schedule,
                       const struct pen_carry *before);

#endif
