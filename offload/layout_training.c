/* layout_training.c: slots that training alone has: gradients that wait and
 * their sums, optimizer state, and shadows of what is updated early.
 *
 * Once, at start, on the main thread.  Disadvantage: what stays on a device is
 * taken block by block in their order, whatever their sizes. */
#include "offload/layout_part.h"

#include "offload/schedule.h"

static size_t image_bytes(const struct pen_layout_maker *m, size_t elems)
{
  struct pen_tile tile = {.elems = elems};
  return elems ? pen_layout_image_bytes(m->l, &tile) : 0;
}

/* As a device keeps it. */
static size_t state_bytes_of_block(const struct pen_layout_maker *m, size_t block)
{
  size_t elems = m->w->blocks[block].elems, tile = m->l->placement.tile_elems;
  return elems / tile * image_bytes(m, tile) + image_bytes(m, elems % tile);
}

/* Does the device keep all that the update of this block needs? */
static bool stays_near(const struct pen_layout_maker *m, size_t block, size_t sum_bytes,
                       uint64_t *budget)
{
  const struct pen_workload *w = m->w;
  size_t bytes = sum_bytes + state_bytes_of_block(m, block) +
                 pen_slot_aligned(w->blocks[block].elems * w->weight_elem_bytes);
  bool near = m->l->slots[m->l->weight_home[block]].tier == PEN_TIER_DEVICE &&
              bytes <= *budget;
  if (near && *budget != PEN_ALL_BYTES)
    *budget -= bytes;
  return near;
}

/* Does the block's fp32 sum wait for other micro-batches of the step? */
static bool keeps_sum(const struct pen_layout_maker *m, size_t block)
{
  const struct pen_placement *p = &m->l->placement;
  if (pen_workload_is_rows(m->w, block) && !pen_workload_is_head(m->w, block))
    return false;
  return p->group_size < m->w->n_micros_max ||
         (pen_workload_is_head(m->w, block) && pen_layout_keeps_head(m->l, m->w) && p->group_size > 1);
}

static void place_stored(struct pen_layout_maker *m)
{
  struct pen_layout *l = m->l;
  const struct pen_workload *w = m->w;
  const struct pen_placement *p = &l->placement;
  struct pen_layout_budget budget = {0, p->gradients_host_bytes};
  uint64_t near_budget = p->state_device_bytes;
  size_t stored = 0, stored_nvme = 0, tile_grad = 0;
  for (size_t b = 0; b < w->n_blocks; b++) {
    size_t elems = w->blocks[b].elems;
    size_t bytes = pen_slot_aligned(elems * w->weight_elem_bytes);
    size_t sum = keeps_sum(m, b) ? elems * sizeof(float) : 0;
    bool near = stays_near(m, b, pen_slot_aligned(sum), &near_budget);
    enum pen_tier tier = near ? PEN_TIER_DEVICE : pen_layout_take(&budget, false, bytes);
    l->grad_home[b] = pen_layout_add_slot(m, "waiting gradients", tier, true, bytes);
    if (!near)
      pen_layout_mark_arrays(m, l->grad_home[b], 1, p->tile_elems * w->weight_elem_bytes);
    if (tier == PEN_TIER_NVME) {
      stored_nvme = pen_layout_max(stored_nvme, bytes);
      tile_grad = p->tile_elems * w->weight_elem_bytes;
    }
    if (!near && !pen_workload_is_rows(w, b))
      stored = pen_layout_max(stored, bytes);
  }
  l->grad_device = pen_layout_add_ring(m, "gradient ring", PEN_TIER_DEVICE,
                                       p->gradient_slots, p->unified ? 0 : stored);
  l->grad_host = pen_layout_add_ring(m, "gradient ring", PEN_TIER_HOST,
                                     p->gradient_slots, stored_nvme);
  l->tile_grad = pen_layout_add_ring(m, "gradient tile ring", PEN_TIER_HOST,
                                     p->tile_slots, tile_grad);
  pen_layout_mark_arrays(m, l->tile_grad.first, l->tile_grad.count, tile_grad);
}

/* Does one of the embedding's gradients wait on a drive?  What went there does
 * not come back to have rows added. */
static bool any_rows_on_nvme(const struct pen_layout_maker *m)
{
  bool any_nvme = false;
  for (size_t b = m->w->rows_begin; b < m->w->rows_end; b++)
    any_nvme |= m->l->slots[m->l->grad_home[b]].tier == PEN_TIER_NVME;
  return any_nvme;
}

