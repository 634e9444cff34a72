/* check_part.h: what the files of the proof share. */
#ifndef PEN_OFFLOAD_CHECK_PART_H
#define PEN_OFFLOAD_CHECK_PART_H

#include "offload/schedule.h"

/* Working memory of the proof, reused from step to step. */
struct pen_check {
  uint32_t (*known)[PEN_LANES]; /* [tasks] tickets retired when it starts */
  uint32_t (*after)[PEN_LANES]; /* [tasks] and when it is retired itself */
  uint32_t *by_ticket[PEN_LANES]; /* [tasks each] */
  uint32_t *order;      /* [tasks] an order in which they can run */
  uint32_t *owner;      /* [accesses] the task of each */
  uint32_t *next;       /* [accesses] next use of the same slot */
  uint32_t *first_use, *last_use; /* [slots] */
  bool *is_updated;               /* [tiles] */
  uint32_t *written;              /* [tiles] tickets of writes to the store */
  bool *is_whole;                 /* [tiles] its halves are in the store */
  bool *is_open;                  /* [tiles] no commit has what was written last */
  size_t max_tasks, max_accesses, n_slots;
};

/* -PEN_ESCHEDULE, naming the task and what is wrong with it. */
int pen_check_bad_task(const struct pen_schedule *schedule, uint32_t id,
                       const char *what);
/* The same of one of its uses of a slot. */
int pen_check_bad_use(const struct pen_schedule *schedule,
                      const struct pen_layout *layout, uint32_t id,
                      const struct pen_access *use, const char *what);
/* Under a decision, whatever is routed: does the task certainly run? */
bool pen_check_is_certain(const struct pen_task *task, enum pen_guard decision);
/* The later ticket of each lane. */
void pen_check_merge(uint32_t into[PEN_LANES], const uint32_t from[PEN_LANES]);

/* Every task can start at last; fills known, after and order. */
int pen_check_order(struct pen_check *check, const struct pen_schedule *schedule);
/* What depends on routing reads the counts that its guard looks at. */
int pen_check_routed(const struct pen_layout *layout,
                     const struct pen_schedule *schedule);
/* What goes to the store, comes from it, and is committed there. */
int pen_check_store(struct pen_check *check, const struct pen_layout *layout,
                    const struct pen_schedule *schedule,
                    const struct pen_carry *before);
/* Each tile is updated once, behind the guard that goes with what was done early. */
int pen_check_updates(struct pen_check *check, const struct pen_layout *layout,
                      const struct pen_schedule *schedule,
                      const struct pen_carry *before);
/* What a task reads was filled, and nothing is filled anew before its last use. */
int pen_check_slots(struct pen_check *check, const struct pen_layout *layout,
                    const struct pen_schedule *schedule,
                    const struct pen_carry *before);

#endif
