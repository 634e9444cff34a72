/* move.c: how each kind of bytes travels between its home and its use.
 *
 * An object at home in the tier that needs it is used in place; else it goes
 * through that tier's ring, by way of the host ring when it lives on NVMe and
 * the device's memory is its own.  Main thread, while building.  Disadvantage:
 * whole blocks move, even where only some rows of an embedding are needed. */
#include "offload/move.h"

#include "offload/layout.h"

static const enum pen_guard always = PEN_GUARD_ALWAYS;

uint64_t pen_move_weight_bytes(const struct pen_emit *e, size_t block)
{
  return e->l->slots[e->l->weight_home[block]].bytes;
}

void pen_move_read_counts(struct pen_emit *e, size_t block, size_t n_micros)
{
  size_t owner = e->w->blocks[block].owner;
  pen_emit_read_part(e, e->l->routed_by[block], 0,
                     n_micros * pen_layout_counts_bytes(e->w, owner));
}

/* n_micros: that the guard looks at; 0: fetched in any case. */
static void bring_weight(struct pen_emit *e, enum pen_lane lane, size_t block,
                         size_t n_micros, uint32_t from, uint32_t to)
{
  pen_emit_copy(e, lane, n_micros ? PEN_GUARD_ROUTED : always,
                (uint32_t)block, PEN_NONE, from, to,
                pen_move_weight_bytes(e, block));
  if (n_micros)
    pen_move_read_counts(e, block, n_micros);
}

static uint32_t weight_host(struct pen_emit *e, size_t block, size_t n_micros)
{
  uint32_t home = e->l->weight_home[block], id = (uint32_t)block;
  if (pen_emit_tier(e, home) == PEN_TIER_HOST)
    return home;
  uint32_t slot = pen_emit_find(e, e->l->weight_host, id);
  if (slot != PEN_NONE)
    return slot;
  slot = pen_emit_take(e, e->l->weight_host, id);
  enum pen_lane lane = pen_emit_tier(e, home) == PEN_TIER_NVME
                           ? PEN_LANE_READ
                           : PEN_LANE_DOWNLOAD;
  bring_weight(e, lane, block, n_micros, home, slot);
  return slot;
}

static uint32_t weight(struct pen_emit *e, size_t block, size_t n_micros)
{
  uint32_t home = e->l->weight_home[block], id = (uint32_t)block;
  if (pen_emit_tier(e, home) == e->l->compute_tier)
    return home;
  if (e->l->compute_tier == PEN_TIER_HOST)
    return weight_host(e, block, n_micros);
  uint32_t slot = pen_emit_find(e, e->l->weight_device, id);
  if (slot != PEN_NONE)
    return slot;
  uint32_t from = weight_host(e, block, n_micros);
  slot = pen_emit_take(e, e->l->weight_device, id);
  bring_weight(e, PEN_LANE_UPLOAD, block, n_micros, from, slot);
  return slot;
}

uint32_t pen_move_weight_host(struct pen_emit *e, size_t block)
{
  return weight_host(e, block, 0);
}

uint32_t pen_move_weight(struct pen_emit *e, size_t block)
{
  return weight(e, block, 0);
}

uint32_t pen_move_expert(struct pen_emit *e, size_t block, size_t n_micros)
{
  return weight(e, block, n_micros);
}

/* A slot whose fetch was left out holds nothing that anyone may find there. */
void pen_move_expert_done(struct pen_emit *e, size_t block)
{
  pen_emit_forget(e, e->l->weight_host, (uint32_t)block);
  pen_emit_forget(e, e->l->weight_device, (uint32_t)block);
}

/* Whole pages, as drives want them. */
static uint64_t act_bytes(const struct pen_emit *e)
{
  return e->l->slots[e->l->act_home[0]].bytes;
}

static struct pen_ring act_ring(const struct pen_emit *e)
{
  return e->l->compute_tier == PEN_TIER_HOST ? e->l->act_host
                                             : e->l->act_device;
}

static uint32_t act_object(const struct pen_emit *e, size_t body, size_t j)
{
  return (uint32_t)(body * e->l->placement.group_size + j);
}

uint32_t pen_move_act_begin(struct pen_emit *e, size_t body, size_t j)
{
  uint32_t object = act_object(e, body, j), home = e->l->act_home[object];
  pen_emit_forget(e, e->l->act_host, object);
  pen_emit_forget(e, e->l->act_device, object);
  if (pen_emit_tier(e, home) != e->l->compute_tier)
    return pen_emit_take(e, act_ring(e), object);
  pen_emit_renew(e, home);
  return home;
}

void pen_move_act_end(struct pen_emit *e, size_t body, size_t j,
                      uint32_t slot, uint32_t micro)
{
  uint32_t object = act_object(e, body, j), home = e->l->act_home[object];
  uint32_t block = (uint32_t)(e->w->body_begin + body);
  if (slot == home)
    return;
  bool on_host = pen_emit_tier(e, slot) == PEN_TIER_HOST;
  if (!on_host && pen_emit_tier(e, home) == PEN_TIER_NVME) {
    uint32_t staging = pen_emit_take(e, e->l->act_host, object);
    pen_emit_copy(e, PEN_LANE_DOWNLOAD, always, block, micro, slot, staging,
                  act_bytes(e));
    slot = staging;
    on_host = true;
  }
  pen_emit_renew(e, home);
  pen_emit_copy(e, on_host ? PEN_LANE_WRITE : PEN_LANE_DOWNLOAD, always,
                block, micro, slot, home, act_bytes(e));
}

