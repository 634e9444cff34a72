/* emit.h: the builder's words: add a task, let it use a slot, take a slot of a
 * ring.  Waits follow from the uses; nobody writes a dependency by hand. */
#ifndef PEN_OFFLOAD_EMIT_H
#define PEN_OFFLOAD_EMIT_H

#include "offload/schedule.h"

/* One build in progress. */
struct pen_emit {
  const struct pen_workload *w;
  const struct pen_layout *l;
  const struct pen_shape *shape;
  struct pen_carry *carry;
  struct pen_schedule *s;
  bool commits;   /* a commit ends the step's updates */
  uint32_t group; /* of micro-batches, being laid out */
  int rc;         /* first failure; later words do nothing */
};

/* Adds a task at the end of its lane and returns its index; uses of it must
 * follow before the next task begins. */
uint32_t pen_emit_task(struct pen_emit *e, enum pen_task_kind kind,
                       enum pen_lane lane, enum pen_guard guard,
                       uint32_t block, uint32_t micro);

/* The newest task reads `slot`, whole or in part: it waits for every writer of
 * the present generation. */
void pen_emit_read(struct pen_emit *e, uint32_t slot);
void pen_emit_read_part(struct pen_emit *e, uint32_t slot, uint64_t offset,
                        uint64_t bytes);
/* Begins a new generation of `slot` (before its first writer). */
void pen_emit_renew(struct pen_emit *e, uint32_t slot);
/* The newest task fills `slot`, or a part of it: it waits for every user of
 * earlier generations, not for other writers of this one. */
void pen_emit_write(struct pen_emit *e, uint32_t slot);
void pen_emit_write_part(struct pen_emit *e, uint32_t slot, uint64_t offset,
                         uint64_t bytes);
/* The newest task changes `slot` in place: renews it and waits for all. */
void pen_emit_modify(struct pen_emit *e, uint32_t slot);
/* Of the slot it modifies, the newest task touches only the first `bytes`: a
 * ring's slots are as large as its largest object.  Only the cost changes. */
void pen_emit_modified(struct pen_emit *e, uint32_t slot, uint64_t bytes);
/* The same of a slot it reads. */
void pen_emit_read_less(struct pen_emit *e, uint32_t slot, uint64_t bytes);
/* The newest task's traffic to RAM, where accesses declare more than it is. */
void pen_emit_traffic(struct pen_emit *e, uint64_t read_bytes,
                      uint64_t written_bytes);

/* The ring slot that holds `object`, or PEN_NONE. */
uint32_t pen_emit_find(const struct pen_emit *e, struct pen_ring ring,
                       uint32_t object);
/* The next unpinned slot of `ring`, renewed, to hold `object`. */
uint32_t pen_emit_take(struct pen_emit *e, struct pen_ring ring,
                       uint32_t object);
/* No slot of `ring` holds `object` any more. */
void pen_emit_forget(struct pen_emit *e, struct pen_ring ring,
                     uint32_t object);
/* While pinned, a slot is not handed out by its ring. */
void pen_emit_pin(struct pen_emit *e, uint32_t slot);
void pen_emit_unpin(struct pen_emit *e, uint32_t slot);

/* Copies an object's bytes from the start of one slot to the start of another:
 * device <-> host, host <-> nvme.  `to` must have been renewed. */
void pen_emit_copy(struct pen_emit *e, enum pen_lane lane,
                   enum pen_guard guard, uint32_t block, uint32_t micro,
                   uint32_t from, uint32_t to, uint64_t bytes);
/* Copies a part to the same place in the other slot. */
void pen_emit_copy_part(struct pen_emit *e, enum pen_lane lane,
                        uint32_t from, uint32_t to, uint64_t offset,
                        uint64_t bytes);

enum pen_tier pen_emit_tier(const struct pen_emit *e, uint32_t slot);

#endif
