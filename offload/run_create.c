/* run_create.c: takes a run's memory, makes its queues and starts its lanes.
 *
 * Main thread.  Disadvantage: each lane keeps its thread, also those that a run
 * gives nothing to do. */
#include <stdlib.h>

#include "offload/run_lanes.h"
#include "offload/touch.h"

/* Memory where the threads of each node are, or anywhere. */
static int take_host_arena(struct pen_run *run)
{
  const struct pen_division *division = run->o.division;
  size_t bytes = run->arena_bytes[PEN_TIER_HOST];
  void **arena = &run->arena[PEN_TIER_HOST];
  if (!division)
    return pen_device_host_alloc(bytes, arena);
  int rc = pen_device_host_map(bytes, arena);
  return rc < 0 ? rc
                : pen_touch_arena(run->o.layout, division, PEN_TIER_HOST,
                                  *arena, run->o.hooks.stop);
}

static int take_arenas(struct pen_run *run)
{
  const struct pen_layout *l = run->o.layout;
  const struct pen_device *device = run->o.device;
  run->arena_bytes[PEN_TIER_DEVICE] = l->tier_bytes[PEN_TIER_DEVICE];
  run->arena_bytes[PEN_TIER_HOST] = l->tier_bytes[PEN_TIER_HOST];
  int rc = take_host_arena(run);
  if (rc == 0)
    rc = device->alloc(device, run->arena_bytes[PEN_TIER_DEVICE],
                       &run->arena[PEN_TIER_DEVICE]);
  if (rc == 0 && device->pin)
    rc = device->pin(device, run->arena[PEN_TIER_HOST],
                     run->arena_bytes[PEN_TIER_HOST], &run->pinned_bytes);
  run->poisoned[PEN_TIER_HOST] = run->arena[PEN_TIER_HOST];
  run->poisoned[PEN_TIER_DEVICE] =
      device->marks ? NULL : run->arena[PEN_TIER_DEVICE];
  run->tables = run->o.workload->tables;
  if (l->tables != PEN_NONE)
    run->tables = (char *)run->arena[PEN_TIER_DEVICE] +
                  l->slots[l->tables].offset;
  if (l->kept != PEN_NONE)
    run->kept = (char *)run->arena[l->compute_tier] + l->slots[l->kept].offset;
  return rc;
}

static int open_queues(struct pen_run *run)
{
  struct pen_store_region region = {run->arena[PEN_TIER_HOST],
                                    run->arena_bytes[PEN_TIER_HOST]};
  int rc = 0;
  for (int lane = PEN_LANE_READ; run->o.store && rc == 0 && lane < PEN_LANES;
       lane++)
    rc = pen_store_queue_create(run->o.store, run->o.io_depth, &region, 1,
                                &run->lanes[lane].queue);
  return rc;
}

static const char *finisher_name(enum pen_lane lane)
{
  return lane == PEN_LANE_COMPUTE  ? "compute done"
         : lane == PEN_LANE_UPLOAD ? "upload done"
                                   : "download done";
}

static int start_lanes(struct pen_run *run)
{
  int rc = 0;
  for (int lane = 0; rc == 0 && lane < PEN_LANES; lane++) {
    struct pen_run_lane *l = &run->lanes[lane];
    l->run = run;
    l->lane = lane;
    rc = pen_ticket_init(&l->progress);
    if (rc == 0)
      rc = pen_run_queue_init(&l->device);
  }
  for (int lane = 0; rc == 0 && lane < PEN_LANES; lane++) {
    struct pen_run_lane *l = &run->lanes[lane];
    if (lane != PEN_LANE_COMPUTE)
      rc = pen_thread_create(&l->thread, pen_lane_name(lane), pen_run_lane_thread, l);
    if (rc == 0 && pen_run_is_queue(run, lane))
      rc = pen_thread_create(&l->finisher, finisher_name(lane),
                             pen_run_finisher_thread, l);
  }
  return rc;
}

int pen_run_create(const struct pen_run_options *options,
                   const struct pen_run_plan *plan, struct pen_run **ret_run)
{
  struct pen_run *run = calloc(1, sizeof *run);
  if (!run)
    return pen_error_set(PEN_ENOFIT, "no memory for a run");
  run->o = *options;
  pthread_mutex_init(&run->lock, NULL);
  pthread_cond_init(&run->changed, NULL);
  size_t n_slots = run->o.layout->n_slots;
  run->offset = calloc(n_slots, sizeof *run->offset);
  if (!run->offset) {
    pen_run_free(&run);
    return pen_error_set(PEN_ENOFIT, "no memory for the places of %zu slots",
                         n_slots);
  }
  for (size_t s = 0; s < n_slots; s++)
    run->offset[s] = run->o.layout->slots[s].offset;
  int rc = pen_schedule_init(&run->schedule, run->o.workload, run->o.layout,
                             plan->n_tasks, plan->n_accesses, false);
  if (rc == 0)
    rc = pen_check_init(&run->check, run->o.layout, plan->n_tasks,
                        plan->n_accesses);
  if (rc == 0)
    rc = pen_carry_init(&run->carry, run->o.layout);
  if (rc == 0)
    rc = pen_carry_init(&run->before, run->o.layout);
  if (rc == 0)
    rc = take_arenas(run);
  if (rc == 0)
    rc = open_queues(run);
  if (rc == 0)
    rc = pen_poison_init(&run->poison, run->o.layout, run->offset,
                         run->poisoned);
  if (rc == 0)
    rc = start_lanes(run);
  if (rc < 0)
    pen_run_free(&run);
  else
    *ret_run = run;
  return rc;
}

void pen_run_free(struct pen_run **run_pointer)
{
  struct pen_run *run = *run_pointer;
  if (!run)
    return;
  pthread_mutex_lock(&run->lock);
  run->quit = true;
  pthread_cond_broadcast(&run->changed);
  pthread_mutex_unlock(&run->lock);
  const struct pen_device *device = run->o.device;
  for (int lane = 0; lane < PEN_LANES; lane++) {
    pen_thread_join(&run->lanes[lane].thread);
    pen_thread_join(&run->lanes[lane].finisher);
  }
  for (int lane = 0; lane < PEN_LANES; lane++) {
    pen_store_queue_free(&run->lanes[lane].queue);
    if (!run->lanes[lane].run)
      continue;
    pen_ticket_done(&run->lanes[lane].progress);
    pen_run_queue_done(&run->lanes[lane].device);
  }
  pen_poison_done(&run->poison);
  if (device->unpin)
    device->unpin(device);
  device->free(device, &run->arena[PEN_TIER_DEVICE],
               run->arena_bytes[PEN_TIER_DEVICE]);
  pen_device_host_free(&run->arena[PEN_TIER_HOST],
                       run->arena_bytes[PEN_TIER_HOST]);
  pen_carry_done(&run->before);
  pen_carry_done(&run->carry);
  pen_check_done(&run->check);
  pen_schedule_done(&run->schedule);
  free(run->offset);
  pthread_cond_destroy(&run->changed);
  pthread_mutex_destroy(&run->lock);
  free(run);
  *run_pointer = NULL;
}
