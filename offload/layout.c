/* layout.c: from a placement's budgets to numbered slots.
 *
 * Homes come first, ring and working slots after; every slot starts on a page
 * of its tier's arena, in the order of its number.  A ring exists only where
 * some object needs it, so the sum over slots is the memory of the run.
 * Runs once, at start, on the main thread.  Disadvantage: a ring's slots are as
 * large as its largest object, so one big block makes the whole ring big. */
#include "offload/layout.h"

#include <assert.h>
#include <stdlib.h>

#include "base/error.h"
#include "offload/schedule.h"

struct budget {
  uint64_t device, host;
};

struct maker {
  struct pen_layout *l;
  const struct pen_workload *w;
  size_t max_slots;
};

/* A zero-byte slot is no slot. */
static uint32_t add_slot(struct maker *m, const char *purpose,
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

static struct pen_ring add_ring(struct maker *m, const char *purpose,
                                enum pen_tier tier, size_t count, size_t bytes)
{
  if (bytes == 0 || count == 0)
    return (struct pen_ring){PEN_NONE, 0};
  struct pen_ring ring = {(uint32_t)m->l->n_slots, (uint32_t)count};
  for (size_t i = 0; i < count; i++)
    add_slot(m, purpose, tier, false, bytes);
  return ring;
}

/* Update workers go through arrays of `bytes` in these slots. */
static void mark_arrays(struct maker *m, uint32_t first, size_t count,
                        size_t bytes)
{
  for (size_t i = 0; first != PEN_NONE && i < count; i++)
    m->l->slots[first + i].array_bytes = bytes;
}

/* Update workers go through the state of `elems` elements there. */
static void mark_state(struct maker *m, uint32_t first, size_t count,
                       size_t elems)
{
  for (size_t i = 0; first != PEN_NONE && i < count; i++)
    m->l->slots[first + i].state_elems = elems;
}

static enum pen_tier take(struct budget *budget, bool device_allowed,
                          size_t bytes)
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

static bool is_rows(const struct pen_workload *w, size_t block)
{
  return block >= w->rows_begin && block < w->rows_end;
}

static bool is_head(const struct pen_workload *w, size_t block)
{
  return block >= w->head_begin && block < w->head_end;
}


static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

static bool keeps_head(const struct pen_placement *p,
                       const struct pen_workload *w)
{
  return !p->inference &&
         p->recompute_head_blocks < w->head_end - w->head_begin;
}

bool pen_layout_keeps_head(const struct pen_layout *layout,
                           const struct pen_workload *workload)
{
  return keeps_head(&layout->placement, workload);
}

static void place_weights(struct maker *m)
{
  struct pen_layout *l = m->l;
  const struct pen_workload *w = m->w;
  const struct pen_placement *p = &l->placement;
  struct budget budget = {p->weights_device_bytes, p->weights_host_bytes};
  size_t host_ring = 0, device_ring = 0;
  for (size_t b = 0; b < w->n_blocks; b++) {
    size_t bytes = pen_slot_aligned(w->blocks[b].elems * w->weight_elem_bytes);
    /* The host gathers rows, so their home is never the device. */
    enum pen_tier tier = take(&budget, !p->unified && !is_rows(w, b), bytes);
    l->weight_home[b] = add_slot(m, "weights", tier, true, bytes);
    mark_arrays(m, l->weight_home[b], 1, p->tile_elems * w->weight_elem_bytes);
    if (tier != PEN_TIER_HOST)
      host_ring = max_size(host_ring, bytes);
    bool computes = !is_rows(w, b) || is_head(w, b);
    if (!p->unified && tier != PEN_TIER_DEVICE && computes)
      device_ring = max_size(device_ring, bytes);
  }
  l->weight_host = add_ring(m, "weight ring", PEN_TIER_HOST, p->weight_slots,
                            host_ring);
  l->weight_device = add_ring(m, "weight ring", PEN_TIER_DEVICE,
                              p->weight_slots, device_ring);
}

static void place_activations(struct maker *m)
{
  struct pen_layout *l = m->l;
  const struct pen_workload *w = m->w;
  const struct pen_placement *p = &l->placement;
  size_t group = p->group_size, n_body = w->body_end - w->body_begin;
  bool any_nvme = false, any_off_device = false;
  struct budget budget = {p->activations_device_bytes,
                          p->activations_host_bytes};
  assert(w->inputs_bytes > 0);
  if (p->unified) {
    budget.host = p->activations_device_bytes > PEN_ALL_BYTES - budget.host
                      ? PEN_ALL_BYTES
                      : budget.host + p->activations_device_bytes;
    budget.device = 0;
  }
  /* Backward needs the last ones first: they stay closest. */
  for (size_t i = n_body; i-- > 1;)
    for (size_t j = 0; j < group; j++) {
      enum pen_tier tier =
          take(&budget, !p->unified, pen_slot_aligned(w->act_bytes));
      any_nvme |= tier == PEN_TIER_NVME;
      any_off_device |= tier != PEN_TIER_DEVICE;
      l->act_home[i * group + j] =
          add_slot(m, "activation checkpoints", tier, true, w->act_bytes);
    }
  for (size_t j = 0; j < group; j++) {
    l->inputs[j] = l->inputs_host[j] = add_slot(
        m, "inputs of micro-batches", PEN_TIER_HOST, false, w->inputs_bytes);
    if (!p->unified)
      l->inputs[j] = add_slot(m, "inputs of micro-batches", PEN_TIER_DEVICE,
                              false, w->inputs_bytes);
    l->act_home[j] = add_slot(m, "activation checkpoints", PEN_TIER_DEVICE,
                              true, w->act_bytes);
    if (!p->unified)
      l->rows_x[j] = add_slot(m, "embedding rows", PEN_TIER_HOST, false,
                              w->act_bytes);
  }
  l->act_host = add_ring(m, "activation ring", PEN_TIER_HOST,
                         p->activation_slots, any_nvme ? w->act_bytes : 0);
  l->act_device =
      add_ring(m, "activation ring", PEN_TIER_DEVICE, p->activation_slots,
               !p->unified && any_off_device ? w->act_bytes : 0);
  for (size_t i = p->recompute_blocks; !p->inference && i < n_body; i++)
    for (size_t j = 0; j < group; j++)
      l->saved[i * group + j] =
          add_slot(m, "saved for backward", PEN_TIER_DEVICE, false,
                   w->blocks[w->body_begin + i].saved_bytes);
  if (!keeps_head(p, w))
    return;
  for (size_t b = w->head_begin + p->recompute_head_blocks; b < w->head_end;
       b++)
    l->head_saved[b] = add_slot(m, "logits kept for backward", PEN_TIER_DEVICE,
                                false, w->blocks[b].saved_bytes);
}

static size_t image_bytes(const struct maker *m, size_t elems)
{
  struct pen_tile tile = {.elems = elems};
  return elems ? pen_layout_image_bytes(m->l, &tile) : 0;
}

/* As a device keeps it. */
static size_t state_bytes_of_block(const struct maker *m, size_t block)
{
  size_t elems = m->w->blocks[block].elems, tile = m->l->placement.tile_elems;
  return elems / tile * image_bytes(m, tile) + image_bytes(m, elems % tile);
}

/* Does the device keep all that the update of this block needs? */
static bool stays_near(const struct maker *m, size_t block, size_t sum_bytes,
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
static bool keeps_sum(const struct maker *m, size_t block)
{
  const struct pen_placement *p = &m->l->placement;
  if (is_rows(m->w, block) && !is_head(m->w, block))
    return false;
  return p->group_size < m->w->n_micros_max ||
         (is_head(m->w, block) && keeps_head(p, m->w) && p->group_size > 1);
}

static void place_gradients(struct maker *m)
{
  struct pen_layout *l = m->l;
  const struct pen_workload *w = m->w;
  const struct pen_placement *p = &l->placement;
  struct budget budget = {0, p->gradients_host_bytes};
  uint64_t near_budget = p->state_device_bytes;
  size_t stored = 0, stored_nvme = 0, tile_grad = 0;
  for (size_t b = 0; b < w->n_blocks; b++) {
    size_t elems = w->blocks[b].elems;
    size_t bytes = pen_slot_aligned(elems * w->weight_elem_bytes);
    size_t sum = keeps_sum(m, b) ? elems * sizeof(float) : 0;
    bool near = stays_near(m, b, pen_slot_aligned(sum), &near_budget);
    enum pen_tier tier = near ? PEN_TIER_DEVICE : take(&budget, false, bytes);
    l->grad_home[b] = add_slot(m, "waiting gradients", tier, true, bytes);
    if (!near)
      mark_arrays(m, l->grad_home[b], 1, p->tile_elems * w->weight_elem_bytes);
    if (tier == PEN_TIER_NVME) {
      stored_nvme = max_size(stored_nvme, bytes);
      tile_grad = p->tile_elems * w->weight_elem_bytes;
    }
    if (!near && !is_rows(w, b))
      stored = max_size(stored, bytes);
  }
  l->grad_device = add_ring(m, "gradient ring", PEN_TIER_DEVICE,
                            p->gradient_slots, p->unified ? 0 : stored);
  l->grad_host = add_ring(m, "gradient ring", PEN_TIER_HOST,
                          p->gradient_slots, stored_nvme);
  l->tile_grad = add_ring(m, "gradient tile ring", PEN_TIER_HOST,
                          p->tile_slots, tile_grad);
  mark_arrays(m, l->tile_grad.first, l->tile_grad.count, tile_grad);
}

/* Does one of the embedding's gradients wait on a drive?  What went there does
 * not come back to have rows added. */
static bool any_rows_on_nvme(const struct maker *m)
{
  bool any_nvme = false;
  for (size_t b = m->w->rows_begin; b < m->w->rows_end; b++)
    any_nvme |= m->l->slots[m->l->grad_home[b]].tier == PEN_TIER_NVME;
  return any_nvme;
}

static void place_sums(struct maker *m)
{
  struct pen_layout *l = m->l;
  const struct pen_workload *w = m->w;
  const struct pen_placement *p = &l->placement;
  size_t sum_ring = 0, sum_host = 0;
  l->rows_wait = pen_workload_is_tied(w) && any_rows_on_nvme(m);
  for (size_t b = 0; b < w->n_blocks; b++) {
    size_t sum = w->blocks[b].elems * sizeof(float);
    bool near = l->slots[l->grad_home[b]].tier == PEN_TIER_DEVICE;
    bool has_rows = is_rows(w, b) && is_head(w, b);
    bool whole = keeps_sum(m, b) || (has_rows && l->rows_wait);
    if (is_rows(w, b) && !is_head(w, b))
      continue;
    if (whole)
      l->partial_home[b] = add_slot(m, "gradient sums",
                                    near ? PEN_TIER_DEVICE : PEN_TIER_HOST,
                                    true, sum);
    else if (has_rows && !p->unified)
      sum_host = max_size(sum_host, sum);
    if (!whole || !(near || p->unified))
      sum_ring = max_size(sum_ring, sum);
  }
  l->rows_sums = add_slot(m, "gradients of embedding rows", PEN_TIER_HOST,
                          false, w->rows_bytes);
  if (pen_workload_is_tied(w))
    l->rows_kept = add_slot(m, "gradients of embedding rows", PEN_TIER_HOST,
                            false, w->rows_bytes);
  l->sum_host = add_ring(m, "gradient ring", PEN_TIER_HOST, p->gradient_slots,
                         sum_host);
  l->grad_sum = add_ring(m, "gradient ring", PEN_TIER_DEVICE,
                         p->gradient_slots, sum_ring);
}

static void place_state(struct maker *m)
{
  struct pen_layout *l = m->l;
  const struct pen_workload *w = m->w;
  const struct pen_placement *p = &l->placement;
  struct budget budget = {0, p->state_host_bytes};
  l->tile_bytes = pen_layout_image_bytes(
      l, &(struct pen_tile){.elems = p->tile_elems});
  bool any_near = false; /* loaded and saved by way of RAM */
  size_t t = 0;
  for (size_t b = 0; b < w->n_blocks; b++) {
    l->block_tiles[b] = (uint32_t)t;
    for (size_t e = 0; e < w->blocks[b].elems; e += p->tile_elems, t++) {
      size_t elems = w->blocks[b].elems - e;
      if (elems > p->tile_elems)
        elems = p->tile_elems;
      struct pen_tile *tile = &l->tiles[t];
      *tile = (struct pen_tile){(uint32_t)b, e, elems, PEN_NONE, PEN_NONE,
                                PEN_NONE};
      size_t bytes = pen_layout_half_is_weight(l, tile)
                         ? pen_layout_state_bytes(l, tile)
                         : pen_layout_image_bytes(l, tile);
      if (p->inference)
        continue;
      if (l->slots[l->grad_home[b]].tier == PEN_TIER_DEVICE) {
        tile->state_home =
            add_slot(m, "optimizer state", PEN_TIER_DEVICE, true, bytes);
        any_near = true;
        continue;
      }
      if (take(&budget, false, pen_slot_aligned(bytes)) == PEN_TIER_HOST)
        tile->state_home =
            add_slot(m, "optimizer state", PEN_TIER_HOST, true, bytes);
      else
        tile->store_tile = (uint32_t)l->n_store_tiles++;
      mark_state(m, tile->state_home, 1, elems);
    }
  }
  l->block_tiles[w->n_blocks] = (uint32_t)t;
  l->n_tiles = t;
  l->tile_state = add_ring(m, "state tile ring", PEN_TIER_HOST, p->tile_slots,
                           l->n_store_tiles || any_near || p->inference
                               ? l->tile_bytes : 0);
  mark_state(m, l->tile_state.first, l->tile_state.count, p->tile_elems);
}

/* Can the block be updated out of place while backward goes on?  Rows end with
 * backward; a device updates what it keeps in no time worth hiding. */
static bool could_speculate(const struct maker *m, size_t block)
{
  const struct pen_layout *l = m->l;
  bool can = !l->placement.inference && !is_rows(m->w, block) &&
             l->slots[l->grad_home[block]].tier != PEN_TIER_DEVICE;
  for (uint32_t t = l->block_tiles[block]; can && t < l->block_tiles[block + 1];
       t++)
    can = l->tiles[t].state_home != PEN_NONE || !l->placement.updates_in_place;
  return can;
}

/* A slot that may change places with `home`. */
static uint32_t add_shadow(struct maker *m, const char *purpose, uint32_t home)
{
  struct pen_slot like = m->l->slots[home];
  uint32_t id = add_slot(m, purpose, like.tier, true, like.bytes);
  m->l->slots[id].shadow_of = home;
  m->l->slots[id].state_elems = like.state_elems;
  m->l->slots[id].array_bytes = like.array_bytes;
  return id;
}

static void shadow_block(struct maker *m, size_t block)
{
  struct pen_layout *l = m->l;
  l->n_speculative++;
  l->weight_shadow[block] =
      add_shadow(m, "weights updated early", l->weight_home[block]);
  for (uint32_t t = l->block_tiles[block]; t < l->block_tiles[block + 1]; t++) {
    struct pen_tile *tile = &l->tiles[t];
    if (tile->state_home == PEN_NONE)
      l->n_speculative_store_tiles++;
    else
      tile->state_shadow =
          add_shadow(m, "optimizer state updated early", tile->state_home);
  }
}

/* Spread evenly, so that both what is updated during backward and what is left
 * for the next forward have time to hide in. */
static void place_shadows(struct maker *m)
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

/* What blocks with experts say of their micro-batches, and share with them. */
static void place_experts(struct maker *m)
{
  struct pen_layout *l = m->l;
  const struct pen_workload *w = m->w;
  size_t group = l->placement.group_size;
  for (size_t b = w->body_begin; b < w->body_end; b++) {
    size_t i = b - w->body_begin, bytes = group * pen_layout_counts_bytes(w, b);
    if (!bytes)
      continue;
    for (size_t j = 0; j < group; j++)
      l->routes[i * group + j] = add_slot(m, "routes to experts",
                                          PEN_TIER_DEVICE, false,
                                          w->routes_bytes);
    l->counts[i] = add_slot(m, "routes to experts", PEN_TIER_DEVICE, false,
                            bytes);
    l->counts_host[i] = l->placement.unified
                            ? l->counts[i]
                            : add_slot(m, "routes to experts", PEN_TIER_HOST,
                                       false, bytes);
    for (size_t x = w->blocks[b].experts_begin; x < w->blocks[b].experts_end;
         x++)
      l->routed_by[x] = l->counts_host[i];
  }
  for (size_t j = 0; j < group; j++) {
    l->mix[j] = add_slot(m, "experts' inputs and outputs", PEN_TIER_DEVICE,
                         false, w->mix_bytes);
    if (!l->placement.inference)
      l->balance[j] = add_slot(m, "routes to experts", PEN_TIER_DEVICE, false,
                               w->balance_bytes);
  }
}

static void place_working(struct maker *m)
{
  struct pen_layout *l = m->l;
  const struct pen_workload *w = m->w;
  for (size_t j = 0; j < l->placement.group_size; j++) {
    l->head_in[j] = add_slot(m, "activations", PEN_TIER_DEVICE, false,
                             w->act_bytes);
    l->stats[j] = add_slot(m, "softmax statistics", PEN_TIER_DEVICE, false,
                           w->stats_bytes);
    if (l->placement.inference)
      continue;
    l->d[j] = add_slot(m, "activation gradients", PEN_TIER_DEVICE, false,
                       w->act_bytes);
    l->dhead[j] = add_slot(m, "activation gradients", PEN_TIER_DEVICE, false,
                           w->dhead_bytes);
  }
  if (!l->placement.unified && !l->placement.inference)
    l->rows_d = add_ring(m, "embedding rows", PEN_TIER_HOST, 2, w->act_bytes);
  l->work = add_slot(m, "workspace", PEN_TIER_DEVICE, false, w->work_bytes);
  l->tables = l->placement.unified ? PEN_NONE
                                   : add_slot(m, "tables", PEN_TIER_DEVICE,
                                              true, w->tables_bytes);
  l->kept = add_slot(m, "keys and values of a document", PEN_TIER_DEVICE, true,
                     w->kept_bytes);
  l->logits =
      add_slot(m, "logits", PEN_TIER_DEVICE, false, w->logits_bytes);
  l->logits_host = l->placement.unified
                       ? l->logits
                       : add_slot(m, "logits", PEN_TIER_HOST, false,
                                  w->logits_bytes);
  size_t results = pen_layout_sumsq_offset(l, w->n_blocks);
  l->results_device = add_slot(m, "losses and norms", PEN_TIER_DEVICE, false,
                               results);
  l->results_host = l->placement.unified
                        ? l->results_device
                        : add_slot(m, "losses and norms", PEN_TIER_HOST,
                                   false, results);
}

static void place_results(struct maker *m)
{
  const struct pen_workload *w = m->w;
  size_t at = (w->n_micros_max + w->n_blocks) * sizeof(double);
  for (size_t b = 0; b < w->n_blocks; b++) {
    m->l->sumsq_at[b] = at;
    at += pen_layout_sumsq_chunks(w, b) * sizeof(double);
  }
  m->l->sumsq_at[w->n_blocks] = at;
}

static int check_placement(const struct pen_placement *p)
{
  if (p->tile_elems == 0 || p->tile_elems % PEN_NORM_CHUNK_ELEMS)
    return pen_error_set(PEN_EUSAGE,
                         "a tile of %zu elements is not a multiple of %zu; "
                         "choose another --tile-size",
                         p->tile_elems, PEN_NORM_CHUNK_ELEMS);
  if (p->weight_slots < 1 || p->gradient_slots < 1 || p->tile_slots < 1)
    return pen_error_set(PEN_EUSAGE,
                         "--weight-slots %zu, --gradient-slots %zu and "
                         "--tile-slots %zu must each be at least 1",
                         p->weight_slots, p->gradient_slots, p->tile_slots);
  if (p->activation_slots < 2)
    return pen_error_set(PEN_EUSAGE,
                         "%zu activation slots: a block needs its input and "
                         "its output, at least 2",
                         p->activation_slots);
  return 0;
}

/* [n] slot numbers, all PEN_NONE; NULL when out of memory. */
static uint32_t *slot_numbers(size_t n)
{
  uint32_t *numbers = malloc((n ? n : 1) * sizeof *numbers);
  for (size_t i = 0; numbers && i < n; i++)
    numbers[i] = PEN_NONE;
  return numbers;
}

static int allocate(struct maker *m)
{
  struct pen_layout *l = m->l;
  const struct pen_workload *w = m->w;
  const struct pen_placement *p = &l->placement;
  size_t n_body = w->body_end - w->body_begin, group = p->group_size;
  size_t tiles = 0;
  for (size_t b = 0; b < w->n_blocks; b++)
    tiles += (w->blocks[b].elems + p->tile_elems - 1) / p->tile_elems;
  m->max_slots = 2 * tiles + 6 * w->n_blocks + (3 * group + 2) * n_body + 10 * group +
                 2 * (p->weight_slots + p->activation_slots + p->tile_slots) +
                 4 * p->gradient_slots + 18;
  l->slots = calloc(m->max_slots, sizeof *l->slots);
  l->tiles = calloc(tiles ? tiles : 1, sizeof *l->tiles);
  l->block_tiles = slot_numbers(w->n_blocks + 1);
  l->sumsq_at = calloc(w->n_blocks + 1, sizeof *l->sumsq_at);
  uint32_t **per_block[] = {&l->weight_home, &l->weight_shadow, &l->grad_home,
                            &l->partial_home, &l->head_saved, &l->routed_by};
  uint32_t **per_act[] = {&l->act_home, &l->saved, &l->routes};
  uint32_t **per_body[] = {&l->counts, &l->counts_host};
  uint32_t **per_micro[] = {&l->head_in, &l->d, &l->dhead, &l->stats,
                            &l->rows_x, &l->inputs, &l->inputs_host,
                            &l->mix, &l->balance};
  bool whole = l->slots && l->tiles && l->block_tiles && l->sumsq_at;
  for (size_t i = 0; i < sizeof per_block / sizeof *per_block; i++)
    whole &= (*per_block[i] = slot_numbers(w->n_blocks)) != NULL;
  for (size_t i = 0; i < sizeof per_act / sizeof *per_act; i++)
    whole &= (*per_act[i] = slot_numbers(n_body * group)) != NULL;
  for (size_t i = 0; i < sizeof per_body / sizeof *per_body; i++)
    whole &= (*per_body[i] = slot_numbers(n_body)) != NULL;
  for (size_t i = 0; i < sizeof per_micro / sizeof *per_micro; i++)
    whole &= (*per_micro[i] = slot_numbers(group)) != NULL;
  if (!whole)
    return pen_error_set(PEN_ENOFIT, "no memory for a table of %zu slots",
                         m->max_slots);
  return 0;
}

int pen_layout_init(struct pen_layout *ret_layout,
                    const struct pen_workload *workload,
                    const struct pen_placement *placement)
{
  int rc = check_placement(placement);
  if (rc < 0)
    return rc;
  struct pen_layout layout = {.placement = *placement,
                              .state = workload->state,
                              .rows_sums = PEN_NONE,
                              .rows_kept = PEN_NONE};
  struct pen_placement *p = &layout.placement;
  size_t n_body = workload->body_end - workload->body_begin;
  if (p->group_size == 0 || p->group_size > workload->n_micros_max)
    p->group_size = workload->n_micros_max;
  if (p->recompute_blocks > n_body)
    p->recompute_blocks = n_body;
  size_t n_head = workload->head_end - workload->head_begin;
  if (p->recompute_head_blocks > n_head)
    p->recompute_head_blocks = n_head;
  layout.compute_tier = p->unified ? PEN_TIER_HOST : PEN_TIER_DEVICE;

  struct maker m = {.l = &layout, .w = workload};
  rc = allocate(&m);
  if (rc < 0) {
    pen_layout_done(&layout);
    return rc;
  }
  place_weights(&m);
  if (!p->inference) {
    place_gradients(&m);
    place_sums(&m);
  }
  place_state(&m);
  place_activations(&m);
  place_experts(&m);
  place_results(&m);
  place_working(&m);
  place_shadows(&m);
  *ret_layout = layout;
  return 0;
}

void pen_layout_done(struct pen_layout *layout)
{
  if (!layout)
    return;
  free(layout->slots);
  free(layout->tiles);
  free(layout->block_tiles);
  free(layout->sumsq_at);
  free(layout->weight_home);
  free(layout->weight_shadow);
  free(layout->grad_home);
  free(layout->partial_home);
  free(layout->act_home);
  free(layout->saved);
  free(layout->head_saved);
  free(layout->routes);
  free(layout->routed_by);
  free(layout->counts);
  free(layout->counts_host);
  free(layout->mix);
  free(layout->balance);
  free(layout->head_in);
  free(layout->d);
  free(layout->dhead);
  free(layout->stats);
  free(layout->rows_x);
  free(layout->inputs);
  free(layout->inputs_host);
  *layout = (struct pen_layout){0};
}
