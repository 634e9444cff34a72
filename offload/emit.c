/* emit.c: tasks, uses and rings while a schedule is being built.
 *
 * Invariant: a task's waits only name tickets given out before it, so the order
 * of emission is an order in which all could run, and no schedule made here can
 * deadlock.  Main thread only.  Disadvantage: a wait is kept per lane, not per
 * task, so on a wide lane it also waits for the tickets before the one meant. */
#include "offload/emit.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static int grow(void **array, size_t *max, size_t elem_bytes)
{
  void *larger = realloc(*array, 2 * *max * elem_bytes);
  if (!larger)
    return pen_error_set(PEN_ENOFIT, "no memory for a schedule of %zu entries",
                         2 * *max);
  *array = larger;
  *max *= 2;
  return 0;
}

/* Room for one more; a fixed schedule that is full is our own mistake, told as
 * such. */
static int make_room(struct pen_emit *e, void **array, size_t n, size_t *max,
                     size_t elem_bytes)
{
  if (n < *max)
    return 0;
  if (e->s->may_grow)
    return grow(array, max, elem_bytes);
  return pen_error_set(PEN_ESCHEDULE,
                       "this step needs more than the %zu entries that the "
                       "largest planned step has",
                       *max);
}

uint32_t pen_emit_task(struct pen_emit *e, enum pen_task_kind kind,
                       enum pen_lane lane, enum pen_guard guard,
                       uint32_t block, uint32_t micro)
{
  struct pen_schedule *s = e->s;
  if (e->rc == 0)
    e->rc = make_room(e, (void **)&s->tasks, s->n_tasks, &s->max_tasks,
                      sizeof *s->tasks);
  if (e->rc < 0)
    return 0;
  uint32_t id = (uint32_t)s->n_tasks++;
  s->tasks[id] = (struct pen_task){.kind = kind,
                                   .lane = lane,
                                   .guard = guard,
                                   .block = block,
                                   .micro = micro,
                                   .tile = PEN_NONE,
                                   .group = e->group,
                                   .first_access = (uint32_t)s->n_accesses,
                                   .ticket = ++s->n_tickets[lane]};
  return id;
}

static void wait_for(struct pen_task *task, const uint32_t tickets[PEN_LANES])
{
  for (int lane = 0; lane < PEN_LANES; lane++) {
    /* On its own narrow lane the order is enough. */
    if (lane == (int)task->lane && !pen_lane_is_wide(task->lane))
      continue;
    if (tickets[lane] > task->wait[lane] &&
        !(lane == (int)task->lane && tickets[lane] >= task->ticket))
      task->wait[lane] = tickets[lane];
  }
}

/* An access is traffic to the memory it lies in, but for bytes on drives and
 * working memory. */
static void count_traffic(const struct pen_emit *e, struct pen_task *task,
                          uint32_t slot, enum pen_access_mode mode,
                          uint64_t bytes)
{
  bool device = e->l->slots[slot].tier == PEN_TIER_DEVICE;
  struct pen_cost *c = &task->cost;
  if (e->l->slots[slot].tier == PEN_TIER_NVME || slot == e->l->work)
    return;
  if (mode != PEN_ACCESS_WRITE)
    *(device ? &c->device_read_bytes : &c->dram_read_bytes) += bytes;
  if (mode != PEN_ACCESS_READ)
    *(device ? &c->device_written_bytes : &c->dram_written_bytes) += bytes;
}

static void use(struct pen_emit *e, uint32_t slot, enum pen_access_mode mode,
                uint64_t offset, uint64_t bytes)
{
  struct pen_schedule *s = e->s;
  if (e->rc == 0)
    e->rc = make_room(e, (void **)&s->accesses, s->n_accesses,
                      &s->max_accesses, sizeof *s->accesses);
  if (e->rc < 0)
    return;
  struct pen_task *task = &s->tasks[s->n_tasks - 1];
  struct pen_slot_use *u = &s->uses[slot];
  s->accesses[s->n_accesses++] =
      (struct pen_access){slot, e->carry->generation[slot], mode, offset, bytes};
  task->n_accesses++;
  count_traffic(e, task, slot, mode, bytes);
  if (mode == PEN_ACCESS_READ) {
    wait_for(task, u->writers);
    u->readers[task->lane] = task->ticket;
  } else {
    wait_for(task, u->before);
    u->writers[task->lane] = task->ticket;
  }
}

void pen_emit_read(struct pen_emit *e, uint32_t slot)
{
  use(e, slot, PEN_ACCESS_READ, 0, e->l->slots[slot].bytes);
}

void pen_emit_read_part(struct pen_emit *e, uint32_t slot, uint64_t offset,
                        uint64_t bytes)
{
  use(e, slot, PEN_ACCESS_READ, offset, bytes);
}

void pen_emit_write(struct pen_emit *e, uint32_t slot)
{
  use(e, slot, PEN_ACCESS_WRITE, 0, e->l->slots[slot].bytes);
}

void pen_emit_write_part(struct pen_emit *e, uint32_t slot, uint64_t offset,
                         uint64_t bytes)
{
  use(e, slot, PEN_ACCESS_WRITE, offset, bytes);
}

