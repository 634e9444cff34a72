/* build_rows.c: the embedding in a step: its rows are gathered on the host, and
 * their gradients are added there.
 *
 * Forward begins with rows that backward finishes last, so what updates them is
 * never hidden.  Where all that takes lies in RAM, the step's own rows are made
 * ahead: updated out of place into an array of their own, from the old state,
 * which stays; the blocks are then updated as all others are, under forward, to
 * the same bits.  Main thread, pure.  Disadvantage: these rows are computed twice. */
#include "offload/build_part.h"
#include "offload/move.h"

static const enum pen_guard always = PEN_GUARD_ALWAYS;

/* Where gathered rows lie before they go up. */
static const uint32_t *rows_on_host(const struct pen_layout *l)
{
  return l->compute_tier == PEN_TIER_DEVICE ? l->rows_x : l->act_home;
}

/* Is an update pending that can be looked at in RAM? */
static bool may_look_ahead(const struct pen_emit *e)
{
  const struct pen_layout *l = e->l;
  if (e->shape->kind != PEN_STEP_TRAIN || !e->carry->pending)
    return false;
  for (size_t b = e->w->rows_begin; b < e->w->rows_end; b++) {
    if (pen_emit_tier(e, l->weight_home[b]) != PEN_TIER_HOST ||
        pen_emit_tier(e, l->grad_home[b]) != PEN_TIER_HOST)
      return false;
    for (uint32_t t = l->block_tiles[b]; t < l->block_tiles[b + 1]; t++)
      if (l->tiles[t].state_home == PEN_NONE ||
          pen_emit_tier(e, l->tiles[t].state_home) != PEN_TIER_HOST)
        return false;
  }
  return true;
}

/* The step's rows of one tile: each is taken to hold an equal part of them. */
static void emit_rows_ahead(struct pen_emit *e, uint32_t number)
{
  const struct pen_layout *l = e->l;
  const struct pen_tile *tile = &l->tiles[number];
  size_t elem = e->w->weight_elem_bytes, all = 0;
  for (size_t b = e->w->rows_begin; b < e->w->rows_end; b++)
    all += e->w->blocks[b].elems;
  double part = (double)tile->elems / (double)all;
  double rows = part * (double)e->w->rows_bytes / sizeof(float);
  double state = (double)pen_layout_state_bytes(l, tile) / (double)tile->elems;
  uint32_t task = pen_emit_task(e, PEN_TASK_ROWS_AHEAD, PEN_LANE_UPDATE, always,
                                tile->block, PEN_NONE);
  pen_emit_read_part(e, l->grad_home[tile->block], tile->begin * elem,
                     tile->elems * elem);
  pen_emit_read(e, tile->state_home);
  pen_emit_read_part(e, l->weight_home[tile->block], tile->begin * elem,
                     tile->elems * elem);
  pen_emit_write(e, l->rows_sums);
  pen_emit_traffic(e, (uint64_t)(rows * (state + 2 * (double)elem)),
                   (uint64_t)(rows * (double)elem));
  if (e->rc < 0)
    return;
  e->s->tasks[task].tile = number;
  e->s->tasks[task].cost.update_elems = (uint64_t)rows;
}

/* The array of the step's gradients is not used before backward. */
static void gather_ahead(struct pen_emit *e, struct pen_build_span g)
{
  const struct pen_layout *l = e->l;
  const uint32_t *x = rows_on_host(l);
  pen_emit_renew(e, l->rows_sums);
  for (size_t b = e->w->rows_begin; b < e->w->rows_end; b++)
    for (uint32_t t = l->block_tiles[b]; t < l->block_tiles[b + 1]; t++)
      emit_rows_ahead(e, t);
  for (size_t j = 0; j < g.count; j++) {
    uint64_t bytes = l->slots[x[j]].bytes;
    pen_emit_renew(e, x[j]);
    pen_emit_task(e, PEN_TASK_GATHER_AHEAD, PEN_LANE_UPDATE, always, PEN_NONE,
                  pen_build_micro(g, j));
    pen_emit_read(e, l->rows_sums);
    pen_emit_write(e, x[j]);
    pen_emit_traffic(e, bytes, bytes);
  }
}

/* All of them from the weights as they are once these are updated. */
static void gather_rows(struct pen_emit *e, struct pen_build_span g)
{
  const struct pen_layout *l = e->l;
  const uint32_t *x = rows_on_host(l);
  for (size_t j = 0; j < g.count; j++)
    pen_emit_renew(e, x[j]);
  for (size_t b = e->w->rows_begin; b < e->w->rows_end; b++) {
    pen_build_update(e, b);
    uint32_t w = pen_move_weight_host(e, b);
    for (size_t j = 0; j < g.count; j++) {
      pen_emit_task(e, PEN_TASK_GATHER, PEN_LANE_UPDATE, always, (uint32_t)b,
                    pen_build_micro(g, j));
      pen_build_read_weight(e, b, w);
      pen_emit_write(e, x[j]);
      uint64_t bytes = pen_build_rows_part(e, l->slots[x[j]].bytes);
      pen_emit_traffic(e, bytes, bytes);
    }
  }
}

static void zero_rows(struct pen_emit *e)
{
  pen_emit_renew(e, e->l->rows_sums);
  pen_emit_task(e, PEN_TASK_ZERO, PEN_LANE_UPDATE, always, PEN_NONE, PEN_NONE);
  pen_emit_write(e, e->l->rows_sums);
}

/* The batch's embedding rows: found on the host, then up. */
void pen_build_gather(struct pen_emit *e, struct pen_build_span g)
{
  const struct pen_layout *l = e->l;
  const uint32_t *x = rows_on_host(l);
  if (may_look_ahead(e))
    gather_ahead(e, g);
  else
    gather_rows(e, g);
  if (g.first == 0 && e->shape->kind == PEN_STEP_TRAIN)
    zero_rows(e);
  for (size_t j = 0; x != l->act_home && j < g.count; j++) {
    pen_emit_renew(e, l->act_home[j]);
    pen_emit_copy(e, PEN_LANE_UPLOAD, always, PEN_NONE, pen_build_micro(g, j), x[j],
                  l->act_home[j], l->slots[x[j]].bytes);
  }
}

/* The gradient of the gathered rows comes down and is added in token order. */
void pen_build_scatter(struct pen_emit *e, struct pen_build_span g)
{
  const struct pen_layout *l = e->l;
  for (size_t j = 0; j < g.count; j++) {
    uint32_t d = l->d[j];
    if (l->compute_tier == PEN_TIER_DEVICE) {
      uint32_t down = pen_emit_take(e, l->rows_d, pen_build_micro(g, j));
      pen_emit_copy(e, PEN_LANE_DOWNLOAD, always, PEN_NONE, pen_build_micro(g, j), d,
                    down, l->slots[d].bytes);
      d = down;
    }
    uint64_t bytes = l->slots[d].bytes;
    uint64_t fp32 = bytes / e->w->weight_elem_bytes * sizeof(float);
    pen_emit_task(e, PEN_TASK_SCATTER, PEN_LANE_UPDATE, always, PEN_NONE,
                  pen_build_micro(g, j));
    pen_emit_read(e, d);
    pen_emit_modify(e, l->rows_sums);
    pen_emit_traffic(e, bytes + fp32, fp32);
  }
}
