/* build.c: one training step, written down in the order of the papers: gather,
 * forward, head, backward, scatter, finish, decide; before a block's first use,
 * the update that waits for it.
 *
 * Lanes run ahead of each other by themselves, as far as rings have free slots:
 * nothing here speaks of prefetch.  Main thread, pure.  Disadvantage: steps do
 * not overlap; the tail of one step's writes is not hidden by the next. */
#include <string.h>

#include "base/error.h"
#include "offload/build_part.h"
#include "offload/move.h"

static const enum pen_guard always = PEN_GUARD_ALWAYS;

/* What compute must know of each micro-batch: written on the host, then up. */
static void emit_inputs(struct pen_emit *e, struct pen_build_span g)
{
  const struct pen_layout *l = e->l;
  for (size_t j = 0; j < g.count; j++) {
    uint32_t from = l->inputs_host[j], to = l->inputs[j];
    pen_emit_renew(e, from);
    pen_emit_task(e, PEN_TASK_INPUTS, PEN_LANE_UPDATE, always, PEN_NONE,
                  pen_build_micro(g, j));
    pen_emit_write(e, from);
    if (to == from)
      continue;
    pen_emit_renew(e, to);
    pen_emit_copy(e, PEN_LANE_UPLOAD, always, PEN_NONE, pen_build_micro(g, j), from,
                  to, l->slots[from].bytes);
  }
}

static void emit_forward_block(struct pen_emit *e, struct pen_build_span g, size_t body)
{
  const struct pen_layout *l = e->l;
  size_t block = e->w->body_begin + body;
  bool last = block + 1 == e->w->body_end;
  pen_build_update(e, block);
  uint32_t w = pen_move_weight(e, block);
  for (size_t j = 0; j < g.count; j++) {
    uint32_t micro = pen_build_micro(g, j);
    uint32_t x = pen_move_act(e, body, j, micro);
    pen_emit_pin(e, x);
    uint32_t y = last ? l->head_in[j] : pen_move_act_begin(e, body + 1, j);
    if (last)
      pen_emit_renew(e, y);
    uint32_t saved = e->shape->kind == PEN_STEP_TRAIN
                         ? l->saved[body * l->placement.group_size + j]
                         : PEN_NONE;
    if (saved != PEN_NONE)
      pen_emit_renew(e, saved);
    uint32_t task = pen_emit_task(e, PEN_TASK_FORWARD, PEN_LANE_COMPUTE,
                                  always, (uint32_t)block, micro);
    pen_build_work(e, task, block, PEN_WORK_FORWARD);
    pen_emit_read(e, l->inputs[j]);
    pen_build_read_weight(e, block, w);
    pen_emit_read(e, x);
    pen_emit_write(e, y);
    pen_build_use_work(e);
    if (saved != PEN_NONE)
      pen_emit_write(e, saved);
    pen_emit_unpin(e, x);
    if (!last)
      pen_move_act_end(e, body + 1, j, y, micro);
  }
}

/* The softmax statistics of all targets, one range of the vocabulary after the
 * other, and from them the loss. */
static void emit_head_forward(struct pen_emit *e, struct pen_build_span g)
{
  const struct pen_layout *l = e->l;
  const uint32_t *stats = l->stats + g.slot, *head_in = l->head_in + g.slot;
  for (size_t j = 0; j < g.count; j++) {
    pen_emit_renew(e, stats[j]);
    pen_emit_task(e, PEN_TASK_HEAD_BEGIN, PEN_LANE_COMPUTE, always, PEN_NONE,
                  pen_build_micro(g, j));
    pen_emit_write(e, stats[j]);
  }
  for (size_t b = e->w->head_begin; b < e->w->head_end; b++) {
    pen_build_update(e, b);
    uint32_t w = pen_move_weight(e, b);
    uint32_t saved =
        e->shape->kind == PEN_STEP_TRAIN ? l->head_saved[b] : PEN_NONE;
    for (size_t j = 0; j < g.count; j++) {
      if (saved != PEN_NONE)
        pen_emit_renew(e, saved);
      uint32_t task =
          pen_emit_task(e, PEN_TASK_HEAD_FORWARD, PEN_LANE_COMPUTE, always,
                        (uint32_t)b, pen_build_micro(g, j));
      pen_build_work(e, task, b, PEN_WORK_FORWARD);
      pen_emit_read(e, l->inputs[g.slot + j]);
      pen_build_read_weight(e, b, w);
      pen_emit_read(e, head_in[j]);
      pen_emit_modify(e, stats[j]);
      pen_build_use_work(e);
      if (saved != PEN_NONE)
        pen_emit_write(e, saved);
    }
  }
  for (size_t j = 0; j < g.count; j++) {
    uint32_t micro = pen_build_micro(g, j);
    pen_emit_task(e, PEN_TASK_HEAD_LOSS, PEN_LANE_COMPUTE, always, PEN_NONE,
                  micro);
    pen_emit_read(e, l->inputs[g.slot + j]);
    pen_emit_read(e, stats[j]);
    pen_emit_write_part(e, l->results_device, pen_layout_loss_offset(micro),
                        sizeof(double));
    uint32_t balance = l->balance[g.slot + j];
    if (balance != PEN_NONE && e->shape->kind == PEN_STEP_TRAIN)
      pen_emit_read(e, balance);
  }
}