void pen_emit_renew(struct pen_emit *e, uint32_t slot)
{
  if (e->rc < 0)
    return;
  struct pen_slot_use *u = &e->s->uses[slot];
  for (int lane = 0; lane < PEN_LANES; lane++) {
    if (u->writers[lane] > u->before[lane])
      u->before[lane] = u->writers[lane];
    if (u->readers[lane] > u->before[lane])
      u->before[lane] = u->readers[lane];
    u->writers[lane] = u->readers[lane] = 0;
  }
  e->carry->generation[slot]++;
}

void pen_emit_modify(struct pen_emit *e, uint32_t slot)
{
  pen_emit_renew(e, slot);
  use(e, slot, PEN_ACCESS_MODIFY, 0, e->l->slots[slot].bytes);
}

void pen_emit_modified(struct pen_emit *e, uint32_t slot, uint64_t bytes)
{
  if (e->rc < 0)
    return;
  bool device = e->l->slots[slot].tier == PEN_TIER_DEVICE;
  struct pen_cost *c = &e->s->tasks[e->s->n_tasks - 1].cost;
  uint64_t untouched = e->l->slots[slot].bytes - bytes;
  *(device ? &c->device_read_bytes : &c->dram_read_bytes) -= untouched;
  *(device ? &c->device_written_bytes : &c->dram_written_bytes) -= untouched;
}

void pen_emit_read_less(struct pen_emit *e, uint32_t slot, uint64_t bytes)
{
  if (e->rc < 0)
    return;
  bool device = e->l->slots[slot].tier == PEN_TIER_DEVICE;
  struct pen_cost *c = &e->s->tasks[e->s->n_tasks - 1].cost;
  *(device ? &c->device_read_bytes : &c->dram_read_bytes) -=
      e->l->slots[slot].bytes - bytes;
}

void pen_emit_traffic(struct pen_emit *e, uint64_t read_bytes,
                      uint64_t written_bytes)
{
  if (e->rc < 0)
    return;
  struct pen_cost *cost = &e->s->tasks[e->s->n_tasks - 1].cost;
  cost->dram_read_bytes = read_bytes;
  cost->dram_written_bytes = written_bytes;
}

uint32_t pen_emit_find(const struct pen_emit *e, struct pen_ring ring,
                       uint32_t object)
{
  for (uint32_t i = 0; i < ring.count; i++)
    if (e->carry->object[ring.first + i] == object)
      return ring.first + i;
  return PEN_NONE;
}

uint32_t pen_emit_take(struct pen_emit *e, struct pen_ring ring,
                       uint32_t object)
{
  for (uint32_t tries = 0; e->rc == 0 && tries < ring.count; tries++) {
    uint32_t *turn = &e->carry->turn[ring.first];
    uint32_t slot = ring.first + *turn;
    *turn = (*turn + 1) % ring.count;
    if (e->s->uses[slot].pins)
      continue;
    e->carry->object[slot] = object;
    pen_emit_renew(e, slot);
    return slot;
  }
  if (e->rc == 0)
    e->rc = pen_error_set(PEN_ESCHEDULE,
                          "a ring of %u slots has all of them in use",
                          ring.count);
  return 0;
}

void pen_emit_forget(struct pen_emit *e, struct pen_ring ring, uint32_t object)
{
  for (uint32_t i = 0; i < ring.count; i++)
    if (e->carry->object[ring.first + i] == object)
      e->carry->object[ring.first + i] = PEN_NONE;
}

void pen_emit_pin(struct pen_emit *e, uint32_t slot)
{
  if (e->rc == 0)
    e->s->uses[slot].pins++;
}

void pen_emit_unpin(struct pen_emit *e, uint32_t slot)
{
  if (e->rc == 0)
    e->s->uses[slot].pins--;
}

static enum pen_task_kind kind_of_copy(enum pen_lane lane)
{
  return lane == PEN_LANE_READ    ? PEN_TASK_READ
         : lane == PEN_LANE_WRITE ? PEN_TASK_WRITE
                                  : PEN_TASK_COPY;
}

static void count_copy(struct pen_emit *e, uint32_t id, uint64_t bytes)
{
  if (e->rc < 0)
    return;
  struct pen_task *task = &e->s->tasks[id];
  if (task->kind == PEN_TASK_COPY)
    task->cost.link_bytes = bytes;
  else
    task->cost.nvme_bytes = bytes;
}

void pen_emit_copy(struct pen_emit *e, enum pen_lane lane,
                   enum pen_guard guard, uint32_t block, uint32_t micro,
                   uint32_t from, uint32_t to, uint64_t bytes)
{
  uint32_t id =
      pen_emit_task(e, kind_of_copy(lane), lane, guard, block, micro);
  pen_emit_read_part(e, from, 0, bytes);
  pen_emit_write_part(e, to, 0, bytes);
  count_copy(e, id, bytes);
}

void pen_emit_copy_part(struct pen_emit *e, enum pen_lane lane, uint32_t from,
                        uint32_t to, uint64_t offset, uint64_t bytes)
{
  uint32_t id = pen_emit_task(e, kind_of_copy(lane), lane, PEN_GUARD_ALWAYS,
                              PEN_NONE, PEN_NONE);
  pen_emit_read_part(e, from, offset, bytes);
  pen_emit_write_part(e, to, offset, bytes);
  count_copy(e, id, bytes);
}

enum pen_tier pen_emit_tier(const struct pen_emit *e, uint32_t slot)
{
  return e->l->slots[slot].tier;
}
