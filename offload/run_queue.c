/* run_queue.c: two numbers under a lock, for one thread that raises each and for
 * all that wait for them.
 *
 * Any thread.  Disadvantage: every waiter wakes at every change. */
#include "offload/run_queue.h"

#include "base/error.h"

int pen_run_queue_init(struct pen_run_queue *queue)
{
  *queue = (struct pen_run_queue){0};
  int rc = pthread_mutex_init(&queue->lock, NULL);
  if (rc == 0)
    rc = pthread_cond_init(&queue->moved, NULL);
  return rc ? pen_error_set(-rc, "cannot make a queue's lock") : 0;
}

void pen_run_queue_done(struct pen_run_queue *queue)
{
  pthread_cond_destroy(&queue->moved);
  pthread_mutex_destroy(&queue->lock);
}

void pen_run_queue_reset(struct pen_run_queue *queue)
{
  pthread_mutex_lock(&queue->lock);
  queue->issued = queue->retired = 0;
  queue->ended = queue->broken = false;
  pthread_mutex_unlock(&queue->lock);
}

void pen_run_queue_break(struct pen_run_queue *queue)
{
  pthread_mutex_lock(&queue->lock);
  queue->broken = true;
  pthread_cond_broadcast(&queue->moved);
  pthread_mutex_unlock(&queue->lock);
}

bool pen_run_queue_wait_room(struct pen_run_queue *queue, uint32_t ticket,
                             uint32_t room)
{
  pthread_mutex_lock(&queue->lock);
  while (ticket > queue->retired + room && !queue->broken)
    pthread_cond_wait(&queue->moved, &queue->lock);
  bool whole = !queue->broken;
  pthread_mutex_unlock(&queue->lock);
  return whole;
}

void pen_run_queue_issued(struct pen_run_queue *queue, uint32_t ticket)
{
  pthread_mutex_lock(&queue->lock);
  queue->issued = ticket;
  pthread_cond_broadcast(&queue->moved);
  pthread_mutex_unlock(&queue->lock);
}

void pen_run_queue_end(struct pen_run_queue *queue)
{
  pthread_mutex_lock(&queue->lock);
  queue->ended = true;
  pthread_cond_broadcast(&queue->moved);
  pthread_mutex_unlock(&queue->lock);
}

uint32_t pen_run_queue_next(struct pen_run_queue *queue)
{
  pthread_mutex_lock(&queue->lock);
  while (queue->issued == queue->retired && !queue->ended)
    pthread_cond_wait(&queue->moved, &queue->lock);
  uint32_t next = queue->issued == queue->retired ? 0 : queue->retired + 1;
  pthread_mutex_unlock(&queue->lock);
  return next;
}

void pen_run_queue_retired(struct pen_run_queue *queue, uint32_t ticket)
{
  pthread_mutex_lock(&queue->lock);
  queue->retired = ticket;
  pthread_cond_broadcast(&queue->moved);
  pthread_mutex_unlock(&queue->lock);
}
