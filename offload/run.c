/* run.c: one step on a run's lanes.
 *
 * Main builds and checks the step, wakes the lane threads, is the compute lane
 * itself, and waits for the others: a step ends with every lane empty.  The
 * first failure of any lane breaks all waits and becomes the step's.
 * Disadvantage: that barrier; the first weights of a step are not prefetched
 * under the last gradients of the one before. */
#include "offload/run.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "offload/run_lanes.h"
#include "offload/touch.h"

/* A lane of width 1 through one step. */
static int run_narrow(struct pen_run_lane *lane)
{
  struct pen_run *run = lane->run;
  uint32_t n = run->schedule.n_tickets[lane->lane];
  for (uint32_t i = 0; i < n; i++) {
    const struct pen_task *task = pen_run_nth(run, lane->lane, i);
    if (!pen_run_wait(run, task))
      return -PEN_ESTOPPED;
    if (run->o.hooks.ends_steps && lane->lane == PEN_LANE_COMPUTE &&
        __atomic_load_n(run->o.hooks.stop, __ATOMIC_RELAXED))
      return pen_error_set(PEN_ESTOPPED, "stopped amid a step");
    uint64_t begin_ns = pen_clock_ns();
    int rc = pen_run_task(run, task);
    if (rc < 0)
      return pen_error_context(rc, "%s of block %s on lane %s",
                               pen_task_name(task->kind),
                               pen_run_block_name(run, task),
                               pen_lane_name(lane->lane));
    if (pen_run_is_on(run, task)) {
      pen_run_record(lane, task, begin_ns);
      lane->busy_ns += pen_clock_ns() - begin_ns;
    }
    pen_ticket_retire(&lane->progress, task->ticket);
  }
  return 0;
}

static void run_lane(struct pen_run_lane *lane)
{
  int rc = pen_lane_is_wide(lane->lane)              ? pen_run_transfers(lane)
           : pen_run_is_queue(lane->run, lane->lane) ? pen_run_issue(lane)
                                                     : run_narrow(lane);
  if (rc < 0)
    pen_run_break(lane->run);
}

static void finish_lane(struct pen_run_lane *lane)
{
  pen_run_finish(lane);
}

/* One of a lane's threads: its part of every step. */
static void each_step(struct pen_run_lane *lane,
                      void (*part)(struct pen_run_lane *lane))
{
  struct pen_run *run = lane->run;
  uint64_t seen = 0;
  pen_division_enter(run->o.division, lane->lane);
  for (;;) {
    pthread_mutex_lock(&run->lock);
    while (run->epoch == seen && !run->quit)
      pthread_cond_wait(&run->changed, &run->lock);
    seen = run->epoch;
    bool quit = run->quit;
    pthread_mutex_unlock(&run->lock);
    if (quit)
      return;
    part(lane);
    pthread_mutex_lock(&run->lock);
    run->working--;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
  }
}

void pen_run_lane_thread(void *lane)
{
  each_step(lane, run_lane);
}

void pen_run_finisher_thread(void *lane)
{
  each_step(lane, finish_lane);
}

/* Opened to be read; to be closed by the caller. */
static const double *open_losses(struct pen_run *run)
{
  const struct pen_layout *l = run->o.layout;
  const char *base = run->arena[PEN_TIER_HOST];
  pen_poison_open(&run->poison, l->results_host);
  return (const double *)(base + l->slots[l->results_host].offset +
                          pen_layout_loss_offset(0));
}

void pen_run_losses(struct pen_run *run, size_t n_micros, double *ret_losses)
{
  memcpy(ret_losses, open_losses(run), n_micros * sizeof *ret_losses);
  pen_poison_close(&run->poison, run->o.layout->results_host);
}

static void collect(struct pen_run *run, const struct pen_shape *shape)
{
  if (shape->kind == PEN_STEP_TRAIN || shape->kind == PEN_STEP_EVAL) {
    const double *loss = open_losses(run);
    for (size_t m = 0; m < shape->n_micros; m++)
      run->result.loss_sum += loss[m];
    pen_poison_close(&run->poison, run->o.layout->results_host);
  }
  for (int lane = 0; lane < PEN_LANES; lane++)
    run->result.busy_ns[lane] = run->lanes[lane].busy_ns;
}

