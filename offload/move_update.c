/* move_update.c: the update of a block, tile by tile: in place once its step is
 * decided, or out of place before that.
 *
 * In place: state and gradient come to RAM, AdamW, state and weights go home.
 * Out of place: the same, but what is new goes to the shadows of its homes and to
 * free extents of the store; whether it takes the homes' place is decided between
 * the steps.  Gradient, old state and old weights stay until then, so that
 * nothing has to be undone.  Main thread, while building.  Disadvantage: shadows
 * are of whole blocks. */
#include "offload/layout.h"
#include "offload/move.h"

static const enum pen_guard always = PEN_GUARD_ALWAYS;

static void set_tile(struct pen_emit *e, uint32_t task, uint32_t tile,
                     uint64_t nvme_bytes)
{
  if (e->rc < 0)
    return;
  e->s->tasks[task].tile = tile;
  e->s->tasks[task].cost.nvme_bytes = nvme_bytes;
}

static uint64_t page_up(uint64_t bytes)
{
  return (bytes + PEN_SLOT_ALIGN - 1) / PEN_SLOT_ALIGN * PEN_SLOT_ALIGN;
}

/* What a tile's task uses of its block's weights and gradient. */
struct part {
  uint64_t offset, bytes;
};

static struct part part_of(const struct pen_emit *e, const struct pen_tile *tile)
{
  size_t elem = e->w->weight_elem_bytes;
  return (struct part){tile->begin * elem, page_up(tile->elems * elem)};
}

/* A tile's state from the store, as the step's last write left it, into a slot
 * of its ring. */
static uint32_t read_tile(struct pen_emit *e, uint32_t number,
                          enum pen_guard guard)
{
  const struct pen_tile *tile = &e->l->tiles[number];
  uint64_t bytes = pen_layout_half_is_weight(e->l, tile)
                       ? pen_layout_half_offset(e->l, tile)
                       : pen_layout_image_bytes(e->l, tile);
  uint32_t state = pen_emit_take(e, e->l->tile_state, number);
  uint32_t task = pen_emit_task(e, PEN_TASK_READ_TILE, PEN_LANE_READ, guard,
                                tile->block, PEN_NONE);
  pen_emit_write_part(e, state, 0, bytes);
  set_tile(e, task, number, bytes);
  uint32_t written = e->s->written[number];
  if (e->rc == 0 && e->s->tasks[task].wait[PEN_LANE_WRITE] < written)
    e->s->tasks[task].wait[PEN_LANE_WRITE] = written;
  return state;
}

/* What goes to the store.  Halves that lie in RAM are wanted there by commits
 * alone; what is aside may come to be committed. */
static uint64_t written_bytes(const struct pen_emit *e,
                              const struct pen_tile *tile, bool aside)
{
  return pen_layout_half_is_weight(e->l, tile) && !e->commits && !aside
             ? pen_layout_half_offset(e->l, tile)
             : pen_layout_image_bytes(e->l, tile);
}

static void write_tile(struct pen_emit *e, enum pen_task_kind kind,
                       uint32_t number, uint32_t state, enum pen_guard guard)
{
  const struct pen_tile *tile = &e->l->tiles[number];
  uint64_t bytes = written_bytes(e, tile, kind == PEN_TASK_WRITE_ASIDE);
  uint32_t task = pen_emit_task(e, kind, PEN_LANE_WRITE, guard, tile->block,
                                PEN_NONE);
  pen_emit_read_part(e, state, 0, bytes);
  set_tile(e, task, number, bytes);
  if (e->rc == 0 && kind == PEN_TASK_WRITE_TILE)
    e->s->written[number] = e->s->tasks[task].ticket;
}

/* ---- in place ---- */

/* The update itself.  What of the weights it reads is their old content: it is
 * ordered behind all uses of that as any filling is. */
static void emit_update(struct pen_emit *e, uint32_t number, uint32_t state,
                        uint32_t grad, uint32_t weights, enum pen_guard guard)
{
  const struct pen_tile *tile = &e->l->tiles[number];
  struct part part = part_of(e, tile);
  bool in_place = pen_layout_half_is_weight(e->l, tile);
  bool makes_image = tile->state_home == PEN_NONE && e->commits;
  bool keeps_image = makes_image || !in_place;
  bool near = pen_emit_tier(e, state) == PEN_TIER_DEVICE;
  uint32_t task = pen_emit_task(e, PEN_TASK_UPDATE,
                                near ? PEN_LANE_COMPUTE : PEN_LANE_UPDATE,
                                guard, tile->block, PEN_NONE);
  pen_emit_read_part(e, grad,
                     grad == e->l->grad_home[tile->block] ? part.offset : 0,
                     part.bytes);
  pen_emit_modify(e, state);
  pen_emit_modified(e, state, keeps_image ? pen_layout_image_bytes(e->l, tile)
                                          : pen_layout_half_offset(e->l, tile));
  pen_emit_write_part(e, weights, part.offset, part.bytes);
  set_tile(e, task, number, 0);
  if (e->rc < 0 || near)
    return;
  struct pen_cost *cost = &e->s->tasks[task].cost;
  cost->update_elems = tile->elems;
  if (in_place && !keeps_image)
    cost->dram_read_bytes += part.bytes;
}

