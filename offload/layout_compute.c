/* layout_compute.c: slots of what passes forward and backward: weights,
 * activations, what blocks with experts say of their micro-batches, and working
 * memory.
 *
 * At start, on the main thread.  Disadvantage: a ring's slots are as large as its
 * largest object, so one big block makes the whole ring big. */
#include <assert.h>

#include "offload/layout_part.h"
#include "offload/schedule.h"

void pen_layout_place_weights(struct pen_layout_maker *m)
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

void pen_layout_place_activations(struct pen_layout_maker *m)
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
  if (!pen_layout_keeps_head(l, w))
    return;
  for (size_t b = w->head_begin + p->recompute_head_blocks; b < w->head_end;
       b++)
    l->head_saved[b] = pen_layout_add_slot(m, "logits kept for backward",
                                           PEN_TIER_DEVICE, false,
                                           w->blocks[b].saved_bytes);
}

/* What blocks with experts say of their micro-batches, and share with them. */
void pen_layout_place_experts(struct pen_layout_maker *m)
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

void pen_layout_place_results(struct pen_layout_maker *m)
{
  const struct pen_workload *w = m->w;
  size_t at = (w->n_micros_max + w->n_blocks) * sizeof(double);
  for (size_t b = 0; b < w->n_blocks; b++) {
    m->l->sumsq_at[b] = at;
    at += pen_layout_sumsq_chunks(w, b) * sizeof(double);
  }
  m->l->sumsq_at[w->n_blocks] = at;
}

void pen_layout_place_working(struct pen_layout_maker *m)
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