static void emit_head_logits(struct pen_emit *e, struct pen_build_span g)
{
  const struct pen_layout *l = e->l;
  for (size_t b = e->w->head_begin; b < e->w->head_end; b++) {
    pen_build_update(e, b);
    uint32_t w = pen_move_weight(e, b);
    for (size_t j = 0; j < g.count; j++) {
      uint32_t task =
          pen_emit_task(e, PEN_TASK_HEAD_LOGITS, PEN_LANE_COMPUTE, always,
                        (uint32_t)b, pen_build_micro(g, j));
      pen_build_work(e, task, b, PEN_WORK_FORWARD);
      pen_emit_read(e, l->inputs[j]);
      pen_build_read_weight(e, b, w);
      pen_emit_read(e, l->head_in[j]);
      pen_emit_write(e, l->logits);
      pen_build_use_work(e);
    }
  }
}

static void emit_head_backward(struct pen_emit *e, struct pen_build_span g, bool last)
{
  const struct pen_layout *l = e->l;
  const uint32_t *dhead = l->dhead + g.slot, *d = l->d + g.slot;
  for (size_t b = e->w->head_begin; b < e->w->head_end; b++) {
    uint32_t w = pen_move_weight(e, b), saved = l->head_saved[b];
    uint32_t sum = pen_move_sum_begin(e, b, g.first == 0);
    for (size_t j = 0; j < g.count; j++) {
      if (b == e->w->head_begin)
        pen_emit_renew(e, dhead[j]);
      uint32_t task =
          pen_emit_task(e, PEN_TASK_HEAD_BACKWARD, PEN_LANE_COMPUTE, always,
                        (uint32_t)b, pen_build_micro(g, j));
      pen_build_work(e, task, b,
                   saved == PEN_NONE ? PEN_WORK_AGAIN : PEN_WORK_BACKWARD);
      pen_emit_read(e, l->inputs[g.slot + j]);
      pen_build_read_weight(e, b, w);
      pen_emit_read(e, l->head_in[g.slot + j]);
      pen_emit_read(e, l->stats[g.slot + j]);
      if (b == e->w->head_begin)
        pen_emit_write(e, dhead[j]);
      else
        pen_emit_modify(e, dhead[j]);
      pen_build_modify_sum(e, b, sum);
      pen_build_use_work(e);
      if (saved != PEN_NONE)
        pen_emit_read(e, saved);
    }
    pen_build_close_sum(e, b, sum, last);
  }
  for (size_t j = 0; j < g.count; j++) {
    pen_emit_renew(e, d[j]);
    pen_emit_task(e, PEN_TASK_HEAD_END, PEN_LANE_COMPUTE, always, PEN_NONE,
                  pen_build_micro(g, j));
    pen_emit_read(e, dhead[j]);
    pen_emit_write(e, d[j]);
  }
}

static void emit_backward_block(struct pen_emit *e, struct pen_build_span g, size_t body,
                                bool last)
{
  const struct pen_layout *l = e->l;
  size_t block = e->w->body_begin + body;
  uint32_t w = pen_move_weight(e, block);
  uint32_t sum = pen_move_sum_begin(e, block, g.first == 0);
  for (size_t j = 0; j < g.count; j++) {
    uint32_t micro = pen_build_micro(g, j);
    uint32_t x = pen_move_act(e, body, j, micro);
    uint32_t saved = l->saved[body * l->placement.group_size + j];
    uint32_t task = pen_emit_task(e, PEN_TASK_BACKWARD, PEN_LANE_COMPUTE,
                                  always, (uint32_t)block, micro);
    pen_build_work(e, task, block,
                   saved == PEN_NONE ? PEN_WORK_AGAIN : PEN_WORK_BACKWARD);
    pen_emit_read(e, l->inputs[j]);
    pen_build_read_weight(e, block, w);
    pen_emit_read(e, x);
    pen_emit_modify(e, l->d[j]);
    pen_build_modify_sum(e, block, sum);
    pen_build_use_work(e);
    if (saved != PEN_NONE)
      pen_emit_read(e, saved);
  }
  pen_build_close_sum(e, block, sum, last);
}

