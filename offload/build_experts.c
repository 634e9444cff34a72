/* build_experts.c: a body block with experts: it says which micro-batch goes to
 * which of them, they add their parts one after the other, and these are joined.
 *
 *   route, for each micro-batch -> expert by expert, for each -> join, for each
 *   join backward -> expert by expert backward -> route backward
 *
 * What is known of the routing only while the step runs is behind the guard
 * ROUTED: an expert nobody was sent to is neither fetched nor called.  Its
 * update, its (zero) gradient and their norm are done all the same, so that no
 * number depends on it.  Main thread, pure.  Disadvantage: on a lane that works
 * in order, what comes after an expert's fetch waits for the routing too. */
#include "offload/build_part.h"
#include "offload/move.h"

static const enum pen_guard always = PEN_GUARD_ALWAYS;
static const enum pen_guard routed = PEN_GUARD_ROUTED;

static const struct pen_block *block_of(const struct pen_emit *e, size_t body)
{
  return &e->w->blocks[e->w->body_begin + body];
}

bool pen_build_has_experts(const struct pen_emit *e, size_t body)
{
  return pen_block_n_experts(block_of(e, body)) > 0;
}

static uint32_t routes_of(const struct pen_emit *e, size_t body, size_t j)
{
  return e->l->routes[body * e->l->placement.group_size + j];
}

/* The first of the step's blocks with experts begins the count of balance. */
static bool is_first(const struct pen_emit *e, size_t body)
{
  while (body > 0)
    if (pen_build_has_experts(e, --body))
      return false;
  return true;
}

/* ---- forward ---- */

static void use_balance(struct pen_emit *e, size_t body, size_t j)
{
  uint32_t balance = e->l->balance[j];
  if (balance == PEN_NONE || e->shape->kind != PEN_STEP_TRAIN)
    return;
  if (!is_first(e, body)) {
    pen_emit_modify(e, balance);
    return;
  }
  pen_emit_renew(e, balance);
  pen_emit_write(e, balance);
}

static void emit_route(struct pen_emit *e, struct pen_build_span g, size_t body)
{
  const struct pen_layout *l = e->l;
  size_t block = e->w->body_begin + body;
  uint32_t w = pen_move_weight(e, block);
  uint32_t counts = l->counts[body], on_host = l->counts_host[body];
  uint64_t bytes = pen_layout_counts_bytes(e->w, block);
  pen_emit_renew(e, counts);
  if (on_host != counts)
    pen_emit_renew(e, on_host);
  for (size_t j = 0; j < g.count; j++) {
    uint32_t x = pen_move_act(e, body, j, pen_build_micro(g, j));
    pen_emit_renew(e, routes_of(e, body, j));
    pen_emit_renew(e, l->mix[j]);
    uint32_t task = pen_emit_task(e, PEN_TASK_ROUTE, PEN_LANE_COMPUTE, always,
                                  (uint32_t)block, pen_build_micro(g, j));
    pen_build_work(e, task, block, PEN_WORK_FORWARD);
    pen_emit_read(e, l->inputs[j]);
    pen_build_read_weight(e, block, w);
    pen_emit_read(e, x);
    pen_emit_write(e, routes_of(e, body, j));
    pen_emit_write_part(e, counts, j * bytes, bytes);
    pen_emit_write(e, l->mix[j]);
    pen_build_use_work(e);
    use_balance(e, body, j);
    if (on_host != counts)
      pen_emit_copy_part(e, PEN_LANE_DOWNLOAD, counts, on_host, j * bytes,
                         bytes);
  }
}

/* Of what it shares with others, an expert touches its own tokens' part. */
static void use_mix(struct pen_emit *e, size_t expert, size_t j)
{
  uint32_t mix = e->l->mix[j];
  double bytes = (double)e->l->slots[mix].bytes;
  pen_emit_modify(e, mix);
  pen_emit_modified(e, mix, (uint64_t)(bytes * e->w->blocks[expert].share));
}

static void read_routes(struct pen_emit *e, size_t expert, uint32_t routes)
{
  double bytes = (double)e->l->slots[routes].bytes;
  pen_emit_read(e, routes);
  pen_emit_read_less(e, routes,
                     (uint64_t)(bytes * e->w->blocks[expert].share));
}

static void emit_expert(struct pen_emit *e, struct pen_build_span g,
                        size_t body, size_t expert)
{
  pen_build_update(e, expert);
  uint32_t w = pen_move_expert(e, expert, g.count);
  for (size_t j = 0; j < g.count; j++) {
    uint32_t task =
        pen_emit_task(e, PEN_TASK_EXPERT, PEN_LANE_COMPUTE, routed,
                      (uint32_t)expert, pen_build_micro(g, j));
    pen_build_work(e, task, expert, PEN_WORK_FORWARD);
    pen_move_read_counts(e, expert, g.count);
    pen_build_read_weight(e, expert, w);
    read_routes(e, expert, routes_of(e, body, j));
    use_mix(e, expert, j);
    pen_build_use_work(e);
  }
  pen_move_expert_done(e, expert);
}

