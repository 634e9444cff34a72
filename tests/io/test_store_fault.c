/* The store's promise: whatever fails, and wherever power is cut, the newest
 * committed step is whole.
 *
 * One small run (create, five commits with a pin, between them scratch traffic
 * and tiles written aside or in two parts) is repeated with a fault at request n,
 * for every n until the run gets through; after each the store is opened again
 * without the fault. */
#include <errno.h>

#include "tests/io/store_test.h"

#define STEPS 5
#define N_DIRS 2
#define SCRATCH_BYTES (3 << 20)

struct setting {
  const char *inner;
  enum pen_engine_fault_kind kind;
  unsigned n_seeds;
};

static char paths[N_DIRS][PATH_MAX + 64];
static const char *dirs[N_DIRS];

static void fresh_dirs(void)
{
  static unsigned number;
  for (int d = 0; d < N_DIRS; d++) {
    snprintf(paths[d], sizeof paths[d], "%s/%u-%d", test_tmpdir(), number, d);
    dirs[d] = paths[d];
  }
  number++;
}

static struct pen_store_options options(const struct pen_engine *engine)
{
  struct pen_store_options o = test_options(engine, dirs, N_DIRS);
  o.n_extents = 3 * N_TILES;
  o.scratch_bytes = SCRATCH_BYTES;
  return o;
}

static int use_scratch(struct pen_store_queue *queue, char *buffer)
{
  int code = pen_store_write_scratch(queue, 1 << 20, buffer, 2 << 20, 1);
  if (!code)
    code = reap_all(queue, 1);
  if (!code)
    code = pen_store_read_scratch(queue, 0, buffer, 2 << 20, 1);
  return code ? code : reap_all(queue, 1);
}

/* What does not stand, then what does. */
static int write_aside_twice(struct pen_store *store,
                             struct pen_store_queue *queue, char *buffers,
                             uint64_t step)
{
  int code = write_step_aside(queue, buffers, step + 50);
  pen_store_settle(store, false);
  if (!code)
    code = write_step_aside(queue, buffers, step);
  pen_store_settle(store, code == 0);
  return code;
}

/* Heads of steps that nobody commits, then this one's, and what comes behind. */
static int write_in_parts(struct pen_store_queue *queue, char *buffers,
                          uint64_t step)
{
  int code = write_heads(queue, buffers, step + 50);
  if (!code)
    code = write_heads(queue, buffers, step);
  return code ? code : write_rests(queue, buffers, step);
}

/* Steps after *last; *last is the newest whose commit returned 0. */
static int run_steps(struct pen_store *store, uint64_t *last)
{
  struct pen_store_queue *queue = NULL;
  struct pen_store_place places[N_TILES];
  char *buffers = test_buffer(2 << 20);
  memset(buffers, 0, 2 << 20);
  int code = pen_store_queue_create(store, N_TILES, NULL, 0, &queue);
  while (!code && *last < STEPS) {
    uint64_t step = *last + 1;
    code = use_scratch(queue, buffers);
    if (!code && step % 3 == 0) {
      code = write_in_parts(queue, buffers, step);
    } else if (!code && step % 2) { /* a tile that is written twice in one step */
      code = write_step(queue, buffers, step + 50);
      if (!code)
        code = write_step(queue, buffers, step);
    } else if (!code) {
      code = write_aside_twice(store, queue, buffers, step);
    }
    if (!code)
      code = pen_store_commit(store, step, &step, sizeof step);
    if (!code)
      *last = step;
    if (!code && step == 2)
      code = pen_store_pin(store, places);
  }
  pen_store_queue_free(&queue);
  free(buffers);
  return code;
}

static int run(const struct pen_engine *engine, uint64_t *last)
{
  struct pen_store_options o = options(engine);
  struct pen_store *store = NULL;
  int code = pen_store_create(&o, false, &store);
  if (!code)
    code = run_steps(store, last);
  if (code && store) { /* failed for good: no later commit may pass */
    char why[PEN_ERROR_TEXT_BYTES];
    snprintf(why, sizeof why, "%s", pen_error_text());
    pen_error_clear();
    assert_true(pen_store_commit(store, 99, NULL, 0) < 0);
    pen_error_clear();
    pen_error_set(code, "%s", why);
  }
  pen_store_close(&store);
  return code;
}

/* The store after the fault holds exactly one committed step, at least `last`,
 * and a run can go on from it to the end. */
