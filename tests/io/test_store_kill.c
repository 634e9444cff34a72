/* Killed at 50 seeded moments, while it makes a store, writes, syncs and
 * commits, and opened again at once: each time exactly one committed step is
 * there, whole, and not older than the last one that was told. */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "base/rng.h"
#include "tests/io/store_test.h"

#define KILLS 50

/* Told by the child, in memory it shares with us. */
struct told {
  volatile uint64_t committed, started;
};

/* Goes on from whatever is there until it is killed. */
static void child(const struct pen_engine *engine, const char *dir,
                  struct told *told)
{
  struct pen_store_options o = test_options(engine, &dir, 1);
  struct pen_store *store = NULL;
  struct pen_store_queue *queue = NULL;
  struct pen_store_commit_info info;
  struct pen_store_region region = {test_buffer(N_TILES * TILE_BYTES),
                                    N_TILES * TILE_BYTES};
  int code = pen_store_open(&o, &store);
  if (code == -ENOENT) {
    pen_error_clear();
    code = pen_store_create(&o, false, &store);
  }
  if (!code)
    code = pen_store_queue_create(store, N_TILES, &region, 1, &queue);
  if (!code)
    pen_store_committed(store, &info);
  for (uint64_t step = code ? 0 : info.step + 1; !code; step++) {
    told->started = step;
    code = (step % 2 ? write_step : write_step_aside)(queue, region.base, step);
    pen_store_settle(store, code == 0);
    if (!code)
      code = pen_store_commit(store, step, &step, sizeof step);
    if (!code)
      told->committed = step;
  }
  printf("# %s\n", pen_error_text());
  fflush(stdout);
  _exit(1);
}

static void test_kill(void **state)
{
  const struct pen_engine *engine = test_engine(*state);
  char path[PATH_MAX + 64];
  snprintf(path, sizeof path, "%s/%s", test_tmpdir(), (char *)*state);
  const char *dir = path;
  struct told *told = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(told != MAP_FAILED);
  uint64_t seed = test_seed(1);
  struct pen_store_options o = test_options(engine, &dir, 1);
  unsigned n_committed = 0;
  for (uint64_t i = 0; i < KILLS; i++) {
    fflush(stdout);
    pid_t pid = test_fork();
    if (pid == 0)
      child(engine, dir, told);
    /* Every tenth at once, while the store is made or opened. */
    uint64_t most_ns = i % 10 ? 40000000 : 2000000;
    uint64_t ns = pen_rng_below(seed, 0, i, most_ns);
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
    kill(pid, SIGKILL);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status)); /* else it failed by itself */
    struct pen_store *store = NULL;
    struct pen_store_commit_info info;
    int code = pen_store_open(&o, &store);
    if (code == -ENOENT && told->committed == 0) {
      pen_error_clear();
      continue;
    }
    test_ok(code);
    pen_store_committed(store, &info);
    assert_true(info.step >= told->committed);
    assert_true(info.step <= told->started);
    n_committed += info.committed;
    if (info.committed)
      check_step(store, info.step);
    pen_store_close(&store);
    if (i % 17 == 16) { /* the store's own birth is killed more than once */
      test_ok(pen_store_remove(engine, &dir, 1));
      told->committed = told->started = 0;
    }
  }
  assert_true(n_committed > KILLS / 4);
  munmap(told, 4096);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      {"kill on uring", test_kill, NULL, NULL, (void *)"uring"},
      {"kill on threads", test_kill, NULL, NULL, (void *)"threads"},
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
