/* poison.c: counts the running users of each slot and lets AddressSanitizer
 * guard those that have none.
 *
 * Several lanes share it, so counts are under one mutex; only instrumented
 * builds pay.  Disadvantage: a task that declared a part may touch the whole
 * slot unseen. */
#include "offload/poison.h"

#include <stdlib.h>

#include "base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER 1
#endif
#endif

#ifdef ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(base, bytes) ((void)(base), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(base, bytes) ((void)(base), (void)(bytes))
#endif

static char *slot_base(const struct pen_poison *p, uint32_t slot)
{
  const struct pen_slot *s = &p->layout->slots[slot];
  char *base = p->arena[s->tier];
  return base ? base + p->offset[slot] : NULL; /* NVMe slots are not memory */
}

int pen_poison_init(struct pen_poison *poison, const struct pen_layout *layout,
                    const uint64_t *offset, void *const *arena)
{
  *poison =
      (struct pen_poison){.layout = layout, .offset = offset, .arena = arena};
#ifdef ADDRESS_SANITIZER
  poison->users = calloc(layout->n_slots, sizeof *poison->users);
  if (!poison->users)
    return pen_error_set(PEN_ENOFIT, "no memory to guard %zu slots",
                         layout->n_slots);
  pthread_mutex_init(&poison->lock, NULL);
  poison->on = true;
  for (uint32_t i = 0; i < layout->n_slots; i++)
    if (slot_base(poison, i))
      ASAN_POISON_MEMORY_REGION(slot_base(poison, i), layout->slots[i].bytes);
#endif
  return 0;
}

void pen_poison_done(struct pen_poison *poison)
{
  if (!poison->on)
    return;
  for (uint32_t i = 0; i < poison->layout->n_slots; i++)
    if (slot_base(poison, i))
      ASAN_UNPOISON_MEMORY_REGION(slot_base(poison, i),
                                  poison->layout->slots[i].bytes);
  pthread_mutex_destroy(&poison->lock);
  free(poison->users);
  *poison = (struct pen_poison){0};
}

void pen_poison_open(struct pen_poison *poison, uint32_t slot)
{
  if (!poison->on || !slot_base(poison, slot))
    return;
  pthread_mutex_lock(&poison->lock);
  if (poison->users[slot]++ == 0)
    ASAN_UNPOISON_MEMORY_REGION(slot_base(poison, slot),
                                poison->layout->slots[slot].bytes);
  pthread_mutex_unlock(&poison->lock);
}

void pen_poison_close(struct pen_poison *poison, uint32_t slot)
{
  if (!poison->on || !slot_base(poison, slot))
    return;
  pthread_mutex_lock(&poison->lock);
  if (--poison->users[slot] == 0)
    ASAN_POISON_MEMORY_REGION(slot_base(poison, slot),
                              poison->layout->slots[slot].bytes);
  pthread_mutex_unlock(&poison->lock);
}

void pen_poison_acquire(struct pen_poison *poison,
                        const struct pen_schedule *schedule,
                        const struct pen_task *task)
{
  for (uint32_t i = 0; poison->on && i < task->n_accesses; i++)
    pen_poison_open(poison, schedule->accesses[task->first_access + i].slot);
}

void pen_poison_release(struct pen_poison *poison,
                        const struct pen_schedule *schedule,
                        const struct pen_task *task)
{
  for (uint32_t i = 0; poison->on && i < task->n_accesses; i++)
    pen_poison_close(poison, schedule->accesses[task->first_access + i].slot);
}
