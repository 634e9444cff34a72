/* run_lanes.h: what the executor's files share: the run, its lanes, and the body
 * of a task.  For offload/run*.c only. */
#ifndef PEN_OFFLOAD_RUN_LANES_H
#define PEN_OFFLOAD_RUN_LANES_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "base/thread.h"
#include "offload/check.h"
#include "offload/poison.h"
#include "offload/ticket.h"
#include "offload/run.h"
#include "offload/run_queue.h"

/* More accesses than any task declares. */
#define PEN_TASK_ACCESSES_MAX 10

struct pen_run;

struct pen_run_lane {
  struct pen_run *run;
  enum pen_lane lane;
  struct pen_thread thread;
  struct pen_ticket progress;
  struct pen_store_queue *queue; /* read and write lanes with a store */
  struct pen_run_queue device;   /* lanes that are queues of the device */
  struct pen_thread finisher;    /* of these */
  uint64_t busy_ns; /* of the running step; of the thread that retires */
};

struct pen_run {
  struct pen_run_options o;
  struct pen_schedule schedule;
  struct pen_check check;
  struct pen_carry before, carry; /* of the running step: what it began with, and
                                     what it leaves */
  struct pen_poison poison;
  void *arena[PEN_TIERS]; /* [PEN_TIER_NVME] stays NULL */
  uint64_t *offset; /* [n_slots] within their tiers: the layout's, but for homes
                       and shadows that have changed places */
  size_t arena_bytes[PEN_TIERS];
  size_t pinned_bytes; /* of the host's, where the device asks for that */
  void *poisoned[PEN_TIERS]; /* the arenas in this machine's memory */
  const void *tables; /* the workload's, where compute reads */
  void *kept;         /* the layout's slot; NULL: there is none */
  struct pen_run_lane lanes[PEN_LANES];
  struct pen_run_update update; /* of the running step */
  bool redoes; /* it is not what blocks with shadows were updated by */
  size_t n_micros;              /* of the running step */
  struct pen_run_result result;
  bool logits_lent; /* the caller may look at the logits slot */

  /* One step's start and end, and its first failure. */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint64_t epoch; /* steps started */
  size_t working; /* lane threads not yet at the step's end */
  bool quit;
  struct pen_error error;
};

/* Whether the guard lets this task do its work; what it waits for is over. */
bool pen_run_is_on(struct pen_run *run, const struct pen_task *task);
/* Waits for every lane the task waits for; false when the step broke. */
bool pen_run_wait(struct pen_run *run, const struct pen_task *task);
/* Keeps the calling thread's standing failure as the step's if it is the first,
 * and wakes every lane. */
void pen_run_break(struct pen_run *run);
/* Addresses of a task's accesses, in order; NVMe ones are NULL. */
void pen_run_addresses(const struct pen_run *run, const struct pen_task *task,
                       void *ret_addresses[PEN_TASK_ACCESSES_MAX]);
/* The work of a task, waits and tickets aside; not for transfers. */
int pen_run_task(struct pen_run *run, const struct pen_task *task);
/* The same for a task of a queue whose guard is on: on success its slots stay
 * acquired (poison.h) until it is done. */
int pen_run_task_begin(struct pen_run *run, const struct pen_task *task);
/* run_update.c: bodies of UPDATE, SPECULATE and ROWS_AHEAD; `at` as in run_task.c. */
int pen_run_apply_update(struct pen_run *run, const struct pen_task *t,
                         void *const *at);
int pen_run_speculate(struct pen_run *run, const struct pen_task *t,
                      void *const *at);
int pen_run_rows_ahead(struct pen_run *run, const struct pen_task *t,
                       void *const *at);
/* Of the task's block, for messages; "-" where it has none. */
const char *pen_run_block_name(const struct pen_run *run,
                               const struct pen_task *task);
/* For the timeline; ends now. */
void pen_run_record(struct pen_run_lane *lane, const struct pen_task *task,
                    uint64_t begin_ns);
/* run.c: what the threads of a lane, given as a pen_run_lane, do until the run
 * ends. */
void pen_run_lane_thread(void *lane);
void pen_run_finisher_thread(void *lane);
/* The n-th task of a lane, from 0. */
static inline const struct pen_task *
pen_run_nth(const struct pen_run *run, enum pen_lane lane, uint32_t n)
{
  return &run->schedule.tasks[run->check.by_ticket[lane][n]];
}

/* A read or write lane through one step: several transfers in flight, issued
 * and retired in order. */
int pen_run_transfers(struct pen_run_lane *lane);

/* run_issue.c.  Is the lane a queue of the device, whose tasks are put in by one
 * thread and retired by another? */
bool pen_run_is_queue(const struct pen_run *run, enum pen_lane lane);
/* The two threads of such a lane through one step. */
int pen_run_issue(struct pen_run_lane *lane);
int pen_run_finish(struct pen_run_lane *lane);
/* A copy to the device outside of steps, done when it returns. */
int pen_run_upload_now(struct pen_run *run, void *to, const void *from,
                       size_t bytes);

#endif