static void check_after(const struct pen_engine *inner, uint64_t last)
{
  struct pen_store_options o = options(inner);
  struct pen_store *store = NULL;
  struct pen_store_commit_info info;
  int code = pen_store_open(&o, &store);
  if (code == -ENOENT) { /* never finished: it starts from the beginning */
    pen_error_clear();
    assert_int_equal(last, 0);
    test_ok(pen_store_create(&o, false, &store));
  }
  else
    test_ok(code);
  pen_store_committed(store, &info);
  assert_true(info.committed ? info.step >= last : last == 0);
  assert_true(info.step <= last + 1);
  last = info.step;
  if (info.committed) {
    assert_int_equal(info.meta_bytes, sizeof last);
    assert_memory_equal(info.meta, &last, sizeof last);
    check_step(store, last);
  }
  test_ok(run_steps(store, &last));
  assert_int_equal(last, STEPS);
  pen_store_close(&store);
  test_ok(pen_store_open(&o, &store));
  check_step(store, STEPS);
  pen_store_close(&store);
}

/* One run with the fault at n; false when it got through without it. */
static bool one_run(const struct setting *s, const struct pen_engine *inner,
                    uint64_t n, uint64_t seed)
{
  struct pen_engine_fault_config config;
  const struct pen_engine *engine = NULL;
  pen_engine_fault_config_init(&config);
  config.seed = seed;
  config.faults[s->kind].at = n;
  test_ok(pen_engine_fault_create(inner, &config, &engine));
  fresh_dirs();
  uint64_t last = 0;
  int code = run(engine, &last);
  bool reached = pen_engine_fault_requests(engine) > n;
  bool must_fail = reached && s->kind != PEN_FAULT_SHORT &&
                   s->kind != PEN_FAULT_EINTR && s->kind != PEN_FAULT_EAGAIN;
  if (must_fail) {
    int expected = s->kind == PEN_FAULT_ENOSPC ? -ENOSPC : -EIO;
    if (code != expected)
      fail_msg("request %d: the run returned %d: %s", (int)n, code,
               pen_error_text());
    assert_true(strlen(pen_error_text()) > 20);
  } else {
    test_ok(code);
  }
  pen_error_clear();
  pen_engine_release(&engine);
  check_after(inner, last);
  test_ok(pen_store_remove(inner, dirs, N_DIRS));
  return reached;
}

static void test_every_request(void **state)
{
  const struct setting *s = *state;
  const struct pen_engine *inner = test_engine(s->inner);
  uint64_t first = test_seed(1);
  /* Sanitizers are slow: they see every fifth request, of one seed. */
  uint64_t stride = TEST_SANITIZED ? 5 : 1;
  uint64_t n_seeds = TEST_SANITIZED ? 1 : s->n_seeds;
  for (uint64_t seed = first; seed < first + n_seeds; seed++) {
    uint64_t n = 0;
    while (one_run(s, inner, n, seed * 1000003 + n))
      n += stride;
    assert_true(n > 60); /* the run is made of that many requests at least */
  }
}

int main(void)
{
  static const struct {
    const char *name;
    struct setting setting;
  } cases[] = {
      {"power cut in memory", {"ram", PEN_FAULT_CUT, 10}},
      {"power cut on uring", {"uring", PEN_FAULT_CUT, 1}},
      {"power cut on threads", {"threads", PEN_FAULT_CUT, 1}},
      {"EIO in memory", {"ram", PEN_FAULT_EIO, 1}},
      {"EIO on uring", {"uring", PEN_FAULT_EIO, 1}},
      {"ENOSPC in memory", {"ram", PEN_FAULT_ENOSPC, 1}},
      {"ENOSPC on threads", {"threads", PEN_FAULT_ENOSPC, 1}},
      {"short in memory", {"ram", PEN_FAULT_SHORT, 3}},
      {"short on uring", {"uring", PEN_FAULT_SHORT, 1}},
      {"EINTR in memory", {"ram", PEN_FAULT_EINTR, 1}},
      {"EAGAIN in memory", {"ram", PEN_FAULT_EAGAIN, 1}},
  };
  enum { N = sizeof cases / sizeof *cases };
  struct CMUnitTest tests[N];
  for (size_t i = 0; i < N; i++)
    tests[i] = (struct CMUnitTest){cases[i].name, test_every_request, NULL,
                                   NULL, (void *)&cases[i].setting};
  /* In memory where possible: waiting for a real drive shows nothing more,
   * since what a power cut leaves is decided above it. */
  if (!getenv("TMPDIR") && access("/dev/shm", W_OK) == 0)
    setenv("TMPDIR", "/dev/shm", 1);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_engine_ram_forget();
  return failed;
}
