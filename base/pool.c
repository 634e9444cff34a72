/* pool.c: one call at a time, cut into items that workers claim.
 *
 * Items of all calls are numbered by one 64-bit ticket counter that never goes
 * back: call k owns the tickets [base, end).  Workers claim by compare and
 * swap while next < end, so a worker late from an earlier call can only see
 * "nothing left" or claim an item of the present one.  Invariant: base, fn and
 * ctx change only while done == next == end, that is while no ticket is out.
 * Who has nothing to do spins for SPIN_NS, then sleeps: calls that follow each
 * other closely cost no system call, idle pools cost no core.
 * Disadvantage: one shared counter; items should be microseconds, not less. */
#include "base/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

#define SPIN_NS 20000
#define PAUSES_PER_LOOK 64
#define CACHE_LINE_BYTES 64

struct worker {
  struct pen_thread thread;
  struct pen_pool *pool;
  size_t number;
};

struct pen_pool {
  /* Partner accesses: `end` is released by pen_pool_run after base, fn and ctx
   * and acquired by workers; `done` is released by workers after their items
   * and acquired by pen_pool_run; `next` carries no data of its own. */
  _Alignas(CACHE_LINE_BYTES) atomic_uint_fast64_t next;
  _Alignas(CACHE_LINE_BYTES) atomic_uint_fast64_t done;
  _Alignas(CACHE_LINE_BYTES) atomic_uint_fast64_t end;
  atomic_bool stop;
  uint64_t base;
  void (*fn)(void *ctx, size_t item, size_t worker);
  void *ctx;

  /* Sleeping.  Each sleeper announces itself (seq_cst) before its last look at
   * what it waits for; each waker changes that first and looks for sleepers
   * after (seq_cst): one of the two sees the other. */
  pthread_mutex_t mutex;
  pthread_cond_t work;     /* end or stop changed */
  pthread_cond_t finished; /* done reached end */
  atomic_size_t n_sleeping;
  atomic_bool caller_sleeps;

  size_t n_threads;
  struct worker workers[]; /* [n_threads - 1] */
};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Does items until none is left to claim. */
static void work(struct pen_pool *pool, uint64_t end, size_t worker)
{
  uint64_t n_done = 0;
  uint64_t ticket = atomic_load_explicit(&pool->next, memory_order_relaxed);
  while (ticket < end)
    if (atomic_compare_exchange_weak_explicit(&pool->next, &ticket, ticket + 1,
                                              memory_order_relaxed,
                                              memory_order_relaxed)) {
      pool->fn(pool->ctx, (size_t)(ticket - pool->base), worker);
      n_done++;
      ticket = atomic_load_explicit(&pool->next, memory_order_relaxed);
    }
  if (n_done == 0)
    return;
  uint64_t done = atomic_fetch_add(&pool->done, n_done) + n_done;
  if (done == end && atomic_load(&pool->caller_sleeps)) {
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_signal(&pool->finished);
    pthread_mutex_unlock(&pool->mutex);
  }
}

static bool has_work(struct pen_pool *pool, uint64_t seen_end)
{
  return atomic_load(&pool->end) != seen_end || atomic_load(&pool->stop);
}

static bool is_finished(struct pen_pool *pool, uint64_t end)
{
  return atomic_load(&pool->done) == end;
}

/* Spins for a short while; whether ready() became true. */
static bool spin(struct pen_pool *pool, uint64_t value,
                 bool (*ready)(struct pen_pool *pool, uint64_t value))
{
  uint64_t until_ns = pen_clock_ns() + SPIN_NS;
  do {
    for (int i = 0; i < PAUSES_PER_LOOK; i++) {
      if (ready(pool, value))
        return true;
      pause_cpu();
    }
  } while (pen_clock_ns() < until_ns);
  return ready(pool, value);
}

static void wait_for_work(struct pen_pool *pool, uint64_t seen_end)
{
  if (spin(pool, seen_end, has_work))
    return;
  pthread_mutex_lock(&pool->mutex);
  atomic_fetch_add(&pool->n_sleeping, 1);
  while (!has_work(pool, seen_end))
    pthread_cond_wait(&pool->work, &pool->mutex);
  atomic_fetch_sub(&pool->n_sleeping, 1);
  pthread_mutex_unlock(&pool->mutex);
}