/* One tile: its gradient and state to RAM, AdamW, its state back; or where they
 * are, by the device that keeps them.  Its weights go to their place in
 * `weights`. */
static void update_tile(struct pen_emit *e, uint32_t number, uint32_t weights,
                        enum pen_guard guard)
{
  const struct pen_tile *tile = &e->l->tiles[number];
  struct part part = part_of(e, tile);
  uint32_t grad_home = e->l->grad_home[tile->block], grad = grad_home;
  if (pen_emit_tier(e, grad_home) == PEN_TIER_NVME) {
    grad = pen_emit_take(e, e->l->tile_grad, number);
    uint32_t task = pen_emit_task(e, PEN_TASK_READ, PEN_LANE_READ, guard,
                                  tile->block, PEN_NONE);
    pen_emit_read_part(e, grad_home, part.offset, part.bytes);
    pen_emit_write_part(e, grad, 0, part.bytes);
    set_tile(e, task, number, part.bytes);
  }
  uint32_t state = tile->state_home;
  if (state == PEN_NONE)
    state = read_tile(e, number, guard);
  emit_update(e, number, state, grad, weights, guard);
  if (tile->state_home == PEN_NONE)
    write_tile(e, PEN_TASK_WRITE_TILE, number, state, guard);
}

/* Of tiles whose heads steps without a commit have written, for one that does and
 * may not write them anew. */
void pen_move_halves(struct pen_emit *e, size_t block, enum pen_guard guard)
{
  for (uint32_t t = e->l->block_tiles[block]; t < e->l->block_tiles[block + 1];
       t++) {
    const struct pen_tile *tile = &e->l->tiles[t];
    if (tile->state_home != PEN_NONE || !pen_layout_half_is_weight(e->l, tile))
      continue;
    struct part part = part_of(e, tile);
    uint32_t task = pen_emit_task(e, PEN_TASK_WRITE_HALVES, PEN_LANE_WRITE,
                                  guard, tile->block, PEN_NONE);
    pen_emit_read_part(e, e->l->weight_home[block], part.offset, part.bytes);
    set_tile(e, task, t, part.bytes);
    if (e->rc == 0)
      e->s->written[t] = e->s->tasks[task].ticket;
  }
}

uint32_t pen_move_state_host(struct pen_emit *e, uint32_t tile)
{
  const struct pen_tile *t = &e->l->tiles[tile];
  uint32_t home = t->state_home;
  if (pen_emit_tier(e, home) == PEN_TIER_HOST)
    return home;
  uint32_t slot = pen_emit_take(e, e->l->tile_state, tile);
  pen_emit_copy(e, PEN_LANE_DOWNLOAD, always, t->block, PEN_NONE, home, slot,
                e->l->slots[home].bytes);
  return slot;
}

/* A tile's weights to the device that keeps them, while the next tile is updated. */
static void send_tile(struct pen_emit *e, uint32_t number, uint32_t from,
                      uint32_t to, enum pen_guard guard)
{
  const struct pen_tile *tile = &e->l->tiles[number];
  struct part part = part_of(e, tile);
  uint32_t task = pen_emit_task(e, PEN_TASK_COPY, PEN_LANE_UPLOAD, guard,
                                tile->block, PEN_NONE);
  pen_emit_read_part(e, from, part.offset, part.bytes);
  pen_emit_write_part(e, to, part.offset, part.bytes);
  set_tile(e, task, number, 0);
  if (e->rc == 0)
    e->s->tasks[task].cost.link_bytes = part.bytes;
}

/* When an update is skipped the weights on the drive stand: they are brought
 * instead, so that the ring slot is right either way. */
static void send_block(struct pen_emit *e, size_t block, uint32_t weights,
                       bool again, enum pen_guard guard)
{
  uint32_t id = (uint32_t)block, home = e->l->weight_home[block];
  uint64_t bytes = pen_move_weight_bytes(e, block);
  if (!again)
    pen_emit_copy(e, PEN_LANE_READ, PEN_GUARD_SKIP, id, PEN_NONE, home, weights,
                  bytes);
  pen_emit_renew(e, home);
  pen_emit_copy(e, PEN_LANE_WRITE, guard, id, PEN_NONE, weights, home, bytes);
}