uint32_t pen_move_act(struct pen_emit *e, size_t body, size_t j,
                      uint32_t micro)
{
  uint32_t object = act_object(e, body, j), home = e->l->act_home[object];
  uint32_t block = (uint32_t)(e->w->body_begin + body);
  if (pen_emit_tier(e, home) == e->l->compute_tier)
    return home;
  uint32_t slot = pen_emit_find(e, act_ring(e), object);
  if (slot != PEN_NONE)
    return slot;
  uint32_t from = home;
  if (pen_emit_tier(e, home) == PEN_TIER_NVME) {
    from = pen_emit_find(e, e->l->act_host, object);
    if (from == PEN_NONE) {
      from = pen_emit_take(e, e->l->act_host, object);
      pen_emit_copy(e, PEN_LANE_READ, always, block, micro, home, from,
                    act_bytes(e));
    }
    if (e->l->compute_tier == PEN_TIER_HOST)
      return from;
  }
  slot = pen_emit_take(e, e->l->act_device, object);
  pen_emit_copy(e, PEN_LANE_UPLOAD, always, block, micro, from, slot,
                act_bytes(e));
  return slot;
}

uint64_t pen_move_sum_bytes(const struct pen_emit *e, size_t block)
{
  return e->w->blocks[block].elems * sizeof(float);
}

static bool sums_at_home(const struct pen_emit *e, size_t block)
{
  uint32_t home = e->l->partial_home[block];
  return home != PEN_NONE && pen_emit_tier(e, home) == e->l->compute_tier;
}

uint32_t pen_move_sum_begin(struct pen_emit *e, size_t block, bool first)
{
  uint32_t id = (uint32_t)block, home = e->l->partial_home[block];
  uint32_t slot;
  if (sums_at_home(e, block)) {
    slot = home;
    if (first)
      pen_emit_renew(e, slot);
  } else {
    slot = pen_emit_take(e, e->l->grad_sum, id);
  }
  if (first) {
    pen_emit_task(e, PEN_TASK_ZERO, PEN_LANE_COMPUTE, always, id, PEN_NONE);
    pen_emit_write_part(e, slot, 0, pen_move_sum_bytes(e, block));
  } else if (slot != home) {
    pen_emit_copy(e, PEN_LANE_UPLOAD, always, id, PEN_NONE, home, slot,
                  pen_move_sum_bytes(e, block));
  }
  return slot;
}

void pen_move_sum_keep(struct pen_emit *e, size_t block, uint32_t slot)
{
  uint32_t home = e->l->partial_home[block];
  if (slot == home)
    return;
  pen_emit_renew(e, home);
  pen_emit_copy(e, PEN_LANE_DOWNLOAD, always, (uint32_t)block, PEN_NONE, slot,
                home, pen_move_sum_bytes(e, block));
}

uint32_t pen_move_sum_host(struct pen_emit *e, size_t block, uint32_t slot)
{
  uint32_t home = e->l->partial_home[block];
  if (home != PEN_NONE && pen_emit_tier(e, home) == PEN_TIER_HOST) {
    pen_move_sum_keep(e, block, slot);
    return home;
  }
  if (pen_emit_tier(e, slot) == PEN_TIER_HOST)
    return slot;
  uint32_t down = pen_emit_take(e, e->l->sum_host, (uint32_t)block);
  pen_emit_copy(e, PEN_LANE_DOWNLOAD, always, (uint32_t)block, PEN_NONE, slot,
                down, pen_move_sum_bytes(e, block));
  return down;
}

uint32_t pen_move_grad_begin(struct pen_emit *e, size_t block, bool on_host)
{
  uint32_t id = (uint32_t)block, home = e->l->grad_home[block];
  if (!on_host && e->l->compute_tier == PEN_TIER_DEVICE &&
      pen_emit_tier(e, home) != PEN_TIER_DEVICE)
    return pen_emit_take(e, e->l->grad_device, id);
  if (pen_emit_tier(e, home) == PEN_TIER_NVME)
    return pen_emit_take(e, e->l->grad_host, id);
  pen_emit_renew(e, home);
  return home;
}

uint32_t pen_move_grad_end(struct pen_emit *e, size_t block, uint32_t slot)
{
  uint32_t id = (uint32_t)block, home = e->l->grad_home[block];
  if (slot == home)
    return home;
  bool to_nvme = pen_emit_tier(e, home) == PEN_TIER_NVME;
  if (to_nvme && pen_emit_tier(e, slot) == PEN_TIER_DEVICE) {
    uint32_t staging = pen_emit_take(e, e->l->grad_host, id);
    pen_emit_copy(e, PEN_LANE_DOWNLOAD, always, id, PEN_NONE, slot, staging,
                  pen_move_weight_bytes(e, block));
    slot = staging;
  }
  pen_emit_renew(e, home);
  pen_emit_copy(e, to_nvme ? PEN_LANE_WRITE : PEN_LANE_DOWNLOAD, always, id,
                PEN_NONE, slot, home, pen_move_weight_bytes(e, block));
  return to_nvme ? slot : home;
}
