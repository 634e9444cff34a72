/* ticket.c: a ticket under a mutex, with a condition for its waiters.
 *
 * Waiting for a drive, a copy, the CPU or another lane is all this one thing.
 * Disadvantage: every waiter of a lane wakes at each ticket of it; with a
 * handful of lanes that costs less than a queue of waiters would. */
#include "offload/ticket.h"

#include "base/error.h"

int pen_ticket_init(struct pen_ticket *lane)
{
  *lane = (struct pen_ticket){0};
  int rc = pthread_mutex_init(&lane->lock, NULL);
  if (rc == 0)
    rc = pthread_cond_init(&lane->moved, NULL);
  return rc ? pen_error_set(-rc, "cannot make a lane's lock") : 0;
}

void pen_ticket_done(struct pen_ticket *lane)
{
  pthread_cond_destroy(&lane->moved);
  pthread_mutex_destroy(&lane->lock);
}

void pen_ticket_reset(struct pen_ticket *lane)
{
  pthread_mutex_lock(&lane->lock);
  lane->done = 0;
  lane->broken = false;
  pthread_mutex_unlock(&lane->lock);
}

void pen_ticket_retire(struct pen_ticket *lane, uint32_t ticket)
{
  pthread_mutex_lock(&lane->lock);
  lane->done = ticket;
  pthread_cond_broadcast(&lane->moved);
  pthread_mutex_unlock(&lane->lock);
}

bool pen_ticket_wait(struct pen_ticket *lane, uint32_t ticket)
{
  pthread_mutex_lock(&lane->lock);
  while (lane->done < ticket && !lane->broken)
    pthread_cond_wait(&lane->moved, &lane->lock);
  bool reached = lane->done >= ticket && !lane->broken;
  pthread_mutex_unlock(&lane->lock);
  return reached;
}

bool pen_ticket_reached(struct pen_ticket *lane, uint32_t ticket)
{
  pthread_mutex_lock(&lane->lock);
  bool reached = lane->done >= ticket && !lane->broken;
  pthread_mutex_unlock(&lane->lock);
  return reached;
}

void pen_ticket_break(struct pen_ticket *lane)
{
  pthread_mutex_lock(&lane->lock);
  lane->broken = true;
  pthread_cond_broadcast(&lane->moved);
  pthread_mutex_unlock(&lane->lock);
}
