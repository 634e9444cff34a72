/* layout.c: what is asked of a layout that is made: where in its slot a thing
 * lies, and how many bytes it has.
 *
 * Pure functions of it, or of the workload; any thread.  Disadvantage: whoever
 * writes such a slot must ask here, nothing else knows. */
#include "offload/layout.h"

#include <stdlib.h>

size_t pen_layout_loss_offset(size_t micro) { return micro * sizeof(double); }

size_t pen_layout_nonfinite_offset(const struct pen_workload *workload,
                                   size_t block)
{
  return (workload->n_micros_max + block) * sizeof(double);
}

size_t pen_layout_sumsq_chunks(const struct pen_workload *workload,
                               size_t block)
{
  size_t elems = workload->blocks[block].elems;
  return (elems + PEN_NORM_CHUNK_ELEMS - 1) / PEN_NORM_CHUNK_ELEMS;
}

size_t pen_layout_sumsq_offset(const struct pen_layout *layout, size_t block)
{
  return layout->sumsq_at[block];
}

size_t pen_layout_counts_bytes(const struct pen_workload *workload,
                               size_t block)
{
  return pen_block_n_experts(&workload->blocks[block]) * sizeof(uint32_t);
}

size_t pen_layout_state_bytes(const struct pen_layout *layout,
                              const struct pen_tile *tile)
{
  return pen_state_bytes(layout->state, tile->elems);
}

size_t pen_layout_half_offset(const struct pen_layout *layout,
                              const struct pen_tile *tile)
{
  return pen_slot_aligned(pen_layout_state_bytes(layout, tile));
}

size_t pen_layout_image_bytes(const struct pen_layout *layout,
                              const struct pen_tile *tile)
{
  return pen_layout_half_offset(layout, tile) +
         pen_slot_aligned(pen_state_half_bytes(layout->state, tile->elems));
}

bool pen_layout_half_is_weight(const struct pen_layout *layout,
                               const struct pen_tile *tile)
{
  uint32_t home = layout->weight_home[tile->block];
  return layout->state->has_half &&
         layout->slots[home].tier == PEN_TIER_HOST;
}

size_t pen_layout_array_bytes(const struct pen_layout *layout,
                              const struct pen_slot *slot, size_t at)
{
  const struct pen_state_format *f = layout->state;
  size_t begin = 0, groups = slot->state_elems / PEN_STATE_GROUP_ELEMS;
  if (!slot->state_elems)
    return slot->array_bytes;
  for (size_t i = 0; i < f->n_arrays; i++) {
    size_t end = begin + groups * f->arrays[i].group_bytes;
    if (i + 1 == f->n_arrays)
      end = pen_slot_aligned(end);
    if (at == begin)
      return end - begin;
    begin = end;
  }
  return slot->bytes - at; /* halves */
}

bool pen_layout_keeps_head(const struct pen_layout *layout,
                           const struct pen_workload *workload)
{
  return !layout->placement.inference &&
         layout->placement.recompute_head_blocks <
             workload->head_end - workload->head_begin;
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