/* What finishing the blocks [first, end) counted. */
static void emit_counts_down(struct pen_emit *e, size_t first, size_t end)
{
  const struct pen_layout *l = e->l;
  size_t begins[] = {pen_layout_nonfinite_offset(e->w, first),
                     pen_layout_sumsq_offset(e->l, first)};
  size_t ends[] = {pen_layout_nonfinite_offset(e->w, end),
                   pen_layout_sumsq_offset(e->l, end)};
  for (int i = 0; first < end && i < 2; i++)
    pen_emit_copy_part(e, PEN_LANE_DOWNLOAD, l->results_device,
                       l->results_host, begins[i], ends[i] - begins[i]);
}

/* What the device counted comes down: losses, and in training the norms of the
 * blocks it finished (all but the embedding's, which the host finished). */
static void emit_results_down(struct pen_emit *e)
{
  const struct pen_layout *l = e->l;
  if (l->results_device == l->results_host)
    return;
  pen_emit_copy_part(e, PEN_LANE_DOWNLOAD, l->results_device, l->results_host,
                     0, e->shape->n_micros * sizeof(double));
  if (e->shape->kind != PEN_STEP_TRAIN)
    return;
  emit_counts_down(e, 0, e->w->rows_begin);
  emit_counts_down(e, e->w->rows_end, e->w->n_blocks);
}

static void emit_commit(struct pen_emit *e)
{
  uint32_t id = pen_emit_task(e, PEN_TASK_COMMIT, PEN_LANE_WRITE, always,
                              PEN_NONE, PEN_NONE);
  if (e->rc == 0) /* what it vouches for is down */
    e->s->tasks[id].wait[PEN_LANE_WRITE] = e->s->tasks[id].ticket - 1;
}

/* Every block was updated by the forward pass that just ended, or none was; the
 * embedding's are unless they had to be first, since nothing of it waits for them. */
static void end_updates(struct pen_emit *e)
{
  for (size_t b = e->w->rows_begin; b < e->w->rows_end; b++)
    pen_build_update(e, b);
  if (e->commits && (e->carry->pending || e->shape->save)) {
    emit_commit(e);
    e->carry->halves_due = false;
  } else if (e->carry->pending && !e->shape->skips) {
    e->carry->halves_due = e->l->state->has_half && e->l->n_store_tiles > 0;
  }
  e->carry->pending = e->carry->speculated = false;
}

/* Both passes over the head: all micro-batches of the group at once, so that
 * weights move twice only; where logits are kept, one after the other. */
static void emit_head(struct pen_emit *e, struct pen_build_span g)
{
  bool trains = e->shape->kind == PEN_STEP_TRAIN;
  bool by_micro = trains && pen_layout_keeps_head(e->l, e->w);
  size_t piece = by_micro ? 1 : g.count;
  for (size_t j = 0; j < g.count; j += piece) {
    struct pen_build_span part = {g.first + j, piece, j};
    emit_head_forward(e, part);
    end_updates(e);
    if (trains)
      emit_head_backward(e, part,
                         part.first + part.count == e->shape->n_micros);
  }
}

static void emit_group(struct pen_emit *e, struct pen_build_span g)
{
  bool last = g.first + g.count == e->shape->n_micros;
  size_t n_body = e->w->body_end - e->w->body_begin;
  emit_inputs(e, g);
  pen_build_gather(e, g);
  for (size_t body = 0; body < n_body; body++)
    if (pen_build_has_experts(e, body))
      pen_build_experts_forward(e, g, body);
    else
      emit_forward_block(e, g, body);
  if (e->shape->kind == PEN_STEP_LOGITS) {
    emit_head_logits(e, g);
    end_updates(e);
  } else {
    emit_head(e, g);
  }
  if (e->shape->kind != PEN_STEP_TRAIN)
    return;
  for (size_t body = n_body; body-- > 0;)
    if (pen_build_has_experts(e, body))
      pen_build_experts_backward(e, g, body, last);
    else
      emit_backward_block(e, g, body, last);
  pen_build_scatter(e, g);
}

