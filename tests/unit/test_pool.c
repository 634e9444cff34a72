/* Every item once, by a known worker, visible to the caller afterwards; many
 * calls in a row; idle workers use no CPU. */
#include "base/pool.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "tests/test.h"

enum { MAX_ITEMS = 1000, MAX_WORKERS = 8 };

struct job {
  uint32_t calls[MAX_ITEMS]; /* plain memory: the pool must order it */
  size_t n_threads;
  atomic_size_t per_worker[MAX_WORKERS];
};

static void mark(void *ctx, size_t item, size_t worker)
{
  struct job *job = ctx;
  if (worker < job->n_threads)
    atomic_fetch_add(&job->per_worker[worker], 1);
  job->calls[item]++;
}

static void test_every_item_once(void **state)
{
  uint64_t seed = test_seed(11);
  for (size_t n_threads = 1; n_threads <= 5; n_threads++) {
    struct pen_pool *pool;
    test_ok(pen_pool_create(n_threads, "pool", &pool));
    assert_int_equal(pen_pool_n_threads(pool), n_threads);
    static struct job job;
    for (uint64_t round = 0; round < 2000; round++) {
      memset(&job, 0, sizeof job);
      job.n_threads = n_threads;
      size_t n = pen_rng_below(seed, n_threads, round, round % 10 ? 9 : 999);
      pen_pool_run(pool, n, mark, &job);
      for (size_t i = 0; i < MAX_ITEMS; i++)
        assert_int_equal(job.calls[i], i < n);
      size_t total = 0;
      for (size_t i = 0; i < n_threads; i++)
        total += job.per_worker[i];
      assert_int_equal(total, n);
    }
    pen_pool_free(&pool);
    assert_null(pool);
  }
}

static void nap(void *ctx, size_t item, size_t worker)
{
  struct job *job = ctx;
  atomic_fetch_add(&job->per_worker[worker], 1);
  usleep(20000);
}

/* A machine that is busy with other work may leave a worker out of one call,
 * but not of many. */
static void test_workers_share(void **state)
{
  struct pen_pool *pool;
  static struct job job;
  bool all = false;
  test_ok(pen_pool_create(4, "pool", &pool));
  for (int tries = 0; !all && tries < 50; tries++) {
    usleep(5000); /* all asleep: they must be woken */
    pen_pool_run(pool, 8, nap, &job);
    all = true;
    for (size_t i = 0; i < 4; i++)
      all = all && job.per_worker[i] >= 1;
  }
  assert_true(all);
  pen_pool_free(&pool);
}

/* Pauses between calls of about the spin time hit the edge between spinning
 * and sleeping, on both sides. */
static void test_edge_of_sleep(void **state)
{
  uint64_t seed = test_seed(12);
  struct pen_pool *pool;
  static struct job job;
  test_ok(pen_pool_create(3, "pool", &pool));
  for (uint64_t round = 0; round < 3000; round++) {
    memset(&job, 0, sizeof job);
    job.n_threads = 3;
    pen_pool_run(pool, 3, mark, &job);
    for (size_t i = 0; i < 3; i++)
      assert_int_equal(job.calls[i], 1);
    struct timespec pause = { 0, (long)pen_rng_below(seed, 0, round, 60000) };
    nanosleep(&pause, NULL);
  }
  pen_pool_free(&pool);
}

static void test_idle_is_free(void **state)
{
  struct pen_pool *pool;
  test_ok(pen_pool_create(4, "pool", &pool));
  usleep(20000);
  struct timespec before, after;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  usleep(200000);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  double used_s = (double)(after.tv_sec - before.tv_sec) +
                  1e-9 * (double)(after.tv_nsec - before.tv_nsec);
  assert_true(used_s < 0.02); /* 3 burning workers would use 0.2 and more */
  pen_pool_free(&pool);
}

static void test_refuses_none(void **state)
{
  struct pen_pool *pool = NULL;
  test_fails(pen_pool_create(0, "pool", &pool), EINVAL, "0 threads");
  assert_null(pool);
  pen_pool_free(&pool);
}

/* ---- teams ---- */

static void test_borders(void **state)
{
  struct pen_pool_teams teams = {.n_teams = 3, .n = {2, 0, 1}};
  assert_int_equal(pen_pool_border(10, &teams, 0), 0);
  assert_int_equal(pen_pool_border(10, &teams, 1), 6);
  assert_int_equal(pen_pool_border(10, &teams, 2), 6);
  assert_int_equal(pen_pool_border(10, &teams, 3), 10);
  size_t huge = SIZE_MAX - 1; /* a product with the members would overflow */
  assert_int_equal(pen_pool_border(huge, &teams, 1), huge / 3 * 2 + 1);
  assert_int_equal(pen_pool_border(huge, &teams, 3), huge);
}

static void test_teams_do_every_item_once(void **state)
{
  static const struct pen_pool_teams cases[] = {
    { .n_teams = 2, .n = { 1, 1 } },
    { .n_teams = 3, .n = { 0, 2, 1 } },
    { .n_teams = 4, .n = { 1, 0, 3, 1 } },
  };
  uint64_t seed = test_seed(13);
  static struct job job;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    struct pen_pool *pool;
    test_ok(pen_pool_create_teams(&cases[c], "teams", &pool));
    for (uint64_t round = 0; round < 2000; round++) {
      memset(&job, 0, sizeof job);
      job.n_threads = pen_pool_n_threads(pool);
      size_t n = pen_rng_below(seed, c, round, round % 10 ? 9 : 999);
      pen_pool_run(pool, n, mark, &job);
      for (size_t i = 0; i < MAX_ITEMS; i++)
        assert_int_equal(job.calls[i], i < n);
    }
    pen_pool_free(&pool);
  }
}

enum { TEAM_WORKERS = 5 };

struct meeting {
  atomic_size_t n_there;
  size_t worker_of[TEAM_WORKERS]; /* by item */
  atomic_size_t n_entered[2];     /* by team */
};

/* Nobody leaves before everybody is there: each worker has exactly one item. */
static void meet(void *ctx, size_t item, size_t worker)
{
  struct meeting *m = ctx;
  m->worker_of[item] = worker;
  atomic_fetch_add(&m->n_there, 1);
  while (atomic_load(&m->n_there) < TEAM_WORKERS)
    usleep(100);
}

static void note_entry(void *ctx, size_t team)
{
  struct meeting *m = ctx;
  atomic_fetch_add(&m->n_entered[team], 1);
}

static void test_teams_begin_with_their_own(void **state)
{
  static struct meeting m;
  struct pen_pool_teams teams = {
    .n_teams = 2, .n = { 2, 3 }, .enter = note_entry, .ctx = &m };
  struct pen_pool *pool;
  test_ok(pen_pool_create_teams(&teams, "meet", &pool));
  for (int round = 0; round < 50; round++) {
    m.n_there = 0;
    pen_pool_run(pool, TEAM_WORKERS, meet, &m);
    for (size_t i = 0; i < TEAM_WORKERS; i++)
      assert_int_equal(m.worker_of[i] < 2, i < 2);
  }
  pen_pool_free(&pool);
  assert_int_equal(m.n_entered[0], 1); /* worker 0 is this thread */
  assert_int_equal(m.n_entered[1], 3);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_item_once),
    cmocka_unit_test(test_workers_share),
    cmocka_unit_test(test_edge_of_sleep),
    cmocka_unit_test(test_idle_is_free),
    cmocka_unit_test(test_refuses_none),
    cmocka_unit_test(test_borders),
    cmocka_unit_test(test_teams_do_every_item_once),
    cmocka_unit_test(test_teams_begin_with_their_own),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