void pen_move_update(struct pen_emit *e, size_t block)
{
  uint32_t id = (uint32_t)block, home = e->l->weight_home[block];
  enum pen_tier tier = pen_emit_tier(e, home);
  uint32_t weights = home;
  bool again = e->carry->speculated && e->l->weight_shadow[block] != PEN_NONE;
  enum pen_guard guard = again ? PEN_GUARD_REDO : PEN_GUARD_APPLY;
  pen_emit_forget(e, e->l->weight_host, id);
  pen_emit_forget(e, e->l->weight_device, id);
  bool in_place = tier == PEN_TIER_HOST ||
                  pen_emit_tier(e, e->l->grad_home[block]) == PEN_TIER_DEVICE;
  if (!in_place)
    weights = pen_emit_take(e, e->l->weight_host, id);
  if (tier != PEN_TIER_NVME)
    pen_emit_renew(e, home);
  pen_emit_pin(e, weights);
  for (uint32_t t = e->l->block_tiles[block]; t < e->l->block_tiles[block + 1];
       t++) {
    update_tile(e, t, weights, guard);
    if (!in_place && tier == PEN_TIER_DEVICE)
      send_tile(e, t, weights, home, guard);
  }
  pen_emit_unpin(e, weights);
  if (e->commits && e->carry->halves_due)
    pen_move_halves(e, block, PEN_GUARD_SKIP);
  if (tier == PEN_TIER_NVME)
    send_block(e, block, weights, again, guard);
  if (!in_place && (again || tier == PEN_TIER_DEVICE))
    pen_emit_forget(e, e->l->weight_host, id); /* right only if it was updated */
}

/* ---- out of place ---- */

static void speculate_tile(struct pen_emit *e, uint32_t number, uint32_t grad,
                           uint32_t weights)
{
  const struct pen_tile *tile = &e->l->tiles[number];
  struct part part = part_of(e, tile);
  bool in_store = tile->state_home == PEN_NONE;
  uint32_t state = tile->state_shadow;
  if (in_store)
    state = read_tile(e, number, always);
  else
    pen_emit_renew(e, state);
  uint32_t task = pen_emit_task(e, PEN_TASK_SPECULATE, PEN_LANE_UPDATE, always,
                                tile->block, PEN_NONE);
  pen_emit_read_part(e, grad, part.offset, part.bytes);
  if (in_store) {
    pen_emit_modify(e, state);
    pen_emit_modified(e, state, pen_layout_image_bytes(e->l, tile));
  } else {
    pen_emit_write(e, state);
  }
  pen_emit_write_part(e, weights, part.offset, part.bytes);
  if (!in_store)
    pen_emit_read(e, tile->state_home);
  if (pen_layout_half_is_weight(e->l, tile))
    pen_emit_read_part(e, e->l->weight_home[tile->block], part.offset,
                       part.bytes);
  set_tile(e, task, number, 0);
  if (e->rc == 0) {
    struct pen_cost *cost = &e->s->tasks[task].cost;
    cost->update_elems = tile->elems;
    if (!in_store) /* a line that is filled is fetched before */
      cost->dram_read_bytes += e->l->slots[state].bytes;
  }
  if (in_store)
    write_tile(e, PEN_TASK_WRITE_ASIDE, number, state, always);
}

void pen_move_speculate(struct pen_emit *e, size_t block, uint32_t grad)
{
  uint32_t shadow = e->l->weight_shadow[block], weights = shadow;
  enum pen_tier tier = pen_emit_tier(e, shadow);
  if (tier == PEN_TIER_HOST)
    pen_emit_renew(e, shadow);
  else /* nobody may find it as the block's: it is not yet */
    weights = pen_emit_take(e, e->l->weight_host, PEN_NONE);
  pen_emit_pin(e, weights);
  if (tier == PEN_TIER_DEVICE)
    pen_emit_renew(e, shadow);
  for (uint32_t t = e->l->block_tiles[block]; t < e->l->block_tiles[block + 1];
       t++) {
    speculate_tile(e, t, grad, weights);
    if (tier == PEN_TIER_DEVICE)
      send_tile(e, t, weights, shadow, always);
  }
  pen_emit_unpin(e, weights);
  if (tier != PEN_TIER_NVME)
    return;
  pen_emit_renew(e, shadow);
  pen_emit_copy(e, PEN_LANE_WRITE, always, (uint32_t)block, PEN_NONE, weights,
                shadow, pen_move_weight_bytes(e, block));
}
