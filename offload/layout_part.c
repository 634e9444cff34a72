/* layout_part.c: makes slots and rings, numbered and laid out in the order in
 * which they are asked for.
 *
 * Every slot starts on a page of its tier's arena.  At start, on the main thread. */
#include "offload/layout_part.h"

#include <assert.h>

#include "offload/schedule.h"

uint32_t pen_layout_add_slot(struct pen_layout_maker *m, const char *purpose,
                             enum pen_tier tier, bool home, size_t bytes)
{
  struct pen_layout *l = m->l;
  if (bytes == 0)
    return PEN_NONE;
  assert(l->n_slots < m->max_slots);
  if (l->placement.unified && tier == PEN_TIER_DEVICE)
    tier = PEN_TIER_HOST;
  uint32_t id = (uint32_t)l->n_slots++;
  l->slots[id] = (struct pen_slot){.purpose = purpose,
                                   .tier = tier,
                                   .home = home,
                                   .bytes = pen_slot_aligned(bytes),
                                   .offset = l->tier_bytes[tier],
                                   .shadow_of = PEN_NONE};
  l->tier_bytes[tier] += pen_slot_aligned(bytes);
  return id;
}

struct pen_ring pen_layout_add_ring(struct pen_layout_maker *m, const char *purpose,
                                    enum pen_tier tier, size_t count, size_t bytes)
{
  if (bytes == 0 || count == 0)
    return (struct pen_ring){PEN_NONE, 0};
  struct pen_ring ring = {(uint32_t)m->l->n_slots, (uint32_t)count};
  for (size_t i = 0; i < count; i++)
    pen_layout_add_slot(m, purpose, tier, false, bytes);
  return ring;
}

void pen_layout_mark_arrays(struct pen_layout_maker *m, uint32_t first, size_t count, size_t bytes)
{
  for (size_t i = 0; first != PEN_NONE && i < count; i++)
    m->l->slots[first + i].array_bytes = bytes;
}

void pen_layout_mark_state(struct pen_layout_maker *m, uint32_t first, size_t count, size_t elems)
{
  for (size_t i = 0; first != PEN_NONE && i < count; i++)
    m->l->slots[first + i].state_elems = elems;
}

enum pen_tier pen_layout_take(struct pen_layout_budget *budget, bool device_allowed, size_t bytes)
{
  if (device_allowed && budget->device >= bytes) {
    if (budget->device != PEN_ALL_BYTES)
      budget->device -= bytes;
    return PEN_TIER_DEVICE;
  }
  if (budget->host >= bytes) {
    if (budget->host != PEN_ALL_BYTES)
      budget->host -= bytes;
    return PEN_TIER_HOST;
  }
  return PEN_TIER_NVME;
}
