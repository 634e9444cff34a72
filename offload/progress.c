/* progress.c: a ticket under a mutex, with a condition for its waiters.
 *
 * Waiting for a drive, a copy, the CPU or another lane is all this one thing.
 * Disadvantage: every waiter of a lane wakes at each ticket of it; with a
 * handful of lanes that costs less than a queue of waiters would. */
#include "offload/progress.h"

#include "base/error.h"

int pen_progress_init(struct pen_progress *progress)
{
  *progress = (struct pen_progress){0};
  int rc = pthread_mutex_init(&progress->lock, NULL);
  if (rc == 0)
    rc = pthread_cond_init(&progress->moved, NULL);
  return rc ? pen_error_set(-rc, "cannot make a lane's lock") : 0;
}

void pen_progress_done(struct pen_progress *progress)
{
  pthread_cond_destroy(&progress->moved);
  pthread_mutex_destroy(&progress->lock);
}

void pen_progress_reset(struct pen_progress *progress)
{
  pthread_mutex_lock(&progress->lock);
  progress->done = 0;
  progress->broken = false;
  pthread_mutex_unlock(&progress->lock);
}

void pen_progress_retire(struct pen_progress *progress, uint32_t ticket)
{
  pthread_mutex_lock(&progress->lock);
  progress->done = ticket;
  pthread_cond_broadcast(&progress->moved);
  pthread_mutex_unlock(&progress->lock);
}

bool pen_progress_wait(struct pen_progress *progress, uint32_t ticket)
{
  pthread_mutex_lock(&progress->lock);
  while (progress->done < ticket && !progress->broken)
    pthread_cond_wait(&progress->moved, &progress->lock);
  bool reached = progress->done >= ticket && !progress->broken;
  pthread_mutex_unlock(&progress->lock);
  return reached;
}

bool pen_progress_reached(struct pen_progress *progress, uint32_t ticket)
{
  pthread_mutex_lock(&progress->lock);
  bool reached = progress->done >= ticket && !progress->broken;
  pthread_mutex_unlock(&progress->lock);
  return reached;
}

void pen_progress_break(struct pen_progress *progress)
{
  pthread_mutex_lock(&progress->lock);
  progress->broken = true;
  pthread_cond_broadcast(&progress->moved);
  pthread_mutex_unlock(&progress->lock);
}
