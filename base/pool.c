/* pool.c: one call at a time, cut into items that workers claim.
 *
 * Each team numbers its items of all calls by a 64-bit ticket counter that never
 * goes back: a call owns its tickets [base, end).  Workers claim by compare and
 * swap while next < end, their own team's first, so a worker late from an
 * earlier call can only see "nothing left" or claim an item of the present one.
 * Invariant: base, first, fn and ctx change only while all tickets are done.
 * Who has nothing to do spins for SPIN_NS, then sleeps: calls that follow each
 * other closely cost no system call, idle pools cost no core.
 * Disadvantage: a counter shared by a team; items should be microseconds, not
 * less. */
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
  size_t number, team;
};

/* A team's share of the present call.  Partner accesses: `end` is stored by
 * pen_pool_run after base, first, fn and ctx and loaded by workers before they
 * claim; `next` carries no data of its own. */
struct team {
  _Alignas(CACHE_LINE_BYTES) atomic_uint_fast64_t next;
  _Alignas(CACHE_LINE_BYTES) atomic_uint_fast64_t end;
  uint64_t base; /* ticket of item `first` */
  size_t first;
};

struct pen_pool {
  /* Tickets of all teams.  Partner accesses: `done` is added to by workers after
   * their items and loaded by pen_pool_run; `end` is stored by pen_pool_run and
   * loaded by workers to see that there is work. */
  _Alignas(CACHE_LINE_BYTES) atomic_uint_fast64_t done;
  _Alignas(CACHE_LINE_BYTES) atomic_uint_fast64_t end;
  atomic_bool stop;
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