static int run_lanes(struct pen_run *run)
{
  size_t threads = PEN_LANES - 1;
  for (int lane = 0; lane < PEN_LANES; lane++) {
    pen_ticket_reset(&run->lanes[lane].progress);
    pen_run_queue_reset(&run->lanes[lane].device);
    run->lanes[lane].busy_ns = 0;
    threads += pen_run_is_queue(run, lane);
  }
  pthread_mutex_lock(&run->lock);
  run->error = (struct pen_error){0};
  run->working = threads;
  run->epoch++;
  pthread_cond_broadcast(&run->changed);
  pthread_mutex_unlock(&run->lock);

  run_lane(&run->lanes[PEN_LANE_COMPUTE]);

  pthread_mutex_lock(&run->lock);
  while (run->working)
    pthread_cond_wait(&run->changed, &run->lock);
  struct pen_error error = run->error;
  pthread_mutex_unlock(&run->lock);
  return error.code ? pen_error_put(&error) : 0;
}

bool pen_run_is_speculated(const struct pen_run *run)
{
  return run->carry.speculated;
}

bool pen_run_stands(const struct pen_run *run,
                    const struct pen_run_update *update)
{
  return update->apply && update->number == run->update.guess_number &&
         memcmp(&update->params, &run->update.guess, sizeof update->params) == 0;
}

/* What was done early takes its place, or is forgotten; no lane runs. */
static void settle(struct pen_run *run, const struct pen_run_update *update)
{
  const struct pen_layout *l = run->o.layout;
  bool stands = pen_run_stands(run, update);
  run->redoes = !stands;
  for (size_t s = 0; stands && s < l->n_slots; s++) {
    uint32_t home = l->slots[s].shadow_of;
    if (home == PEN_NONE)
      continue;
    uint64_t offset = run->offset[home];
    run->offset[home] = run->offset[s];
    run->offset[s] = offset;
  }
  if (l->n_speculative_store_tiles)
    pen_store_settle(run->o.store, stands);
}

int pen_run_step(struct pen_run *run, const struct pen_shape *shape,
                 const struct pen_run_update *update,
                 struct pen_run_result *ret_result)
{
  uint64_t begin_ns = pen_clock_ns();
  bool commits = run->o.store && run->o.layout->n_store_tiles > 0 &&
                 (update->commit || shape->save);
  if (run->carry.speculated)
    settle(run, update);
  run->update = *update;
  run->n_micros = shape->n_micros;
  run->result = (struct pen_run_result){.nonfinite_block = PEN_NONE};
  if (run->logits_lent)
    pen_poison_close(&run->poison, run->o.layout->logits_host);
  run->logits_lent = false;
  pen_carry_copy(&run->before, &run->carry);
  struct pen_shape step = *shape;
  step.skips = !update->apply;
  int rc = pen_schedule_build(run->o.workload, run->o.layout, &step, commits,
                              &run->carry, &run->schedule);
  if (rc == 0)
    rc = pen_check_schedule(&run->check, run->o.layout, &run->schedule,
                            &run->before);
  if (rc == 0)
    rc = run_lanes(run);
  if (rc < 0)
    return rc;
  collect(run, shape);
  run->result.wall_ns = pen_clock_ns() - begin_ns;
  *ret_result = run->result;
  return 0;
}

bool pen_run_is_pending(const struct pen_run *run)
{
  return run->carry.pending;
}

const float *pen_run_logits(struct pen_run *run)
{
  const struct pen_layout *l = run->o.layout;
  if (!run->logits_lent)
    pen_poison_open(&run->poison, l->logits_host);
  run->logits_lent = true;
  char *base = run->arena[PEN_TIER_HOST];
  return (const float *)(base + l->slots[l->logits_host].offset);
}

size_t pen_run_pinned_bytes(const struct pen_run *run)
{
  return run->o.device->pin ? run->pinned_bytes
                            : run->arena_bytes[PEN_TIER_HOST];
}

int pen_run_look(const struct pen_run *run, size_t *ret_n_pages,
                 size_t *ret_n_there)
{
  return pen_touch_look(run->o.layout, run->o.division, PEN_TIER_HOST,
                        run->arena[PEN_TIER_HOST], ret_n_pages, ret_n_there);
}

const char *pen_run_io_note(const struct pen_run *run)
{
  const struct pen_store_queue *queue = run->lanes[PEN_LANE_READ].queue;
  return queue ? pen_store_queue_note(queue) : NULL;
}
