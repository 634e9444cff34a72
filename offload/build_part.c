/* build_part.c: what laying out any block needs: its update, its weights, its
 * gradient's sum and what becomes of that.
 *
 * Main thread, pure.  Disadvantage: costs are set beside the accesses they are
 * of, so a kind of task that forgets its FLOPs is free. */
#include "offload/build_part.h"

#include "offload/move.h"

void pen_build_work(struct pen_emit *e, uint32_t task, size_t block,
                    enum pen_build_work work)
{
  const struct pen_block *b = &e->w->blocks[block];
  double tokens = e->shape->n_tokens / (double)e->shape->n_micros;
  double forward = work != PEN_WORK_BACKWARD;
  double backward = work != PEN_WORK_FORWARD;
  if (e->rc < 0)
    return;
  struct pen_cost *c = &e->s->tasks[task].cost;
  c->flops = tokens * b->forward_flops_per_token *
             (forward + backward * PEN_BACKWARD_PRODUCTS);
  c->rows = tokens * (b->share > 0 ? b->share : 1);
  c->vector_flops = tokens * b->forward_vector_flops_per_token *
                    (forward + backward * PEN_BACKWARD_VECTOR);
  c->pass_elems = tokens * b->forward_pass_elems_per_token *
                  (forward + backward * PEN_BACKWARD_PASSES);
}

/* A block's weights as the last decided update makes them. */
void pen_build_update(struct pen_emit *e, size_t block)
{
  if (!e->carry->pending || e->s->updated[block])
    return;
  e->s->updated[block] = true;
  pen_move_update(e, block);
}

void pen_build_read_weight(struct pen_emit *e, size_t block, uint32_t slot)
{
  pen_emit_read_part(e, slot, 0, pen_move_weight_bytes(e, block));
}

void pen_build_use_work(struct pen_emit *e)
{
  if (e->l->work == PEN_NONE)
    return;
  pen_emit_renew(e, e->l->work);
  pen_emit_write(e, e->l->work);
}

/* What the newest task says of a block's finished gradient. */
static void write_results(struct pen_emit *e, size_t block, uint32_t results)
{
  pen_emit_write_part(e, results, pen_layout_nonfinite_offset(e->w, block),
                      sizeof(uint64_t));
  pen_emit_write_part(e, results, pen_layout_sumsq_offset(e->l, block),
                      pen_layout_sumsq_chunks(e->w, block) * sizeof(double));
}

/* Rounds a whole gradient to what is stored, and takes its norm.  Where its block
 * has a shadow it is used at once. */
static void finish(struct pen_emit *e, size_t block, uint32_t sum)
{
  uint32_t stored = pen_move_grad_begin(e, block, false);
  pen_emit_task(e, PEN_TASK_FINISH, PEN_LANE_COMPUTE, PEN_GUARD_ALWAYS,
                (uint32_t)block, PEN_NONE);
  pen_emit_read_part(e, sum, 0, pen_move_sum_bytes(e, block));
  pen_emit_write_part(e, stored, 0, pen_move_weight_bytes(e, block));
  write_results(e, block, e->l->results_device);
  uint32_t grad = pen_move_grad_end(e, block, stored);
  if (e->shape->speculates && e->l->weight_shadow[block] != PEN_NONE)
    pen_move_speculate(e, block, grad);
}

static void keep_rows(struct pen_emit *e, size_t block, uint32_t sum,
                      uint32_t stored)
{
  uint64_t rows = pen_build_rows_part(e, e->w->rows_bytes);
  uint64_t bytes = pen_move_weight_bytes(e, block);
  pen_emit_task(e, PEN_TASK_KEEP_ROWS, PEN_LANE_UPDATE, PEN_GUARD_ALWAYS,
                (uint32_t)block, PEN_NONE);
  pen_emit_read_part(e, sum, 0, pen_move_sum_bytes(e, block));
  pen_emit_write_part(e, stored, 0, bytes);
  pen_emit_write(e, e->l->rows_kept);
  pen_emit_traffic(e, pen_move_sum_bytes(e, block) + rows, bytes + rows);
}

/* After a block's last micro-batch of a group: carry its sum on, or finish; one
 * that waits for the embedding's rows, all but these. */
void pen_build_close_sum(struct pen_emit *e, size_t block, uint32_t sum,
                         bool last_group)
{
  if (!last_group || (pen_workload_is_rows(e->w, block) && e->l->rows_wait)) {
    pen_move_sum_keep(e, block, sum);
  } else if (pen_workload_is_rows(e->w, block)) {
    sum = pen_move_sum_host(e, block, sum);
    if (block == e->w->rows_begin)
      pen_emit_renew(e, e->l->rows_kept);
    keep_rows(e, block, sum, pen_move_grad_begin(e, block, true));
  } else {
    finish(e, block, sum);
  }
}

/* Where the head's part of the gradient was finished before, or waits whole, or
 * there is none. */
void pen_build_finish_rows(struct pen_emit *e, size_t block)
{
  const struct pen_layout *l = e->l;
  bool tied = pen_workload_is_tied(e->w);
  uint32_t stored = l->grad_home[block];
  uint64_t rows = pen_build_rows_part(e, e->w->rows_bytes);
  uint64_t bytes = pen_move_weight_bytes(e, block);
  if (!tied || l->rows_wait)
    stored = pen_move_grad_begin(e, block, true);
  if (l->rows_wait) {
    pen_emit_renew(e, l->rows_kept);
    keep_rows(e, block, l->partial_home[block], stored);
  }
  pen_emit_task(e, PEN_TASK_FINISH_ROWS, PEN_LANE_UPDATE, PEN_GUARD_ALWAYS,
                (uint32_t)block, PEN_NONE);
  pen_emit_read(e, l->rows_sums);
  if (tied)
    pen_emit_modify(e, stored);
  else
    pen_emit_write_part(e, stored, 0, bytes);
  write_results(e, block, l->results_host);
  if (tied)
    pen_emit_modify(e, l->rows_kept);
  pen_emit_traffic(e, bytes + 2 * rows, tied ? 2 * rows : bytes);
  pen_move_grad_end(e, block, stored);
}

void pen_build_modify_sum(struct pen_emit *e, size_t block, uint32_t sum)
{
  pen_emit_modify(e, sum);
  pen_emit_modified(e, sum, pen_move_sum_bytes(e, block));
}
