/* run_issue.c: a lane that is a queue of a device: an issuer that puts its tasks
 * in, and a finisher that retires their tickets once they are done.
 *
 * The issuer blocks for lanes of the host, for room among the queue's marks, and
 * until another device lane has put in what its own next task comes after; it
 * never waits for the device to do that, but for the counts behind a guard
 * ROUTED.  Invariant: mark t % PEN_DEVICE_MARKS
 * is set again only after ticket t is retired, and nobody waits for a mark whose
 * ticket is.  Issuer and finisher are a thread each.  Disadvantage: a failure of
 * the device may be told by any call after it, so its message names all tasks
 * that were under way. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "offload/run_lanes.h"

static enum pen_device_queue queue_of(enum pen_lane lane)
{
  return lane == PEN_LANE_UPLOAD     ? PEN_DEVICE_UPLOAD
         : lane == PEN_LANE_DOWNLOAD ? PEN_DEVICE_DOWNLOAD
                                     : PEN_DEVICE_COMPUTE;
}

bool pen_run_is_queue(const struct pen_run *run, enum pen_lane lane)
{
  return run->o.device->marks &&
         (lane == PEN_LANE_COMPUTE || lane == PEN_LANE_UPLOAD ||
          lane == PEN_LANE_DOWNLOAD);
}

/* The oldest task that each device lane had not finished, for a message; but for
 * the one that failed. */
static void describe_others(struct pen_run *run, const struct pen_task *failed,
                            char *text, size_t bytes)
{
  size_t used = 0;
  text[0] = '\0';
  for (int lane = 0; lane < PEN_LANES && used < bytes; lane++) {
    struct pen_run_queue *queue = &run->lanes[lane].device;
    if (!pen_run_is_queue(run, lane))
      continue;
    pthread_mutex_lock(&queue->lock);
    uint32_t oldest = queue->retired, issued = queue->issued;
    pthread_mutex_unlock(&queue->lock);
    if (oldest >= issued)
      continue;
    const struct pen_task *task = pen_run_nth(run, lane, oldest);
    if (task == failed)
      continue;
    used += (size_t)snprintf(text + used, bytes - used, "%s%s of block %s on %s",
                             used ? ", " : " (also under way: ",
                             pen_task_name(task->kind),
                             pen_run_block_name(run, task), pen_lane_name(lane));
  }
  if (used && used + 2 <= bytes)
    strcpy(text + used, ")");
}

static int fail(struct pen_run_lane *lane, const struct pen_task *task, int code)
{
  char others[400];
  describe_others(lane->run, task, others, sizeof others);
  return pen_error_context(code, "%s of block %s on lane %s%s",
                           pen_task_name(task->kind),
                           pen_run_block_name(lane->run, task),
                           pen_lane_name(lane->lane), others);
}

/* ---- the issuer ---- */

/* Of other queues only what brings down the counts that a guard looks at. */
static bool is_for_issuer(const struct pen_run *run, enum pen_lane lane,
                          const struct pen_task *task)
{
  return !pen_run_is_queue(run, lane) ||
         (task->guard == PEN_GUARD_ROUTED && lane == PEN_LANE_DOWNLOAD);
}

static bool wait_for_host(struct pen_run *run, const struct pen_task *task)
{
  for (int lane = 0; lane < PEN_LANES; lane++)
    if (task->wait[lane] && is_for_issuer(run, lane, task) &&
        !pen_ticket_wait(&run->lanes[lane].progress, task->wait[lane]))
      return false;
  return true;
}

/* What the lane is given next comes after a ticket of another device lane. */
static int order_after(struct pen_run_lane *lane, enum pen_lane other,
                       uint32_t ticket)
{
  struct pen_run *run = lane->run;
  struct pen_run_queue *queue = &run->lanes[other].device;
  const struct pen_device *device = run->o.device;
  int rc = 0;
  pthread_mutex_lock(&queue->lock);
  while (queue->issued < ticket && !queue->broken)
    pthread_cond_wait(&queue->moved, &queue->lock);
  if (queue->broken)
    rc = -PEN_ESTOPPED;
  else if (queue->retired < ticket) /* then its mark is still its own */
    rc = device->marks->wait(device, queue_of(lane->lane), queue_of(other),
                             ticket % PEN_DEVICE_MARKS);
  pthread_mutex_unlock(&queue->lock);
  return rc;
}