static void place_sums(struct pen_layout_maker *m)
{
  struct pen_layout *l = m->l;
  const struct pen_workload *w = m->w;
  const struct pen_placement *p = &l->placement;
  size_t sum_ring = 0, sum_host = 0;
  l->rows_wait = pen_workload_is_tied(w) && any_rows_on_nvme(m);
  for (size_t b = 0; b < w->n_blocks; b++) {
    size_t sum = w->blocks[b].elems * sizeof(float);
    bool near = l->slots[l->grad_home[b]].tier == PEN_TIER_DEVICE;
    bool has_rows = pen_workload_is_rows(w, b) && pen_workload_is_head(w, b);
    bool whole = keeps_sum(m, b) || (has_rows && l->rows_wait);
    if (pen_workload_is_rows(w, b) && !pen_workload_is_head(w, b))
      continue;
    if (whole)
      l->partial_home[b] = pen_layout_add_slot(m, "gradient sums",
                                               near ? PEN_TIER_DEVICE : PEN_TIER_HOST,
                                               true, sum);
    else if (has_rows && !p->unified)
      sum_host = pen_layout_max(sum_host, sum);
    if (!whole || !(near || p->unified))
      sum_ring = pen_layout_max(sum_ring, sum);
  }
  l->rows_sums = pen_layout_add_slot(m, "gradients of embedding rows",
                                     PEN_TIER_HOST, false, w->rows_bytes);
  if (pen_workload_is_tied(w))
    l->rows_kept = pen_layout_add_slot(m, "gradients of embedding rows",
                                       PEN_TIER_HOST, false, w->rows_bytes);
  l->sum_host = pen_layout_add_ring(m, "gradient ring", PEN_TIER_HOST, p->gradient_slots, sum_host);
  l->grad_sum = pen_layout_add_ring(m, "gradient ring", PEN_TIER_DEVICE,
                                    p->gradient_slots, sum_ring);
}

void pen_layout_place_gradients(struct pen_layout_maker *m)
{
  place_stored(m);
  place_sums(m);
}

/* Bytes of a tile's home in RAM or on the device. */
static size_t home_bytes(const struct pen_layout_maker *m, size_t block,
                         size_t elems)
{
  struct pen_tile tile = {.block = (uint32_t)block, .elems = elems};
  if (!elems)
    return 0;
  return pen_slot_aligned(pen_layout_half_is_weight(m->l, &tile)
                              ? pen_layout_state_bytes(m->l, &tile)
                              : pen_layout_image_bytes(m->l, &tile));
}

/* Of n tiles, the first so many that there is room for. */
static size_t take_tiles(uint64_t *budget, size_t n, size_t bytes)
{
  if (n && *budget != PEN_ALL_BYTES) {
    n = *budget / bytes < n ? *budget / bytes : n;
    *budget -= n * bytes;
  }
  return n;
}

/* Of a block's tiles the first `whole` have a home in `tier`, and the last one
 * if `rest`. */
static void make_tiles(struct pen_layout_maker *m, size_t block,
                       enum pen_tier tier, size_t whole, bool rest)
{
  struct pen_layout *l = m->l;
  size_t elems = m->w->blocks[block].elems, tile_elems = l->placement.tile_elems;
  for (size_t i = 0; i * tile_elems < elems; i++) {
    struct pen_tile *tile = &l->tiles[l->n_tiles++];
    size_t left = elems - i * tile_elems;
    size_t n = left < tile_elems ? left : tile_elems;
    *tile = (struct pen_tile){(uint32_t)block, i * tile_elems, n, PEN_NONE,
                              PEN_NONE, PEN_NONE};
    if (n < tile_elems ? rest : i < whole)
      tile->state_home = pen_layout_add_slot(m, "optimizer state", tier, true,
                                             home_bytes(m, block, n));
    else if (!l->placement.inference)
      tile->store_tile = (uint32_t)l->n_store_tiles++;
    if (tier == PEN_TIER_HOST)
      pen_layout_mark_state(m, tile->state_home, 1, n);
  }
}

