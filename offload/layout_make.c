/* layout_make.c: from a placement's budgets to numbered slots.
 *
 * Homes come first, ring and working slots after.  A ring exists only where
 * some object needs it, so the sum over slots is the memory of the run.
 * Runs once, at start, on the main thread. */
#include <stdlib.h>

#include "base/error.h"
#include "offload/layout_part.h"
#include "offload/schedule.h"

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
  pen_layout_place_weights(&m);
  if (!p->inference)
    pen_layout_place_gradients(&m);
  pen_layout_place_state(&m);
  pen_layout_place_activations(&m);
  pen_layout_place_experts(&m);
  pen_layout_place_results(&m);
  pen_layout_place_working(&m);
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
