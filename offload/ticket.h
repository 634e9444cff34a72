/* ticket.h: how far a lane is, as a ticket that others wait for. */
#ifndef PEN_OFFLOAD_TICKET_H
#define PEN_OFFLOAD_TICKET_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* One mutex each, never held while another is taken. */
struct pen_ticket {
  pthread_mutex_t lock;
  pthread_cond_t moved;
  uint32_t done; /* every ticket up to this one is retired */
  bool broken;   /* the step has failed: wait for nothing more */
};

int pen_ticket_init(struct pen_ticket *lane);
void pen_ticket_done(struct pen_ticket *lane);
/* Before a step, while no lane runs. */
void pen_ticket_reset(struct pen_ticket *lane);
/* The lane itself: tickets up to `ticket` are retired; what they wrote is seen
 * by whoever waited for them. */
void pen_ticket_retire(struct pen_ticket *lane, uint32_t ticket);
/* Blocks until `ticket` is retired; false when the step broke instead. */
bool pen_ticket_wait(struct pen_ticket *lane, uint32_t ticket);
/* The same without blocking: is it retired by now? */
bool pen_ticket_reached(struct pen_ticket *lane, uint32_t ticket);
/* Wakes every waiter for good. */
void pen_ticket_break(struct pen_ticket *lane);

#endif
