/* run_update.c: what the tasks that do AdamW do: on a tile, in place or out of place,
 * and on the rows that a step needs before their tiles are updated.
 *
 * On the update lane or, where the device keeps state, on the compute lane.
 * Disadvantage: where halves lie is decided here and, for costs, by who builds the
 * task. */
#include "base/rng.h"
#include "offload/run_lanes.h"
#include "offload/update.h"

/* Of a tile, with everything but what the update is and where halves lie. */
static struct pen_update update_at(const struct pen_run *run,
                                   const struct pen_task *t, void *const *at)
{
  return (struct pen_update){.isa = run->o.isa,
                             .workload = run->o.workload,
                             .tile = &run->o.layout->tiles[t->tile],
                             .state = at[1],
                             .grad = at[0],
                             .weight = at[2],
                             .seed = run->update.seed};
}

/* Halves are weights in RAM, parts of the tile's image, or both: where that is
 * written whole. */
static void place_halves(const struct pen_layout *l, const struct pen_tile *tile,
                         bool whole, struct pen_update *update)
{
  char *half = (char *)update->state + pen_layout_half_offset(l, tile);
  if (l->state->has_half && !pen_layout_half_is_weight(l, tile)) {
    update->copy = update->weight;
    update->weight = half;
  } else if (l->state->has_half && tile->state_home == PEN_NONE && whole) {
    update->copy = half;
  }
}

/* Where the device keeps state: images, halves included. */
static int update_near(struct pen_run *run, const struct pen_task *t,
                       void *const *at)
{
  const struct pen_layout *l = run->o.layout;
  const struct pen_tile *tile = &l->tiles[t->tile];
  char *half = (char *)at[1] + pen_layout_half_offset(l, tile);
  struct pen_device_update update = {
      .params = &run->update.params,
      .begin = tile->begin,
      .elems = tile->elems,
      .key = pen_rng_u64(run->update.seed, run->update.number, t->block),
      .state = at[1],
      .half = l->state->has_half ? half : NULL,
      .grad = at[0],
      .weight = at[2]};
  return run->o.compute->update(run->o.compute->ctx, t->block, &update);
}

/* Of the tile in RAM, with everything but what the update is. */
static struct pen_update update_in_ram(const struct pen_run *run,
                                       const struct pen_task *t, bool whole,
                                       void *const *at)
{
  struct pen_update update = update_at(run, t, at);
  place_halves(run->o.layout, update.tile, whole, &update);
  return update;
}

int pen_run_apply_update(struct pen_run *run, const struct pen_task *t,
                         void *const *at)
{
  if (t->lane == PEN_LANE_COMPUTE)
    return update_near(run, t, at);
  struct pen_update update =
      update_in_ram(run, t, !run->carry.halves_due, at);
  update.params = &run->update.params;
  update.step = run->update.number;
  pen_update_tile(run->o.update_pool, &update);
  return 0;
}

/* The update that this step's decision will ask for, as far as it is guessed. */
int pen_run_speculate(struct pen_run *run, const struct pen_task *t,
                      void *const *at)
{
  const struct pen_layout *l = run->o.layout;
  const struct pen_tile *tile = &l->tiles[t->tile];
  struct pen_update update = update_in_ram(run, t, true, at);
  size_t next = 3;
  update.params = &run->update.guess;
  update.step = run->update.guess_number;
  if (tile->state_home != PEN_NONE)
    update.old_state = at[next++];
  if (pen_layout_half_is_weight(l, tile))
    update.old_half = at[next];
  else if (l->state->has_half && update.old_state)
    update.old_half = (const char *)update.old_state +
                      pen_layout_half_offset(l, tile);
  pen_update_tile(run->o.update_pool, &update);
  return 0;
}

/* The rows that the pending update will make; skipped, those there are. */
int pen_run_rows_ahead(struct pen_run *run, const struct pen_task *t,
                       void *const *at)
{
  struct pen_step_rows rows;
  struct pen_update update = update_at(run, t, at);
  update.params = &run->update.params;
  update.step = run->update.number;
  run->o.compute->rows(run->o.compute->ctx, t->block, &rows);
  struct pen_update_ahead ahead = {&update, &rows, run->update.apply, at[3]};
  pen_update_rows(run->o.update_pool, &ahead);
  return 0;
}
