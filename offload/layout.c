/* layout.c: from a placement's budgets to numbered slots.
 *
 * Homes come first, ring and working slots after; every slot starts on a page
 * of its tier's arena, in the order of its number.  A ring exists only where
 * some object needs it, so the sum over slots is the memory of the run.
 * Runs once, at start, on the main thread.  Disadvantage: a ring's slots are as
 * large as its largest object, so one big block makes the whole ring big. */
#include "offload/layout_part.h"

#include <assert.h>
#include <stdlib.h>

#include "base/error.h"
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

bool pen_layout_keeps_head(const struct pen_layout *layout,
                           const struct pen_workload *workload)
{
  return pen_layout_keeps_logits(&layout->placement, workload);
}

static void place_weights(struct pen_layout_maker *m)
{
  struct pen_layout *l = m->l;
  const struct pen_workload *w = m->w;
  const struct pen_placement *p = &l->placement;
  struct pen_layout_budget budget = {p->weights_device_bytes, p->weights_host_bytes};
  size_t host_ring = 0, device_ring = 0;
  for (size_t b = 0; b < w->n_blocks; b++) {
    size_t bytes = pen_slot_aligned(w->blocks[b].elems * w->weight_elem_bytes);
    /* The host gathers rows, so their home is never the device. */
    enum pen_tier tier = pen_layout_take(&budget, !p->unified && !pen_workload_is_rows(w, b), bytes);
    l->weight_home[b] = pen_layout_add_slot(m, "weights", tier, true, bytes);
    pen_layout_mark_arrays(m, l->weight_home[b], 1, p->tile_elems * w->weight_elem_bytes);
    if (tier != PEN_TIER_HOST)
      host_ring = pen_layout_max(host_ring, bytes);
    bool computes = !pen_workload_is_rows(w, b) || pen_workload_is_head(w, b);
    if (!p->unified && tier != PEN_TIER_DEVICE && computes)
      device_ring = pen_layout_max(device_ring, bytes);
  }
  l->weight_host = pen_layout_add_ring(m, "weight ring", PEN_TIER_HOST, p->weight_slots, host_ring);
  l->weight_device = pen_layout_add_ring(m, "weight ring", PEN_TIER_DEVICE,
                                         p->weight_slots, device_ring);
}

static void place_activations(struct pen_layout_maker *m)
{
  struct pen_layout *l = m->l;
  const struct pen_workload *w = m->w;
  const struct pen_placement *p = &l->placement;
  size_t group = p->group_size, n_body = w->body_end - w->body_begin;
  bool any_nvme = false, any_off_device = false;
  struct pen_layout_budget budget = {p->activations_device_bytes,
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
          pen_layout_take(&budget, !p->unified, pen_slot_aligned(w->act_bytes));
      any_nvme |= tier == PEN_TIER_NVME;
      any_off_device |= tier != PEN_TIER_DEVICE;
      l->act_home[i * group + j] =
          pen_layout_add_slot(m, "activation checkpoints", tier, true, w->act_bytes);
    }
  for (size_t j = 0; j < group; j++) {
    l->inputs[j] = l->inputs_host[j] =
        pen_layout_add_slot(m, "inputs of micro-batches", PEN_TIER_HOST, false,
                            w->inputs_bytes);
    if (!p->unified)
      l->inputs[j] = pen_layout_add_slot(m, "inputs of micro-batches",
                                         PEN_TIER_DEVICE, false, w->inputs_bytes);
    l->act_home[j] = pen_layout_add_slot(m, "activation checkpoints",
                                         PEN_TIER_DEVICE, true, w->act_bytes);
    if (!p->unified)
      l->rows_x[j] = pen_layout_add_slot(m, "embedding rows", PEN_TIER_HOST, false, w->act_bytes);
  }
  l->act_host = pen_layout_add_ring(m, "activation ring", PEN_TIER_HOST,
                                    p->activation_slots,
                                    any_nvme ? w->act_bytes : 0);
  l->act_device =
      pen_layout_add_ring(m, "activation ring", PEN_TIER_DEVICE,
                          p->activation_slots,
                          !p->unified && any_off_device ? w->act_bytes : 0);
  for (size_t i = p->recompute_blocks; !p->inference && i < n_body; i++)
    for (size_t j = 0; j < group; j++)
      l->saved[i * group + j] =
          pen_layout_add_slot(m, "saved for backward", PEN_TIER_DEVICE, false,
                              w->blocks[w->body_begin + i].saved_bytes);
  if (!pen_layout_keeps_logits(p, w))
    return;
  for (size_t b = w->head_begin + p->recompute_head_blocks; b < w->head_end;
       b++)
    l->head_saved[b] = pen_layout_add_slot(m, "logits kept for backward",
                                           PEN_TIER_DEVICE, false,
                                           w->blocks[b].saved_bytes);
}

/* What blocks with experts say of their micro-batches, and share with them. */
static void place_experts(struct pen_layout_maker *m)
{
  struct pen_layout *l = m->l;
  const struct pen_workload *w = m->w;
  size_t group = l->placement.group_size;
  for (size_t b = w->body_begin; b < w->body_end; b++) {
    size_t i = b - w->body_begin, bytes = group * pen_layout_counts_bytes(w, b);
    if (!bytes)
      continue;
    for (size_t j = 0; j < group; j++)
      l->routes[i * group + j] =
          pen_layout_add_slot(m, "routes to experts", PEN_TIER_DEVICE, false,
                              w->routes_bytes);
    l->counts[i] = pen_layout_add_slot(m, "routes to experts", PEN_TIER_DEVICE,
                                       false, bytes);
    l->counts_host[i] = l->placement.unified
                            ? l->counts[i]
                            : pen_layout_add_slot(m, "routes to experts",
                                                  PEN_TIER_HOST, false, bytes);
    for (size_t x = w->blocks[b].experts_begin; x < w->blocks[b].experts_end;
         x++)
      l->routed_by[x] = l->counts_host[i];
  }
  for (size_t j = 0; j < group; j++) {
    l->mix[j] = pen_layout_add_slot(m, "experts' inputs and outputs",
                                    PEN_TIER_DEVICE, false, w->mix_bytes);
    if (!l->placement.inference)
      l->balance[j] = pen_layout_add_slot(m, "routes to experts", PEN_TIER_DEVICE,
                                          false, w->balance_bytes);
  }
}

