/* poison.h: in AddressSanitizer builds, every slot that no running task declared
 * is poisoned, so that what check proves is what runs.  Else nothing. */
#ifndef PEN_OFFLOAD_POISON_H
#define PEN_OFFLOAD_POISON_H

#include <pthread.h>

#include "offload/schedule.h"

struct pen_poison {
  const struct pen_layout *layout;
  const uint64_t *offset; /* [slots] within their arenas, as they are now */
  void *const *arena; /* [PEN_TIERS] */
  uint32_t *users;    /* [slots] running tasks that declared it */
  pthread_mutex_t lock;
  bool on;
};

/* Poisons all slots; nothing in other builds.  offset and arena are borrowed. */
int pen_poison_init(struct pen_poison *poison, const struct pen_layout *layout,
                    const uint64_t *offset, void *const *arena);
/* Unpoisons everything. */
void pen_poison_done(struct pen_poison *poison);
/* Around a task's work. */
void pen_poison_acquire(struct pen_poison *poison,
                        const struct pen_schedule *schedule,
                        const struct pen_task *task);
void pen_poison_release(struct pen_poison *poison,
                        const struct pen_schedule *schedule,
                        const struct pen_task *task);
/* The same for one slot, outside of steps (load, logits). */
void pen_poison_open(struct pen_poison *poison, uint32_t slot);
void pen_poison_close(struct pen_poison *poison, uint32_t slot);

#endif
