/* run_queue.h: how far a lane that is a queue of the device has come: which
 * tickets were put in, and which of these are seen done.  For offload/run*.c only. */
#ifndef PEN_OFFLOAD_RUN_QUEUE_H
#define PEN_OFFLOAD_RUN_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct pen_run_queue {
  pthread_mutex_t lock;
  pthread_cond_t moved;
  uint32_t issued, retired; /* last tickets put in, and seen done */
  bool ended;               /* the step puts no more in */
  bool broken;              /* the step has failed */
};

int pen_run_queue_init(struct pen_run_queue *queue);
void pen_run_queue_done(struct pen_run_queue *queue);
/* Before a step, while no lane runs. */
void pen_run_queue_reset(struct pen_run_queue *queue);
/* Wakes every waiter for good. */
void pen_run_queue_break(struct pen_run_queue *queue);

/* By the one that puts tickets in, 1, 2, 3 ...: waits until this one is no more
 * than `room` ahead of what is retired; false when the step broke. */
bool pen_run_queue_wait_room(struct pen_run_queue *queue, uint32_t ticket,
                             uint32_t room);
void pen_run_queue_issued(struct pen_run_queue *queue, uint32_t ticket);
void pen_run_queue_end(struct pen_run_queue *queue);

/* By the one that retires them: waits for the next; 0: the step has no more. */
uint32_t pen_run_queue_next(struct pen_run_queue *queue);
void pen_run_queue_retired(struct pen_run_queue *queue, uint32_t ticket);

#endif