static int order_after_all(struct pen_run_lane *lane,
                           const struct pen_task *task)
{
  int rc = 0;
  for (int other = 0; rc == 0 && other < PEN_LANES; other++)
    if (task->wait[other] && other != (int)lane->lane &&
        pen_run_is_queue(lane->run, other))
      rc = order_after(lane, other, task->wait[other]);
  return rc;
}

static int put(struct pen_run_lane *lane, const struct pen_task *task)
{
  struct pen_run *run = lane->run;
  const struct pen_device *device = run->o.device;
  enum pen_device_queue queue = queue_of(lane->lane);
  uint32_t mark = task->ticket % PEN_DEVICE_MARKS;
  int rc = 0;
  if (pen_run_is_on(run, task)) {
    rc = device->marks->begin(device, queue, mark);
    if (rc == 0)
      rc = pen_run_task_begin(run, task);
  }
  if (rc == 0)
    rc = device->marks->set(device, queue, mark);
  if (rc < 0)
    return rc;
  pen_run_queue_issued(&lane->device, task->ticket);
  return 0;
}

int pen_run_issue(struct pen_run_lane *lane)
{
  struct pen_run *run = lane->run;
  uint32_t n = run->schedule.n_tickets[lane->lane];
  int rc = 0;
  for (uint32_t i = 0; rc == 0 && i < n; i++) {
    const struct pen_task *task = pen_run_nth(run, lane->lane, i);
    if (!wait_for_host(run, task) ||
        !pen_run_queue_wait_room(&lane->device, task->ticket,
                                 PEN_DEVICE_MARKS)) {
      rc = -PEN_ESTOPPED;
      break;
    }
    rc = order_after_all(lane, task);
    if (rc == 0)
      rc = put(lane, task);
    if (rc < 0 && rc != -PEN_ESTOPPED)
      fail(lane, task, rc);
  }
  pen_run_queue_end(&lane->device);
  return rc;
}

/* ---- the finisher ---- */

static int finish(struct pen_run_lane *lane, const struct pen_task *task)
{
  struct pen_run *run = lane->run;
  const struct pen_device *device = run->o.device;
  bool on = pen_run_is_on(run, task);
  uint64_t busy_ns = 0;
  int rc = device->marks->sync(device, queue_of(lane->lane),
                               task->ticket % PEN_DEVICE_MARKS,
                               on ? &busy_ns : NULL);
  if (on)
    pen_poison_release(&run->poison, &run->schedule, task);
  if (rc == 0 && on) {
    pen_run_record(lane, task, pen_clock_ns() - busy_ns);
    lane->busy_ns += busy_ns;
  }
  return rc;
}

/* After a failure it goes on to the last task that was issued: nothing may be
 * under way once the step has ended. */
int pen_run_finish(struct pen_run_lane *lane)
{
  struct pen_run_queue *queue = &lane->device;
  uint32_t ticket;
  int first = 0;
  while ((ticket = pen_run_queue_next(queue))) {
    const struct pen_task *task = pen_run_nth(lane->run, lane->lane, ticket - 1);
    int rc = finish(lane, task);
    if (rc < 0 && first == 0) {
      first = rc;
      fail(lane, task, rc);
      pen_run_break(lane->run);
    }
    pen_error_clear();
    pen_run_queue_retired(queue, ticket);
    if (first == 0)
      pen_ticket_retire(&lane->progress, ticket);
  }
  return first;
}

int pen_run_upload_now(struct pen_run *run, void *to, const void *from,
                       size_t bytes)
{
  const struct pen_device *device = run->o.device;
  int rc = device->upload(device, to, from, bytes);
  if (rc < 0 || !device->marks)
    return rc;
  rc = device->marks->set(device, PEN_DEVICE_UPLOAD, 0);
  return rc < 0 ? rc
                : device->marks->sync(device, PEN_DEVICE_UPLOAD, 0, NULL);
}
