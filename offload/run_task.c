/* run_task.c: what each kind of task does, given the addresses of what it
 * declared.
 *
 * A function per kind, in one table; `at` are the accesses in the order that
 * PEN_TASK_LIST (schedule.h) gives for the kind.  Runs on the task's lane.
 * Disadvantage: that order is a convention between build and here, which only
 * the tests of whole steps hold together. */
#include <string.h>

#include "kernels/gradient.h"
#include "offload/run_lanes.h"

typedef int (*task_body)(struct pen_run *run, const struct pen_task *t,
                         void *const *at);

static const struct pen_compute *model(const struct pen_run *run)
{
  return run->o.compute;
}

static struct pen_inputs inputs(const struct pen_run *run, const void *micro)
{
  return (struct pen_inputs){run->tables, micro, run->kept};
}

static int do_gather(struct pen_run *run, const struct pen_task *t,
                     void *const *at)
{
  return model(run)->gather(model(run)->ctx, t->block, t->micro, at[0], at[1]);
}

static int do_gather_ahead(struct pen_run *run, const struct pen_task *t,
                           void *const *at)
{
  return model(run)->gather_ahead(model(run)->ctx, t->micro, at[0], at[1]);
}

static int do_inputs(struct pen_run *run, const struct pen_task *t,
                     void *const *at)
{
  return model(run)->put_inputs(model(run)->ctx, t->micro, at[0]);
}

static int do_forward(struct pen_run *run, const struct pen_task *t,
                      void *const *at)
{
  struct pen_inputs in = inputs(run, at[0]);
  void *saved = t->n_accesses > 5 ? at[5] : NULL;
  return model(run)->forward(model(run)->ctx, t->block, t->micro, &in, at[1],
                             at[2], at[3], saved, at[4]);
}

static int do_backward(struct pen_run *run, const struct pen_task *t,
                       void *const *at)
{
  struct pen_inputs in = inputs(run, at[0]);
  const void *saved = t->n_accesses > 6 ? at[6] : NULL;
  return model(run)->backward(model(run)->ctx, t->block, t->micro, &in, at[1],
                              at[2], saved, at[3], at[4], at[5]);
}

static int do_route(struct pen_run *run, const struct pen_task *t,
                    void *const *at)
{
  struct pen_inputs in = inputs(run, at[0]);
  void *balance = t->n_accesses > 7 ? at[7] : NULL;
  return model(run)->route(model(run)->ctx, t->block, t->micro, &in, at[1],
                           at[2], at[3], at[4], at[5], at[6], balance);
}

/* The counts of the task's micro-batch in those of its group; NULL: none of it
 * goes to this expert. */
static const uint32_t *counts_of(const struct pen_run *run,
                                 const struct pen_task *t,
                                 const uint32_t *group)
{
  const struct pen_block *blocks = run->o.workload->blocks;
  const struct pen_block *owner = &blocks[blocks[t->block].owner];
  size_t j = t->micro % run->o.layout->placement.group_size;
  const uint32_t *counts = group + j * pen_block_n_experts(owner);
  return counts[t->block - owner->experts_begin] ? counts : NULL;
}

static int do_expert(struct pen_run *run, const struct pen_task *t,
                     void *const *at)
{
  const uint32_t *counts = counts_of(run, t, at[0]);
  return !counts ? 0
                 : model(run)->expert(model(run)->ctx, t->block, t->micro,
                                      counts, at[1], at[2], at[3], at[4]);
}

static int do_join(struct pen_run *run, const struct pen_task *t,
                   void *const *at)
{
  return model(run)->join(model(run)->ctx, t->block, t->micro, at[0], at[1],
                          at[2]);
}

static int do_join_backward(struct pen_run *run, const struct pen_task *t,
                            void *const *at)
{
  struct pen_inputs in = inputs(run, at[0]);
  return model(run)->join_backward(model(run)->ctx, t->block, t->micro, &in,
                                   at[1], at[2], at[3], at[4]);
}

static int do_expert_backward(struct pen_run *run, const struct pen_task *t,
                              void *const *at)
{
  const uint32_t *counts = counts_of(run, t, at[0]);
  return !counts ? 0
                 : model(run)->expert_backward(model(run)->ctx, t->block,
                                               t->micro, counts, at[1], at[2],
                                               at[3], at[4], at[5], at[6]);
}