static void emit_join(struct pen_emit *e, struct pen_build_span g, size_t body)
{
  const struct pen_layout *l = e->l;
  size_t block = e->w->body_begin + body;
  bool last = block + 1 == e->w->body_end;
  for (size_t j = 0; j < g.count; j++) {
    uint32_t micro = pen_build_micro(g, j);
    uint32_t x = pen_move_act(e, body, j, micro);
    pen_emit_pin(e, x);
    uint32_t y = last ? l->head_in[j] : pen_move_act_begin(e, body + 1, j);
    if (last)
      pen_emit_renew(e, y);
    pen_emit_task(e, PEN_TASK_JOIN, PEN_LANE_COMPUTE, always, (uint32_t)block,
                  micro);
    pen_emit_read(e, x);
    pen_emit_read(e, l->mix[j]);
    pen_emit_write(e, y);
    pen_emit_unpin(e, x);
    if (!last)
      pen_move_act_end(e, body + 1, j, y, micro);
  }
}

void pen_build_experts_forward(struct pen_emit *e, struct pen_build_span g,
                               size_t body)
{
  const struct pen_block *block = block_of(e, body);
  pen_build_update(e, e->w->body_begin + body);
  emit_route(e, g, body);
  for (size_t x = block->experts_begin; x < block->experts_end; x++)
    emit_expert(e, g, body, x);
  emit_join(e, g, body);
}

/* ---- backward ---- */

static void emit_join_backward(struct pen_emit *e, struct pen_build_span g,
                               size_t body)
{
  size_t block = e->w->body_begin + body;
  uint32_t w = pen_move_weight(e, block);
  for (size_t j = 0; j < g.count; j++) {
    uint32_t micro = pen_build_micro(g, j);
    uint32_t x = pen_move_act(e, body, j, micro);
    pen_emit_renew(e, e->l->mix[j]);
    pen_emit_task(e, PEN_TASK_JOIN_BACKWARD, PEN_LANE_COMPUTE, always,
                  (uint32_t)block, micro);
    pen_emit_read(e, e->l->inputs[j]);
    pen_build_read_weight(e, block, w);
    pen_emit_read(e, x);
    pen_emit_write(e, e->l->mix[j]);
    pen_build_use_work(e);
  }
}

static void emit_expert_backward(struct pen_emit *e, struct pen_build_span g,
                                 size_t body, size_t expert, bool last_group)
{
  uint32_t w = pen_move_expert(e, expert, g.count);
  uint32_t sum = pen_move_sum_begin(e, expert, g.first == 0);
  for (size_t j = 0; j < g.count; j++) {
    uint32_t task =
        pen_emit_task(e, PEN_TASK_EXPERT_BACKWARD, PEN_LANE_COMPUTE, routed,
                      (uint32_t)expert, pen_build_micro(g, j));
    pen_build_work(e, task, expert, PEN_WORK_AGAIN);
    pen_move_read_counts(e, expert, g.count);
    pen_build_read_weight(e, expert, w);
    read_routes(e, expert, routes_of(e, body, j));
    pen_emit_read(e, e->l->d[j]);
    use_mix(e, expert, j);
    pen_build_modify_sum(e, expert, sum);
    pen_build_use_work(e);
  }
  pen_move_expert_done(e, expert);
  pen_build_close_sum(e, expert, sum, last_group);
}

static void emit_route_backward(struct pen_emit *e, struct pen_build_span g,
                                size_t body, bool last_group)
{
  const struct pen_layout *l = e->l;
  size_t block = e->w->body_begin + body;
  uint32_t w = pen_move_weight(e, block);
  uint32_t sum = pen_move_sum_begin(e, block, g.first == 0);
  for (size_t j = 0; j < g.count; j++) {
    uint32_t micro = pen_build_micro(g, j);
    uint32_t x = pen_move_act(e, body, j, micro);
    uint32_t task =
        pen_emit_task(e, PEN_TASK_ROUTE_BACKWARD, PEN_LANE_COMPUTE, always,
                      (uint32_t)block, micro);
    pen_build_work(e, task, block, PEN_WORK_BACKWARD);
    pen_emit_read(e, l->inputs[j]);
    pen_build_read_weight(e, block, w);
    pen_emit_read(e, x);
    pen_emit_read(e, routes_of(e, body, j));
    pen_emit_modify(e, l->mix[j]);
    pen_emit_modify(e, l->d[j]);
    pen_build_modify_sum(e, block, sum);
    pen_build_use_work(e);
    if (l->balance[j] != PEN_NONE)
      pen_emit_read(e, l->balance[j]);
  }
  pen_build_close_sum(e, block, sum, last_group);
}

void pen_build_experts_backward(struct pen_emit *e, struct pen_build_span g,
                                size_t body, bool last_group)
{
  const struct pen_block *block = block_of(e, body);
  emit_join_backward(e, g, body);
  for (size_t x = block->experts_begin; x < block->experts_end; x++)
    emit_expert_backward(e, g, body, x, last_group);
  emit_route_backward(e, g, body, last_group);
}
