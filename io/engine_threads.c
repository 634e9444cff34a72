/* engine_threads.c: pread and pwrite by worker threads, for kernels and
 * containers without io_uring.
 *
 * Workers take requests in the order they came and put completions into a
 * second queue; both are fixed arrays of `depth` under one mutex.
 * Threads: the ring's owner and its workers.  Disadvantage: a blocking system
 * call and two context switches per request. */
#include "io/engine_threads.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/engine_posix.h"

#define WORKERS_MAX 8

struct threads_ring {
  struct pen_engine_ring base;
  struct pen_engine_file *const *files; /* own copy */
  size_t depth;
  pthread_t workers[WORKERS_MAX];
  size_t n_workers;

  pthread_mutex_t mutex;  /* over all below */
  pthread_cond_t work;    /* a request came, or stop */
  pthread_cond_t results; /* a completion came */
  struct pen_engine_request *requests; /* [depth], first in first out */
  size_t requests_head, n_requests;
  struct pen_engine_completion *done; /* [depth] */
  size_t done_head, n_done;
  size_t in_flight; /* submitted and not yet reaped */
  bool stop;
};

static int64_t transfer(struct pen_engine_file *file,
                        const struct pen_engine_request *request)
{
  return request->write
             ? pen_engine_posix_write_at(file, request->buffer, request->bytes,
                                         request->offset)
             : pen_engine_posix_read_at(file, request->buffer, request->bytes,
                                        request->offset);
}

static void *work(void *argument)
{
  struct threads_ring *ring = argument;
  pthread_mutex_lock(&ring->mutex);
  for (;;) {
    while (!ring->n_requests && !ring->stop)
      pthread_cond_wait(&ring->work, &ring->mutex);
    if (!ring->n_requests)
      break;
    struct pen_engine_request request = ring->requests[ring->requests_head];
    ring->requests_head = (ring->requests_head + 1) % ring->depth;
    ring->n_requests--;
    pthread_mutex_unlock(&ring->mutex);
    int64_t result = transfer(ring->files[request.file], &request);
    pthread_mutex_lock(&ring->mutex);
    ring->done[(ring->done_head + ring->n_done) % ring->depth] =
        (struct pen_engine_completion){.tag = request.tag, .result = result};
    ring->n_done++;
    pthread_cond_signal(&ring->results);
  }
  pthread_mutex_unlock(&ring->mutex);
  return NULL;
}

static void threads_ring_free(struct pen_engine_ring **base)
{
  struct threads_ring *ring = (struct threads_ring *)*base;
  if (!ring)
    return;
  pthread_mutex_lock(&ring->mutex);
  ring->stop = true; /* workers still finish what is queued */
  pthread_cond_broadcast(&ring->work);
  pthread_mutex_unlock(&ring->mutex);
  for (size_t i = 0; i < ring->n_workers; i++)
    pthread_join(ring->workers[i], NULL);
  pthread_mutex_destroy(&ring->mutex);
  pthread_cond_destroy(&ring->work);
  pthread_cond_destroy(&ring->results);
  free((void *)ring->files);
  free(ring->requests);
  free(ring->done);
  free(ring);
  *base = NULL;
}

/* Workers take no signals: those are for the thread that set them up. */
static int start_workers(struct threads_ring *ring, size_t n)
{
  sigset_t all, old;
  int failed = 0;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  while (ring->n_workers < n && !failed) {
    failed = pthread_create(&ring->workers[ring->n_workers], NULL, work, ring);
    if (!failed) {
      char name[16];
      snprintf(name, sizeof name, "pen-io-%zu", ring->n_workers);
      pthread_setname_np(ring->workers[ring->n_workers], name);
      ring->n_workers++;
    }
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return ring->n_workers
             ? 0
             : pen_error_set(-failed, "cannot start an I/O thread");
}

int pen_engine_threads_ring_create(const struct pen_engine *engine,
                                   size_t depth,
                                   struct pen_engine_file *const *files,
                                   size_t n_files,
                                   const struct pen_engine_region *regions,
                                   size_t n_regions,
                                   struct pen_engine_ring **ret_ring)
{
  struct threads_ring *ring = calloc(1, sizeof *ring);
  if (!ring)
    return pen_error_set(-ENOMEM, "cannot make an I/O ring");
  struct pen_engine_file **copy = calloc(n_files, sizeof *copy);
  ring->base.engine = &pen_engine_threads;
  ring->depth = depth;
  ring->files = copy;
  ring->requests = calloc(depth, sizeof *ring->requests);
  ring->done = calloc(depth, sizeof *ring->done);
  pthread_mutex_init(&ring->mutex, NULL);
  pthread_cond_init(&ring->work, NULL);
  pthread_cond_init(&ring->results, NULL);
  struct pen_engine_ring *base = &ring->base;
  int code = 0;
  if (!copy || !ring->requests || !ring->done) {
    code = pen_error_set(-ENOMEM, "cannot make an I/O ring");
  } else {
    memcpy(copy, files, n_files * sizeof *copy);
    code = start_workers(ring, depth < WORKERS_MAX ? depth : WORKERS_MAX);
  }
  if (code) {
    threads_ring_free(&base);
    return code;
  }
  snprintf(base->note, sizeof base->note, "%s: %zu worker threads",
           engine->name, ring->n_workers);
  *ret_ring = base;
  return 0;
}

static int threads_ring_submit(struct pen_engine_ring *base,
                               const struct pen_engine_request *requests,
                               size_t n)
{
  struct threads_ring *ring = (struct threads_ring *)base;
  pthread_mutex_lock(&ring->mutex);
  if (ring->in_flight + n > ring->depth) {
    pthread_mutex_unlock(&ring->mutex);
    return pen_error_set(-EBUSY, "%zu requests on an I/O ring of %zu with %zu "
                         "in flight", n, ring->depth, ring->in_flight);
  }
  for (size_t i = 0; i < n; i++)
    ring->requests[(ring->requests_head + ring->n_requests++) % ring->depth] =
        requests[i];
  ring->in_flight += n;
  pthread_cond_broadcast(&ring->work);
  pthread_mutex_unlock(&ring->mutex);
  return 0;
}

static int threads_ring_reap(struct pen_engine_ring *base, size_t min,
                             size_t max,
                             struct pen_engine_completion *ret_completions)
{
  struct threads_ring *ring = (struct threads_ring *)base;
  pthread_mutex_lock(&ring->mutex);
  if (min > ring->in_flight)
    min = ring->in_flight;
  while (ring->n_done < min)
    pthread_cond_wait(&ring->results, &ring->mutex);
  size_t n = ring->n_done < max ? ring->n_done : max;
  for (size_t i = 0; i < n; i++) {
    ret_completions[i] = ring->done[ring->done_head];
    ring->done_head = (ring->done_head + 1) % ring->depth;
  }
  ring->n_done -= n;
  ring->in_flight -= n;
  pthread_mutex_unlock(&ring->mutex);
  return (int)n;
}

const struct pen_engine pen_engine_threads = {
    .name = "threads",
    .keeps = true,
    .drive = true,
    PEN_ENGINE_POSIX_FILES,
    .ring_create = pen_engine_threads_ring_create,
    .ring_free = threads_ring_free,
    .ring_submit = threads_ring_submit,
    .ring_reap = threads_ring_reap,
};