static int do_route_backward(struct pen_run *run, const struct pen_task *t,
                             void *const *at)
{
  struct pen_inputs in = inputs(run, at[0]);
  const void *balance = t->n_accesses > 8 ? at[8] : NULL;
  return model(run)->route_backward(model(run)->ctx, t->block, t->micro, &in,
                                    at[1], at[2], at[3], at[4], at[5], at[6],
                                    at[7], balance);
}

static int do_head_begin(struct pen_run *run, const struct pen_task *t,
                         void *const *at)
{
  return model(run)->head_begin(model(run)->ctx, t->micro, at[0]);
}

static int do_head_forward(struct pen_run *run, const struct pen_task *t,
                           void *const *at)
{
  struct pen_inputs in = inputs(run, at[0]);
  void *saved = t->n_accesses > 5 ? at[5] : NULL;
  return model(run)->head_forward(model(run)->ctx, t->block, t->micro, &in,
                                  at[1], at[2], at[3], saved, at[4]);
}

static int do_head_loss(struct pen_run *run, const struct pen_task *t,
                        void *const *at)
{
  struct pen_inputs in = inputs(run, at[0]);
  const void *balance = t->n_accesses > 3 ? at[3] : NULL;
  return model(run)->head_loss(model(run)->ctx, t->micro, &in, at[1], balance,
                               at[2]);
}

static int do_head_backward(struct pen_run *run, const struct pen_task *t,
                            void *const *at)
{
  struct pen_inputs in = inputs(run, at[0]);
  const void *saved = t->n_accesses > 7 ? at[7] : NULL;
  return model(run)->head_backward(model(run)->ctx, t->block, t->micro, &in,
                                   at[1], at[2], at[3], saved, at[4], at[5],
                                   at[6]);
}

static int do_head_end(struct pen_run *run, const struct pen_task *t,
                       void *const *at)
{
  return model(run)->head_end(model(run)->ctx, t->micro, at[0], at[1]);
}

static int do_head_logits(struct pen_run *run, const struct pen_task *t,
                          void *const *at)
{
  struct pen_inputs in = inputs(run, at[0]);
  return model(run)->head_logits(model(run)->ctx, t->block, t->micro, &in,
                                 at[1], at[2], at[3], at[4]);
}

static int do_scatter(struct pen_run *run, const struct pen_task *t,
                      void *const *at)
{
  return model(run)->scatter(model(run)->ctx, t->micro, at[0], at[1]);
}

static int do_zero(struct pen_run *run, const struct pen_task *t,
                   void *const *at)
{
  size_t bytes = run->schedule.accesses[t->first_access].bytes;
  if (t->lane == PEN_LANE_COMPUTE)
    return run->o.device->zero(run->o.device, at[0], bytes);
  memset(at[0], 0, bytes);
  return 0;
}

static int do_finish(struct pen_run *run, const struct pen_task *t,
                     void *const *at)
{
  struct pen_finish_result result = {.chunk_sumsq = at[3], .nonfinite = at[2]};
  return model(run)->finish(model(run)->ctx, t->block, at[0], at[1], &result);
}

static int do_keep_rows(struct pen_run *run, const struct pen_task *t,
                        void *const *at)
{
  return model(run)->keep_rows(model(run)->ctx, t->block, at[0], at[1], at[2]);
}

static int do_finish_rows(struct pen_run *run, const struct pen_task *t,
                          void *const *at)
{
  struct pen_finish_result result = {.chunk_sumsq = at[3], .nonfinite = at[2]};
  float *kept = t->n_accesses > 4 ? at[4] : NULL;
  return model(run)->finish_rows(model(run)->ctx, t->block, at[0], kept, at[1],
                                 &result);
}

static int do_copy(struct pen_run *run, const struct pen_task *t,
                   void *const *at)
{
  size_t bytes = run->schedule.accesses[t->first_access].bytes;
  return t->lane == PEN_LANE_UPLOAD
             ? run->o.device->upload(run->o.device, at[1], at[0], bytes)
             : run->o.device->download(run->o.device, at[1], at[0], bytes);
}

/* The step's one decision rests on these sums, taken in the order of blocks and
 * chunks whatever the order of finishing. */
static int do_decide(struct pen_run *run, const struct pen_task *t,
                     void *const *at)
{
  const struct pen_workload *w = run->o.workload;
  const uint64_t *nonfinite = at[1];
  size_t chunks = 0;
  (void)t;
  run->result.nonfinite_block = PEN_NONE;
  for (size_t b = 0; b < w->n_blocks; b++) {
    chunks += pen_layout_sumsq_chunks(w, b);
    run->result.nonfinite += nonfinite[b];
    if (nonfinite[b] && run->result.nonfinite_block == PEN_NONE)
      run->result.nonfinite_block = (uint32_t)b;
  }
  const double *sums = (const double *)(nonfinite + w->n_blocks);
  run->result.sumsq = pen_gradient_total(chunks, sums);
  return 0;
}