/* True where the device keeps it. */
static bool place_block_state(struct pen_layout_maker *m, size_t block,
                              uint64_t *budget)
{
  struct pen_layout *l = m->l;
  const struct pen_placement *p = &l->placement;
  size_t elems = m->w->blocks[block].elems;
  size_t whole = elems / p->tile_elems, rest = elems % p->tile_elems > 0;
  size_t whole_bytes = home_bytes(m, block, p->tile_elems);
  size_t rest_bytes = home_bytes(m, block, elems % p->tile_elems);
  size_t n_tiles = whole + rest;
  bool near = l->slots[l->grad_home[block]].tier == PEN_TIER_DEVICE;
  enum pen_tier tier = near ? PEN_TIER_DEVICE : PEN_TIER_HOST;
  if (!near) {
    whole = take_tiles(budget, whole, whole_bytes);
    rest = take_tiles(budget, rest, rest_bytes);
  }
  uint64_t bytes = whole * whole_bytes + rest * rest_bytes;
  m->states[block] = near ? (struct pen_layout_state){.n_tiles = n_tiles}
                          : (struct pen_layout_state){n_tiles, whole + rest, bytes};
  if (m->outline) {
    l->tier_bytes[tier] += bytes;
    l->n_store_tiles += n_tiles - whole - rest;
  } else {
    make_tiles(m, block, tier, whole, rest);
  }
  return near;
}

void pen_layout_place_state(struct pen_layout_maker *m)
{
  struct pen_layout *l = m->l;
  const struct pen_workload *w = m->w;
  const struct pen_placement *p = &l->placement;
  uint64_t budget = p->state_host_bytes;
  bool any_near = false; /* loaded and saved by way of RAM */
  l->tile_bytes = pen_layout_image_bytes(
      l, &(struct pen_tile){.elems = p->tile_elems});
  for (size_t b = 0; b < w->n_blocks; b++) {
    l->block_tiles[b] = (uint32_t)l->n_tiles;
    if (!p->inference)
      any_near |= place_block_state(m, b, &budget);
    else if (!m->outline)
      make_tiles(m, b, PEN_TIER_HOST, 0, false);
  }
  l->block_tiles[w->n_blocks] = (uint32_t)l->n_tiles;
  bool streams = l->n_store_tiles || any_near || p->inference;
  l->tile_state = pen_layout_add_ring(m, "state tile ring", PEN_TIER_HOST, p->tile_slots,
                                      streams ? l->tile_bytes : 0);
  pen_layout_mark_state(m, l->tile_state.first, l->tile_state.count, p->tile_elems);
}

/* Can the block be updated out of place while backward goes on?  Rows end with
 * backward; a device updates what it keeps in no time worth hiding. */
static bool could_speculate(const struct pen_layout_maker *m, size_t block)
{
  const struct pen_layout *l = m->l;
  const struct pen_layout_state *state = &m->states[block];
  return !l->placement.inference && !pen_workload_is_rows(m->w, block) &&
         l->slots[l->grad_home[block]].tier != PEN_TIER_DEVICE &&
         (state->n_in_ram == state->n_tiles || !l->placement.updates_in_place);
}

/* A slot that may change places with `home`. */
static uint32_t add_shadow(struct pen_layout_maker *m, const char *purpose, uint32_t home)
{
  struct pen_slot like = m->l->slots[home];
  uint32_t id = pen_layout_add_slot(m, purpose, like.tier, true, like.bytes);
  m->l->slots[id].shadow_of = home;
  m->l->slots[id].state_elems = like.state_elems;
  m->l->slots[id].array_bytes = like.array_bytes;
  return id;
}

static void shadow_block(struct pen_layout_maker *m, size_t block)
{
  struct pen_layout *l = m->l;
  l->n_speculative++;
  l->weight_shadow[block] =
      add_shadow(m, "weights updated early", l->weight_home[block]);
  l->n_speculative_store_tiles +=
      m->states[block].n_tiles - m->states[block].n_in_ram;
  if (m->outline)
    l->tier_bytes[PEN_TIER_HOST] += m->states[block].ram_bytes;
  for (uint32_t t = l->block_tiles[block]; t < l->block_tiles[block + 1]; t++) {
    struct pen_tile *tile = &l->tiles[t];
    if (tile->state_home != PEN_NONE)
      tile->state_shadow =
          add_shadow(m, "optimizer state updated early", tile->state_home);
  }
}

/* Spread evenly, so that both what is updated during backward and what is left
 * for the next forward have time to hide in. */
void pen_layout_place_shadows(struct pen_layout_maker *m)
{
  struct pen_layout *l = m->l;
  size_t *wanted = &l->placement.speculative_blocks, seen = 0;
  for (size_t b = 0; b < m->w->n_blocks; b++)
    l->n_could_speculate += could_speculate(m, b);
  if (*wanted > l->n_could_speculate)
    *wanted = l->n_could_speculate;
  for (size_t b = 0; *wanted && b < m->w->n_blocks; b++)
    if (could_speculate(m, b)) {
      size_t before = seen++ * *wanted / l->n_could_speculate;
      if (seen * *wanted / l->n_could_speculate > before)
        shadow_block(m, b);
    }
}
