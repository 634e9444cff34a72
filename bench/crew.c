/* crew.c: threads made for one call, held at a barrier until all are there.
 *
 * Disadvantage: they are made again for each call; a call should last
 * milliseconds. */
#include "bench/crew.h"

#include <assert.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "bench/report.h"

struct crew {
  pthread_barrier_t barrier;
  size_t n_threads;
  void (*fn)(void *ctx, size_t thread, size_t n_threads);
  void *ctx;
};

struct member {
  struct pen_thread thread;
  struct crew *crew;
  size_t number;
};

static void serve(void *arg)
{
  struct member *me = arg;
  pthread_barrier_wait(&me->crew->barrier);
  me->crew->fn(me->crew->ctx, me->number, me->crew->n_threads);
  pthread_barrier_wait(&me->crew->barrier);
}

double pen_crew_run(size_t n_threads,
                    void (*fn)(void *ctx, size_t thread, size_t n_threads),
                    void *ctx)
{
  static struct member members[PEN_CREW_THREADS_MAX];
  struct crew crew = {.n_threads = n_threads, .fn = fn, .ctx = ctx};
  assert(n_threads > 0 && n_threads <= PEN_CREW_THREADS_MAX);
  pthread_barrier_init(&crew.barrier, NULL, (unsigned)n_threads);
  for (size_t i = 1; i < n_threads; i++) {
    members[i] = (struct member){.crew = &crew, .number = i};
    if (pen_thread_create(&members[i].thread, "crew", serve, &members[i]) < 0)
      pen_report_fail();
  }
  pthread_barrier_wait(&crew.barrier);
  uint64_t begin_ns = pen_clock_ns();
  fn(ctx, 0, n_threads);
  pthread_barrier_wait(&crew.barrier);
  double seconds = (double)(pen_clock_ns() - begin_ns) * 1e-9;
  for (size_t i = 1; i < n_threads; i++)
    pen_thread_join(&members[i].thread);
  pthread_barrier_destroy(&crew.barrier);
  return seconds;
}
