/* check_part.h: what the files of the proof share. */
#ifndef PEN_OFFLOAD_CHECK_PART_H
#define PEN_OFFLOAD_CHECK_PART_H

#include "offload/check.h"

/* -PEN_ESCHEDULE, naming the task and what is wrong with it. */
int pen_check_bad_task(const struct pen_schedule *schedule, uint32_t id,
                       const char *what);
/* Under a decision, whatever is routed: does the task certainly run? */
bool pen_check_is_certain(const struct pen_task *task, enum pen_guard decision);

/* What goes to the store, comes from it, and is committed there. */
int pen_check_store(struct pen_check *check, const struct pen_layout *layout,
                    const struct pen_schedule *schedule,
                    const struct pen_carry *before);

#endif