static int do_commit(struct pen_run *run, const struct pen_task *t,
                     void *const *at)
{
  (void)t;
  (void)at;
  const struct pen_run_hooks *hooks = &run->o.hooks;
  int rc = hooks->before_commit ? hooks->before_commit(hooks->ctx) : 0;
  return rc < 0 ? rc
                : pen_store_commit(run->o.store, run->update.step,
                                   run->update.meta, run->update.meta_bytes);
}

static int do_save_tile(struct pen_run *run, const struct pen_task *t,
                        void *const *at)
{
  const struct pen_layout *l = run->o.layout;
  const struct pen_tile *tile = &l->tiles[t->tile];
  const char *half = (char *)at[0] + pen_layout_half_offset(l, tile);
  if (!l->state->has_half)
    half = NULL;
  else if (pen_layout_half_is_weight(l, tile))
    half = at[1];
  return run->o.hooks.save_tile(run->o.hooks.ctx, t->tile, at[0], half);
}

static int do_save_block(struct pen_run *run, const struct pen_task *t,
                         void *const *at)
{
  return run->o.hooks.save_block(run->o.hooks.ctx, t->block, at[0]);
}

/* READ, WRITE, and those of tiles are transfers (run_transfers.c); what does AdamW is
 * in run_update.c. */
static const task_body bodies[PEN_TASK_KINDS] = {
    [PEN_TASK_GATHER] = do_gather,
    [PEN_TASK_ROWS_AHEAD] = pen_run_rows_ahead,
    [PEN_TASK_GATHER_AHEAD] = do_gather_ahead,
    [PEN_TASK_INPUTS] = do_inputs,
    [PEN_TASK_FORWARD] = do_forward,
    [PEN_TASK_BACKWARD] = do_backward,
    [PEN_TASK_ROUTE] = do_route,
    [PEN_TASK_EXPERT] = do_expert,
    [PEN_TASK_JOIN] = do_join,
    [PEN_TASK_JOIN_BACKWARD] = do_join_backward,
    [PEN_TASK_EXPERT_BACKWARD] = do_expert_backward,
    [PEN_TASK_ROUTE_BACKWARD] = do_route_backward,
    [PEN_TASK_HEAD_BEGIN] = do_head_begin,
    [PEN_TASK_HEAD_FORWARD] = do_head_forward,
    [PEN_TASK_HEAD_LOSS] = do_head_loss,
    [PEN_TASK_HEAD_BACKWARD] = do_head_backward,
    [PEN_TASK_HEAD_END] = do_head_end,
    [PEN_TASK_HEAD_LOGITS] = do_head_logits,
    [PEN_TASK_SCATTER] = do_scatter,
    [PEN_TASK_ZERO] = do_zero,
    [PEN_TASK_FINISH] = do_finish,
    [PEN_TASK_KEEP_ROWS] = do_keep_rows,
    [PEN_TASK_FINISH_ROWS] = do_finish_rows,
    [PEN_TASK_COPY] = do_copy,
    [PEN_TASK_UPDATE] = pen_run_apply_update,
    [PEN_TASK_SPECULATE] = pen_run_speculate,
    [PEN_TASK_DECIDE] = do_decide,
    [PEN_TASK_COMMIT] = do_commit,
    [PEN_TASK_SAVE_TILE] = do_save_tile,
    [PEN_TASK_SAVE_BLOCK] = do_save_block,
};

int pen_run_task_begin(struct pen_run *run, const struct pen_task *task)
{
  void *at[PEN_TASK_ACCESSES_MAX];
  pen_run_addresses(run, task, at);
  pen_poison_acquire(&run->poison, &run->schedule, task);
  int rc = bodies[task->kind](run, task, at);
  if (rc < 0)
    pen_poison_release(&run->poison, &run->schedule, task);
  return rc;
}

int pen_run_task(struct pen_run *run, const struct pen_task *task)
{
  if (!pen_run_is_on(run, task))
    return 0;
  int rc = pen_run_task_begin(run, task);
  if (rc == 0)
    pen_poison_release(&run->poison, &run->schedule, task);
  return rc;
}
