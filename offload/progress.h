/* progress.h: how far a lane is, as a ticket that others wait for. */
#ifndef PEN_OFFLOAD_PROGRESS_H
#define PEN_OFFLOAD_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* One mutex each, never held while another is taken. */
struct pen_progress {
  pthread_mutex_t lock;
  pthread_cond_t moved;
  uint32_t done; /* every ticket up to this one is retired */
  bool broken;   /* the step has failed: wait for nothing more */
};

int pen_progress_init(struct pen_progress *progress);
void pen_progress_done(struct pen_progress *progress);
/* Before a step, while no lane runs. */
void pen_progress_reset(struct pen_progress *progress);
/* The lane itself: tickets up to `ticket` are retired; what they wrote is seen
 * by whoever waited for them. */
void pen_progress_retire(struct pen_progress *progress, uint32_t ticket);
/* Blocks until `ticket` is retired; false when the step broke instead. */
bool pen_progress_wait(struct pen_progress *progress, uint32_t ticket);
/* The same without blocking: is it retired by now? */
bool pen_progress_reached(struct pen_progress *progress, uint32_t ticket);
/* Wakes every waiter for good. */
void pen_progress_break(struct pen_progress *progress);

#endif