  struct pen_pool_teams teams;
  struct team team[PEN_POOL_TEAMS_MAX];
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

/* Does items of one team until none is left to claim; returns how many. */
static uint64_t work_for(struct pen_pool *pool, struct team *team,
                         size_t worker)
{
  uint64_t n_done = 0, end = atomic_load(&team->end);
  uint64_t ticket = atomic_load_explicit(&team->next, memory_order_relaxed);
  while (ticket < end)
    if (atomic_compare_exchange_weak_explicit(&team->next, &ticket, ticket + 1,
                                              memory_order_relaxed,
                                              memory_order_relaxed)) {
      pool->fn(pool->ctx, team->first + (size_t)(ticket - team->base), worker);
      n_done++;
      ticket = atomic_load_explicit(&team->next, memory_order_relaxed);
    }
  return n_done;
}

/* Its own team's items, then the others'.  `end` is loaded last: a worker late
 * from an earlier call may have done the present one's. */
static void work(struct pen_pool *pool, size_t own, size_t worker)
{
  uint64_t n_done = 0;
  size_t n_teams = pool->teams.n_teams;
  for (size_t i = 0; i < n_teams; i++)
    n_done += work_for(pool, &pool->team[(own + i) % n_teams], worker);
  if (n_done == 0)
    return;
  uint64_t done = atomic_fetch_add(&pool->done, n_done) + n_done;
  if (done == atomic_load(&pool->end) && atomic_load(&pool->caller_sleeps)) {
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
  if (pool->teams.enter)
    pool->teams.enter(pool->teams.ctx, worker->team);
  for (;;) {
    wait_for_work(pool, seen_end);
    if (atomic_load(&pool->stop))
      return;
    seen_end = atomic_load_explicit(&pool->end, memory_order_acquire);
    work(pool, worker->team, worker->number);
  }
}

size_t pen_pool_border(size_t n, const struct pen_pool_teams *teams,
                       size_t team)
{
  size_t before = 0, all = 0;
  for (size_t t = 0; t < teams->n_teams; t++) {
    before += t < team ? teams->n[t] : 0;
    all += teams->n[t];
  }
  return n / all * before + n % all * before / all;
}

static void wake(struct pen_pool *pool, size_t n_items)
{
  size_t n_sleeping = atomic_load(&pool->n_sleeping);
  if (n_sleeping == 0)
    return;
  pthread_mutex_lock(&pool->mutex);
  if (n_items - 1 >= n_sleeping)
    pthread_cond_broadcast(&pool->work);
  else
    for (size_t i = 0; i < n_items - 1; i++)
      pthread_cond_signal(&pool->work);
  pthread_mutex_unlock(&pool->mutex);
}

void pen_pool_run(struct pen_pool *pool, size_t n_items,
                  void (*fn)(void *ctx, size_t item, size_t worker), void *ctx)
{
  if (pool->n_threads == 1 || n_items <= 1) {
    for (size_t i = 0; i < n_items; i++)
      fn(ctx, i, 0);
    return;
  }
  pool->fn = fn;
  pool->ctx = ctx;
  for (size_t t = 0; t < pool->teams.n_teams; t++) {
    struct team *team = &pool->team[t];
    size_t first = pen_pool_border(n_items, &pool->teams, t);
    size_t n = pen_pool_border(n_items, &pool->teams, t + 1) - first;
    team->base = atomic_load_explicit(&team->end, memory_order_relaxed);
    team->first = first;
    atomic_store(&team->end, team->base + n);
  }
  uint64_t end = atomic_load_explicit(&pool->end, memory_order_relaxed);
  end += n_items;
  atomic_store(&pool->end, end);
  wake(pool, n_items);
  work(pool, 0, 0);
  wait_until_finished(pool, end);
}

static struct pen_pool *allocate(size_t n_threads)
{
  size_t n_bytes = sizeof(struct pen_pool) + n_threads * sizeof(struct worker);
  n_bytes = (n_bytes + CACHE_LINE_BYTES - 1) & ~(size_t)(CACHE_LINE_BYTES - 1);
  struct pen_pool *pool = aligned_alloc(CACHE_LINE_BYTES, n_bytes);
  if (!pool)
    return NULL;
  atomic_init(&pool->done, 0);
  atomic_init(&pool->end, 0);
  atomic_init(&pool->stop, false);
  atomic_init(&pool->n_sleeping, 0);
  atomic_init(&pool->caller_sleeps, false);
  for (size_t t = 0; t < PEN_POOL_TEAMS_MAX; t++) {
    atomic_init(&pool->team[t].next, 0);
    atomic_init(&pool->team[t].end, 0);
  }
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->work, NULL);
  pthread_cond_init(&pool->finished, NULL);
  return pool;
}

static int start_workers(struct pen_pool *pool, size_t n_threads,
                         const char *name)
{
  size_t team = 0, team_end = pool->teams.n[0];
  pool->n_threads = 1;
  for (size_t i = 1; i < n_threads; i++) {
    struct worker *worker = &pool->workers[i - 1];
    char thread_name[PEN_THREAD_NAME_BYTES];
    snprintf(thread_name, sizeof thread_name, "%.10s-%u", name,
             (unsigned)i % 10000);
    while (i >= team_end)
      team_end += pool->teams.n[++team];
    worker->pool = pool;
    worker->number = i;
    worker->team = team;
    int r = pen_thread_create(&worker->thread, thread_name, serve, worker);
    if (r)
      return r;
    pool->n_threads++;
  }
  return 0;
}

int pen_pool_create_teams(const struct pen_pool_teams *teams, const char *name,
                          struct pen_pool **ret_pool)
{
  size_t n_threads = 0;
  for (size_t t = 0; t < teams->n_teams; t++)
    n_threads += teams->n[t];
  if (n_threads == 0 || n_threads > 9999 ||
      teams->n_teams > PEN_POOL_TEAMS_MAX)
    return pen_error_set(-EINVAL,
                         "cannot make pool %s of %zu threads in %zu teams",
                         name, n_threads, teams->n_teams);
  struct pen_pool *pool = allocate(n_threads);
  if (!pool)
    return pen_error_set(-ENOMEM, "cannot make pool %s of %zu threads", name,
                         n_threads);
  pool->teams = *teams;
  int r = start_workers(pool, n_threads, name);
  if (r)
    pen_pool_free(&pool);
  else
    *ret_pool = pool;
  return r;
}

int pen_pool_create(size_t n_threads, const char *name,
                    struct pen_pool **ret_pool)
{
  struct pen_pool_teams one = {.n_teams = 1, .n = {n_threads}};
  return pen_pool_create_teams(&one, name, ret_pool);
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
