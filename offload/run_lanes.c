/* run_lanes.c: what every lane does around its tasks: guards, waits, addresses,
 * the first failure, the timeline.
 *
 * Any lane's thread, each for its own tasks.  Disadvantage: a failure wakes
 * every lane, also those that could have ended their task. */
#include "offload/run_lanes.h"

#include "base/clock.h"

/* Does any micro-batch of the task's group send something to its expert? */
static bool is_routed(struct pen_run *run, const struct pen_task *task)
{
  const struct pen_layout *l = run->o.layout;
  const struct pen_block *blocks = run->o.workload->blocks;
  const struct pen_block *owner = &blocks[blocks[task->block].owner];
  uint32_t slot = l->routed_by[task->block];
  const char *base = run->arena[PEN_TIER_HOST];
  size_t n = pen_block_n_experts(owner), group = l->placement.group_size;
  size_t micros = run->n_micros - task->group * group;
  bool routed = false;
  pen_poison_open(&run->poison, slot);
  const uint32_t *count = (const uint32_t *)(base + l->slots[slot].offset) +
                          task->block - owner->experts_begin;
  for (size_t j = 0; j < micros && j < group; j++, count += n)
    routed |= *count > 0;
  pen_poison_close(&run->poison, slot);
  return routed;
}

bool pen_run_is_on(struct pen_run *run, const struct pen_task *task)
{
  if (task->guard == PEN_GUARD_ROUTED)
    return is_routed(run, task);
  if (task->guard == PEN_GUARD_REDO)
    return run->update.apply && run->redoes;
  return task->guard == PEN_GUARD_ALWAYS ||
         task->guard ==
             (run->update.apply ? PEN_GUARD_APPLY : PEN_GUARD_SKIP);
}

bool pen_run_wait(struct pen_run *run, const struct pen_task *task)
{
  for (int lane = 0; lane < PEN_LANES; lane++)
    if (task->wait[lane] &&
        !pen_ticket_wait(&run->lanes[lane].progress, task->wait[lane]))
      return false;
  return true;
}

void pen_run_break(struct pen_run *run)
{
  struct pen_error error;
  pen_error_take(&error);
  pthread_mutex_lock(&run->lock);
  if (!run->error.code)
    run->error = error;
  pthread_mutex_unlock(&run->lock);
  for (int lane = 0; lane < PEN_LANES; lane++) {
    pen_ticket_break(&run->lanes[lane].progress);
    pen_run_queue_break(&run->lanes[lane].device);
  }
}

const char *pen_run_block_name(const struct pen_run *run,
                               const struct pen_task *task)
{
  return task->block == PEN_NONE ? "-"
                                 : run->o.workload->blocks[task->block].name;
}

void pen_run_addresses(const struct pen_run *run, const struct pen_task *task,
                       void *ret_addresses[PEN_TASK_ACCESSES_MAX])
{
  for (uint32_t i = 0; i < task->n_accesses; i++) {
    const struct pen_access *a =
        &run->schedule.accesses[task->first_access + i];
    const struct pen_slot *slot = &run->o.layout->slots[a->slot];
    char *base = run->arena[slot->tier];
    ret_addresses[i] = base ? base + run->offset[a->slot] + a->offset : NULL;
  }
}

void pen_run_record(struct pen_run_lane *lane, const struct pen_task *task,
                    uint64_t begin_ns)
{
  uint64_t end_ns = pen_clock_ns();
  struct pen_trace_event event = {.begin_ns = begin_ns,
                                  .end_ns = end_ns,
                                  .name = pen_task_name(task->kind),
                                  .block = (int32_t)task->block,
                                  .micro = (int32_t)task->micro,
                                  .tile = (int32_t)task->tile};
  pen_trace_record(lane->run->o.trace, lane->lane, &event);
}
