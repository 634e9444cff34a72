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

/* Rounds a whole gradient to what is stored, and takes its norm. */
void pen_build_finish(struct pen_emit *e, size_t block, uint32_t sum,
                      bool on_host)
{
  const struct pen_layout *l = e->l;
  uint32_t extra = on_host ? l->rows_sum[block] : PEN_NONE;
  uint32_t results = on_host ? l->results_host : l->results_device;
  uint32_t stored = pen_move_grad_begin(e, block, on_host);
  pen_emit_task(e, on_host ? PEN_TASK_FINISH_ROWS : PEN_TASK_FINISH,
                on_host ? PEN_LANE_UPDATE : PEN_LANE_COMPUTE, PEN_GUARD_ALWAYS,
                (uint32_t)block, PEN_NONE);
  pen_emit_read_part(e, sum, 0, e->w->blocks[block].elems * sizeof(float));
  pen_emit_write_part(e, stored, 0, pen_move_weight_bytes(e, block));
  pen_emit_write_part(e, results, pen_layout_nonfinite_offset(e->w, block),
                      sizeof(uint64_t));
  pen_emit_write_part(e, results, pen_layout_sumsq_offset(e->l, block),
                      pen_layout_sumsq_chunks(e->w, block) * sizeof(double));
  if (extra != PEN_NONE && extra != sum)
    pen_emit_read(e, extra);
  uint32_t grad = pen_move_grad_end(e, block, stored);
  if (e->shape->speculates && l->weight_shadow[block] != PEN_NONE)
    pen_move_speculate(e, block, grad);
}

/* After a block's last micro-batch of a group: carry its sum on, or finish. */
void pen_build_close_sum(struct pen_emit *e, size_t block, uint32_t sum,
                         bool last_group)
{
  bool waits_for_rows = e->l->rows_sum[block] != PEN_NONE;
  if (!last_group || waits_for_rows)
    pen_move_sum_keep(e, block, sum);
  else
    pen_build_finish(e, block, sum, false);
}

void pen_build_modify_sum(struct pen_emit *e, size_t block, uint32_t sum)
{
  pen_emit_modify(e, sum);
  pen_emit_modified(e, sum, e->w->blocks[block].elems * sizeof(float));
}