static void place_working(struct pen_layout_maker *m)
{
  struct pen_layout *l = m->l;
  const struct pen_workload *w = m->w;
  for (size_t j = 0; j < l->placement.group_size; j++) {
    l->head_in[j] = pen_layout_add_slot(m, "activations", PEN_TIER_DEVICE, false, w->act_bytes);
    l->stats[j] = pen_layout_add_slot(m, "softmax statistics", PEN_TIER_DEVICE,
                                      false, w->stats_bytes);
    if (l->placement.inference)
      continue;
    l->d[j] = pen_layout_add_slot(m, "activation gradients", PEN_TIER_DEVICE, false, w->act_bytes);
    l->dhead[j] = pen_layout_add_slot(m, "activation gradients", PEN_TIER_DEVICE,
                                      false, w->dhead_bytes);
  }
  if (!l->placement.unified && !l->placement.inference)
    l->rows_d = pen_layout_add_ring(m, "embedding rows", PEN_TIER_HOST, 2, w->act_bytes);
  l->work = pen_layout_add_slot(m, "workspace", PEN_TIER_DEVICE, false, w->work_bytes);
  l->tables = l->placement.unified
                  ? PEN_NONE
                  : pen_layout_add_slot(m, "tables", PEN_TIER_DEVICE, true,
                                        w->tables_bytes);
  l->kept = pen_layout_add_slot(m, "keys and values of a document", PEN_TIER_DEVICE,
                                true, w->kept_bytes);
  l->logits =
      pen_layout_add_slot(m, "logits", PEN_TIER_DEVICE, false, w->logits_bytes);
  l->logits_host = l->placement.unified
                       ? l->logits
                       : pen_layout_add_slot(m, "logits", PEN_TIER_HOST, false, w->logits_bytes);
  size_t results = pen_layout_sumsq_offset(l, w->n_blocks);
  l->results_device = pen_layout_add_slot(m, "losses and norms", PEN_TIER_DEVICE, false, results);
  l->results_host = l->placement.unified
                        ? l->results_device
                        : pen_layout_add_slot(m, "losses and norms", PEN_TIER_HOST, false, results);
}

static void place_results(struct pen_layout_maker *m)
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

static int allocate(struct pen_layout_maker *m)
{
  struct pen_layout *l = m->l;
  const struct pen_workload *w = m->w;
  const struct pen_placement *p = &l->placement;
  size_t n_body = w->body_end - w->body_begin, group = p->group_size;
  size_t tiles = 0;
  for (size_t b = 0; b < w->n_blocks && !m->outline; b++)
    tiles += (w->blocks[b].elems + p->tile_elems - 1) / p->tile_elems;
  m->max_slots = 2 * tiles + 6 * w->n_blocks + (3 * group + 2) * n_body + 10 * group +
                 2 * (p->weight_slots + p->activation_slots + p->tile_slots) +
                 4 * p->gradient_slots + 18;
  l->slots = calloc(m->max_slots, sizeof *l->slots);
  l->tiles = calloc(tiles ? tiles : 1, sizeof *l->tiles);
  m->states = calloc(w->n_blocks, sizeof *m->states);
  l->block_tiles = slot_numbers(w->n_blocks + 1);
  l->sumsq_at = calloc(w->n_blocks + 1, sizeof *l->sumsq_at);
  uint32_t **per_block[] = {&l->weight_home, &l->weight_shadow, &l->grad_home,
                            &l->partial_home, &l->head_saved, &l->routed_by};
  uint32_t **per_act[] = {&l->act_home, &l->saved, &l->routes};
  uint32_t **per_body[] = {&l->counts, &l->counts_host};
  uint32_t **per_micro[] = {&l->head_in, &l->d, &l->dhead, &l->stats,
                            &l->rows_x, &l->inputs, &l->inputs_host,
                            &l->mix, &l->balance};
  bool whole = l->slots && l->tiles && m->states && l->block_tiles && l->sumsq_at;
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

static int make(const struct pen_workload *workload,
                const struct pen_placement *placement, bool outline,
                struct pen_layout *ret_layout)
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

  struct pen_layout_maker m = {
      .l = &layout, .w = workload, .outline = outline};
  rc = allocate(&m);
  if (rc < 0) {
    free(m.states);
    pen_layout_done(&layout);
    return rc;
  }
  place_weights(&m);
  if (!p->inference)
    pen_layout_place_gradients(&m);
  pen_layout_place_state(&m);
  place_activations(&m);
  place_experts(&m);
  place_results(&m);
  place_working(&m);
  pen_layout_place_shadows(&m);
  free(m.states);
  *ret_layout = layout;
  return 0;
}

int pen_layout_init(struct pen_layout *ret_layout,
                    const struct pen_workload *workload,
                    const struct pen_placement *placement)
{
  return make(workload, placement, false, ret_layout);
}

int pen_layout_outline(struct pen_layout *ret_layout,
                       const struct pen_workload *workload,
                       const struct pen_placement *placement)
{
  return make(workload, placement, true, ret_layout);
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