static void wait_until_finished(struct pen_pool *pool, uint64_t end)
{
  if (spin(pool, end, is_finished))
    return;
  pthread_mutex_lock(&pool->mutex);
  atomic_store(&pool->caller_sleeps, true);
  while (!is_finished(pool, end))
    pthread_cond_wait(&pool->finished, &pool->mutex);
  atomic_store(&pool->caller_sleeps, false);
  pthread_mutex_unlock(&pool->mutex);
}

static void serve(void *arg)
{
  struct worker *worker = arg;
  struct pen_pool *pool = worker->pool;
  uint64_t seen_end = 0;
  for (;;) {
    wait_for_work(pool, seen_end);
    if (atomic_load(&pool->stop))
      return;
    seen_end = atomic_load_explicit(&pool->end, memory_order_acquire);
    work(pool, seen_end, worker->number);
  }
}

void pen_pool_run(struct pen_pool *pool, size_t n_items,
                  void (*fn)(void *ctx, size_t item, size_t worker), void *ctx)
{
  if (pool->n_threads == 1 || n_items <= 1) {
    for (size_t i = 0; i < n_items; i++)
      fn(ctx, i, 0);
    return;
  }
  uint64_t base = atomic_load_explicit(&pool->end, memory_order_relaxed);
  uint64_t end = base + n_items;
  pool->base = base;
  pool->fn = fn;
  pool->ctx = ctx;
  atomic_store(&pool->end, end);
  size_t n_sleeping = atomic_load(&pool->n_sleeping);
  if (n_sleeping) {
    pthread_mutex_lock(&pool->mutex);
    if (n_items - 1 >= n_sleeping)
      pthread_cond_broadcast(&pool->work);
    else
      for (size_t i = 0; i < n_items - 1; i++)
        pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
  }
  work(pool, end, 0);
  wait_until_finished(pool, end);
}

int pen_pool_create(size_t n_threads, const char *name,
                    struct pen_pool **ret_pool)
{
  if (n_threads == 0 || n_threads > 9999)
    return pen_error_set(-EINVAL, "cannot make pool %s of %zu threads", name,
                         n_threads);
  size_t n_bytes = sizeof(struct pen_pool) + n_threads * sizeof(struct worker);
  n_bytes = (n_bytes + CACHE_LINE_BYTES - 1) & ~(size_t)(CACHE_LINE_BYTES - 1);
  struct pen_pool *pool = aligned_alloc(CACHE_LINE_BYTES, n_bytes);
  if (!pool)
    return pen_error_set(-ENOMEM, "cannot make pool %s of %zu threads", name,
                         n_threads);
  atomic_init(&pool->next, 0);
  atomic_init(&pool->done, 0);
  atomic_init(&pool->end, 0);
  atomic_init(&pool->stop, false);
  atomic_init(&pool->n_sleeping, 0);
  atomic_init(&pool->caller_sleeps, false);
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->work, NULL);
  pthread_cond_init(&pool->finished, NULL);
  pool->n_threads = 1;
  for (size_t i = 1; i < n_threads; i++) {
    struct worker *worker = &pool->workers[i - 1];
    char thread_name[PEN_THREAD_NAME_BYTES];
    snprintf(thread_name, sizeof thread_name, "%.10s-%u", name,
             (unsigned)i % 10000);
    worker->pool = pool;
    worker->number = i;
    int r = pen_thread_create(&worker->thread, thread_name, serve, worker);
    if (r) {
      pen_pool_free(&pool);
      return r;
    }
    pool->n_threads++;
  }
  *ret_pool = pool;
  return 0;
}

size_t pen_pool_n_threads(const struct pen_pool *pool)
{
  return pool->n_threads;
}

void pen_pool_free(struct pen_pool **ref)
{
  struct pen_pool *pool = *ref;
  if (!pool)
    return;
  atomic_store(&pool->stop, true);
  pthread_mutex_lock(&pool->mutex);
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->mutex);
  for (size_t i = 1; i < pool->n_threads; i++)
    pen_thread_join(&pool->workers[i - 1].thread);
  pthread_cond_destroy(&pool->finished);
  pthread_cond_destroy(&pool->work);
  pthread_mutex_destroy(&pool->mutex);
  free(pool);
  *ref = NULL;
}