static void emit_groups(struct pen_emit *e)
{
  const struct pen_layout *l = e->l;
  size_t n = e->shape->n_micros, group = l->placement.group_size;
  bool trains = e->shape->kind == PEN_STEP_TRAIN;
  if (e->shape->kind == PEN_STEP_LOGITS) {
    pen_emit_renew(e, l->logits);
  } else {
    pen_emit_renew(e, l->results_device);
    if (l->results_host != l->results_device)
      pen_emit_renew(e, l->results_host);
  }
  for (size_t first = 0; first < n; first += group, e->group++) {
    struct pen_build_span g = {first, n - first < group ? n - first : group, 0};
    emit_group(e, g);
  }
  for (size_t b = e->w->rows_begin; trains && b < e->w->rows_end; b++)
    pen_build_finish_rows(e, b);
  if (e->shape->kind != PEN_STEP_LOGITS) {
    emit_results_down(e);
  } else if (l->logits != l->logits_host) {
    pen_emit_renew(e, l->logits_host);
    pen_emit_copy(e, PEN_LANE_DOWNLOAD, always, PEN_NONE, PEN_NONE, l->logits,
                  l->logits_host, l->slots[l->logits].bytes);
  }
  if (!trains)
    return;
  pen_emit_task(e, PEN_TASK_DECIDE, PEN_LANE_UPDATE, always, PEN_NONE,
                PEN_NONE);
  pen_emit_read_part(e, l->results_host, 0, n * sizeof(double));
  uint64_t counts = pen_layout_nonfinite_offset(e->w, 0);
  pen_emit_read_part(e, l->results_host, counts,
                     pen_layout_sumsq_offset(e->l, e->w->n_blocks) - counts);
  e->carry->pending = true;
  e->carry->speculated = e->shape->speculates && l->n_speculative;
}

/* Of a tile whose halves are weights in RAM. */
static void read_halves(struct pen_emit *e, const struct pen_tile *tile)
{
  size_t elem = e->w->weight_elem_bytes;
  pen_emit_read_part(e, e->l->weight_home[tile->block], tile->begin * elem,
                     tile->elems * elem);
}

/* No forward: apply what is pending, and hand out everything when saving. */
static void emit_drain(struct pen_emit *e)
{
  bool halves = e->carry->halves_due && !e->carry->pending;
  for (size_t b = 0; b < e->w->n_blocks; b++) {
    pen_build_update(e, b);
    if (!e->shape->save)
      continue;
    if (halves)
      pen_move_halves(e, b, always);
    for (uint32_t t = e->l->block_tiles[b]; t < e->l->block_tiles[b + 1]; t++) {
      if (e->l->tiles[t].state_home == PEN_NONE)
        continue;
      uint32_t state = pen_move_state_host(e, t);
      uint32_t task = pen_emit_task(e, PEN_TASK_SAVE_TILE, PEN_LANE_WRITE,
                                    always, (uint32_t)b, PEN_NONE);
      if (e->rc == 0)
        e->s->tasks[task].tile = t;
      pen_emit_read_part(e, state, 0,
                         e->l->slots[e->l->tiles[t].state_home].bytes);
      if (pen_layout_half_is_weight(e->l, &e->l->tiles[t]))
        read_halves(e, &e->l->tiles[t]);
    }
    uint32_t w = pen_move_weight_host(e, b);
    pen_emit_task(e, PEN_TASK_SAVE_BLOCK, PEN_LANE_WRITE, always, (uint32_t)b,
                  PEN_NONE);
    pen_build_read_weight(e, b, w);
  }
  end_updates(e);
}

int pen_schedule_build(const struct pen_workload *workload,
                       const struct pen_layout *layout,
                       const struct pen_shape *shape, bool commits,
                       struct pen_carry *carry, struct pen_schedule *schedule)
{
  if (shape->n_micros > workload->n_micros_max ||
      (shape->n_micros == 0) != (shape->kind == PEN_STEP_DRAIN))
    return pen_error_set(PEN_ESCHEDULE,
                         "a step of %zu micro-batches; planned for 1 to %zu",
                         shape->n_micros, workload->n_micros_max);
  schedule->n_tasks = schedule->n_accesses = 0;
  memset(schedule->n_tickets, 0, sizeof schedule->n_tickets);
  memset(schedule->uses, 0, layout->n_slots * sizeof *schedule->uses);
  memset(schedule->updated, 0, workload->n_blocks * sizeof *schedule->updated);
  memset(schedule->written, 0, layout->n_tiles * sizeof *schedule->written);
  struct pen_emit e = {.w = workload,
                       .l = layout,
                       .shape = shape,
                       .carry = carry,
                       .s = schedule,
                       .commits = commits};
  if (shape->kind == PEN_STEP_DRAIN)
    emit_drain(&e);
  else
    emit_groups(&e);
  return e.rc;
}
