/* The same transfers on every engine, with and without faults. */
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "tests/io/engine_test.h"

static const char *const specs[] = {
    "uring",
    "threads",
    "ram",
    "auto",
    "fault:uring,seed=3,eagain=10%,eintr=10%,short=20%,late=30%",
    "fault:threads,seed=4,eagain=10%,eintr=10%,short=20%,late=30%",
    "fault:ram,seed=5,eagain=10%,eintr=10%,short=20%,late=30%",
};
#define N_SPECS (sizeof specs / sizeof *specs)

static bool is_faulty(const char *spec)
{
  return strncmp(spec, "fault", 5) == 0;
}

/* Case A1 and A5: the last part of a tensor, and no byte more; also tensors
 * larger than any piece (A24).  Callers round lengths up to the alignment. */
static void test_lengths(void **state)
{
  static const size_t lengths[] = {1,    511,     512,      513,     4095,
                                   4097, 1048575, 50000000, 4194304, 65536};
  struct bench b;
  bench_open(&b, *state, 64 << 20);
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    size_t n = (lengths[i] + 4095) / 4096 * 4096;
    char *buffer = test_buffer(n + 4096);
    pattern_fill(buffer, n, i);
    test_ok(bench_move(&b, true, buffer, n, 4096 * i));
    memset(buffer, 0x33, n + 4096);
    test_ok(bench_move(&b, false, buffer, n, 4096 * i));
    pattern_check(buffer, n, i);
    for (size_t k = n; k < n + 4096; k++)
      assert_int_equal(buffer[k], 0x33);
    free(buffer);
  }
  struct pen_transfer_counters c;
  pen_transfer_counters(b.queue, &c);
  assert_int_equal(c.bytes_read, c.bytes_written);
  assert_true(is_faulty(*state) == (c.retries > 10));
  assert_true(is_faulty(*state) == (c.short_transfers > 5));
  bench_close(&b);
}

/* Case A5 at its own size: 60,489,728 floats. */
static void test_large(void **state)
{
  const size_t n = (size_t)60489728 * (TEST_SANITIZED ? 1 : 4);
  struct bench b;
  bench_open(&b, *state, n);
  char *buffer = test_buffer(n);
  pattern_fill(buffer, n, 9);
  test_ok(bench_move(&b, true, buffer, n, 0));
  memset(buffer, 0, n);
  test_ok(bench_move(&b, false, buffer, n, 0));
  pattern_check(buffer, n, 9);
  free(buffer);
  bench_close(&b);
}

/* Several transfers in flight come back once each, whole, in any order. */
static void test_many_in_flight(void **state)
{
  enum { N = TEST_SANITIZED ? 40 : 200, BYTES = 3 << 20 };
  struct bench b;
  bool seen[N] = {false};
  size_t queued = 0, reaped = 0, out_of_order = 0;
  bench_open(&b, *state, 4 * BYTES);
  char *buffer = test_buffer(4 * BYTES);
  pattern_fill(buffer, 4 * BYTES, 1);
  test_ok(bench_move(&b, true, buffer, 4 * BYTES, 0));
  while (reaped < N) {
    size_t at = queued % 4;
    struct pen_transfer t = {.offset = at * 4096, .buffer = buffer + at * BYTES,
                             .bytes = at == 3 ? 4096 : BYTES - 4096,
                             .tag = queued};
    int code = queued < N ? pen_transfer_submit(b.queue, &t) : -EAGAIN;
    if (!code) {
      queued++;
      continue;
    }
    assert_int_equal(code, -EAGAIN);
    assert_int_equal(pen_error_standing(), 0);
    struct pen_transfer_done done[4];
    /* All four: their buffers are used again by the next four. */
    int n = pen_transfer_reap(b.queue, queued - reaped, 4, done);
    assert_int_equal(n, queued - reaped);
    for (int i = 0; i < n; i++) {
      test_ok(done[i].code);
      assert_false(seen[done[i].tag]);
      seen[done[i].tag] = true;
      out_of_order += done[i].tag != reaped++;
    }
  }
  for (size_t at = 0; at < 3; at++)
    pattern_check(buffer + at * BYTES, BYTES - 4096, 1 + at * 512);
  if (is_faulty(*state))
    assert_true(out_of_order > 0);
  free(buffer);
  bench_close(&b);
}

static volatile sig_atomic_t signals;
static void on_alarm(int number) { signals++; }

/* Case A6: signals at 1 kHz interrupt whatever waits. */
static void test_signals(void **state)
{
  const size_t n = 32 << 20;
  struct bench b;
  bench_open(&b, *state, n);
  char *buffer = test_buffer(n);
  struct sigaction action = {.sa_handler = on_alarm}, old; /* no SA_RESTART */
  struct itimerval timer = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
  sigaction(SIGALRM, &action, &old);
  signals = 0;
  setitimer(ITIMER_REAL, &timer, NULL);
  const uint64_t rounds = TEST_SANITIZED ? 2 : 8;
  for (uint64_t round = 0; round < rounds || signals < 20; round++) {
    pattern_fill(buffer, n, round);
    test_ok(bench_move(&b, true, buffer, n, 0));
    test_ok(b.engine->sync(b.file));
    memset(buffer, 0, n);
    test_ok(bench_move(&b, false, buffer, n, 0));
    pattern_check(buffer, n, round);
  }
  setitimer(ITIMER_REAL, &off, NULL);
  sigaction(SIGALRM, &old, NULL);
  free(buffer);
  bench_close(&b);
}

/* Case A12: the file ends early; a clean error with the byte, no spin. */
static void test_truncated(void **state)
{
  struct bench b;
  bench_open(&b, *state, 8 << 20);
  char *buffer = test_buffer(8 << 20);
  memset(buffer, 1, 8 << 20);
  test_ok(bench_move(&b, true, buffer, 8 << 20, 0));
  test_ok(b.engine->allocate(b.file, (5 << 20) + 8192));
  test_fails(bench_move(&b, false, buffer, 8 << 20, 0), PEN_ESHORT,
             "unexpected end of file at byte 5251072");
  test_ok(bench_move(&b, false, buffer, 5 << 20, 0)); /* the rest is there */
  test_ok(b.engine->allocate(b.file, 1234567));
  test_fails(bench_move(&b, false, buffer, 4 << 20, 0), PEN_ESHORT,
             "unexpected end of file at byte 1234567 of ");
  test_fails(pen_engine_read_whole(b.file, buffer, 4 << 20, 4096, NULL),
             PEN_ESHORT, "unexpected end of file at byte 1234567 of ");
  free(buffer);
  bench_close(&b);
}

static void test_misaligned(void **state)
{
  struct bench b;
  bench_open(&b, *state, 1 << 20);
  char *buffer = test_buffer(65536);
  test_fails(bench_move(&b, false, buffer, 4095, 0), EINVAL, "aligned");
  test_fails(bench_move(&b, false, buffer + 512, 4096, 0), EINVAL, "aligned");
  test_fails(bench_move(&b, false, buffer, 4096, 512), EINVAL, "aligned");
  free(buffer);
  bench_close(&b);
}

/* Freeing a queue waits for what is in flight. */
static void test_free_in_flight(void **state)
{
  for (int round = 0; round < (TEST_SANITIZED ? 4 : 20); round++) {
    struct bench b;
    bench_open(&b, *state, 16 << 20);
    char *buffer = test_buffer(16 << 20);
    for (size_t i = 0; i < 4; i++) {
      struct pen_transfer t = {.offset = i << 22, .buffer = buffer + (i << 22),
                               .bytes = 4 << 20};
      test_ok(pen_transfer_submit(b.queue, &t));
    }
    pen_transfer_queue_free(&b.queue);
    memset(buffer, 0x42, 16 << 20);
    for (size_t i = 0; i < 16 << 20; i += 512)
      assert_int_equal(buffer[i], 0x42);
    free(buffer);
    bench_close(&b);
  }
}

static void test_files(void **state)
{
  const struct pen_engine *e;
  struct pen_engine_file *file = NULL, *second = NULL;
  struct pen_engine_info info;
  test_ok(pen_engine_parse(*state, &e));
  const char *one = test_tmp("one"), *two = test_tmp("two");
  test_fails(e->open(e, one, false, &file), ENOENT, one);
  test_ok(e->open(e, one, true, &file));
  assert_true(file->created);
  test_ok(e->allocate(file, 12288));
  test_ok(e->lock(file));
  test_ok(e->open(e, one, true, &second));
  assert_false(second->created);
  test_fails(e->lock(second), EBUSY, "another run");
  e->close(&file);
  test_ok(e->lock(second)); /* at once, though a ring may have known the file */
  test_ok(e->info(second, &info));
  assert_int_equal(info.size_bytes, 12288);
  assert_true(info.allocated_bytes >= 12288);
  assert_true(info.free_bytes > 0);
  e->close(&second);
  test_ok(e->rename(e, one, two));
  test_fails(e->open(e, one, false, &file), ENOENT, one);
  test_ok(e->open(e, two, false, &file));
  e->close(&file);
  test_ok(e->remove(e, two));
  test_ok(e->remove(e, two)); /* gone is fine */
  test_fails(e->open(e, two, false, &file), ENOENT, two);
  pen_engine_release(&e);
}

/* A forced EINVAL names file, offset and length (A1). */
static void test_einval_is_named(void **state)
{
  struct bench b;
  bench_open(&b, "fault:threads,einval=2", 8 << 20);
  char *buffer = test_buffer(4 << 20);
  test_fails(bench_move(&b, true, buffer, 4 << 20, 1 << 20), EINVAL,
             "cannot write 1048576 bytes at byte 2097152 of ");
  free(buffer);
  bench_close(&b);
}

/* What never succeeds ends in an error, not in a spin. */
static void test_eagain_for_ever(void **state)
{
  struct bench b;
  bench_open(&b, "fault:ram,eagain=100%", 1 << 20);
  char *buffer = test_buffer(4096);
  test_fails(bench_move(&b, true, buffer, 4096, 0), EAGAIN, "gave up");
  free(buffer);
  bench_close(&b);
}

/* "kill" ends the process at the request that is named, not before. */
static void test_kill_at(void **state)
{
  int status, ends[2];
  char told[2];
  assert_int_equal(pipe(ends), 0);
  fflush(stdout);
  pid_t pid = test_fork();
  if (pid == 0) {
    struct bench b;
    char *buffer = test_buffer(4096);
    bench_open(&b, "fault:ram,kill=2", 4096); /* request 0: preallocation */
    if (bench_move(&b, true, buffer, 4096, 0) || write(ends[1], "1", 1) != 1)
      _exit(1);
    bench_move(&b, false, buffer, 4096, 0);
    _exit(write(ends[1], "2", 1) == 1);
  }
  close(ends[1]);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  assert_int_equal(read(ends[0], told, 2), 1);
  close(ends[0]);
}

static void test_null(void **state)
{
  struct bench b;
  bench_open(&b, "null", 1 << 20);
  char *buffer = test_buffer(1 << 20);
  memset(buffer, 7, 1 << 20);
  test_ok(bench_move(&b, true, buffer, 1 << 20, 0));
  test_ok(bench_move(&b, false, buffer, 1 << 20, 0));
  for (size_t i = 0; i < 1 << 20; i++)
    assert_int_equal(buffer[i], 7);
  assert_false(b.engine->keeps);
  free(buffer);
  bench_close(&b);
}

static void test_parse(void **state)
{
  static const struct {
    const char *spec, *part;
  } wrong[] = {
      {"", "no I/O engine ''"},
      {"posix", "'posix'"},
      {"fault:", "''"},
      {"fault:fault", "'fault'"},
      {"fault:ram,bogus=1", "'bogus'"},
      {"fault:ram,cut", "'cut'"},
      {"fault:ram,cut=", "'cut'"},
      {"fault:ram,cut=-1", "'cut'"},
      {"fault:ram,cut=1x", "'cut'"},
      {"fault:ram,eio=101%", "'eio'"},
      {"fault:ram,seed=5%", "'seed'"},
      {"fault:ram,cut=99999999999999999999", "'cut'"},
      {"fault:ram,", "''"},
  };
  const struct pen_engine *engine = NULL;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    test_fails(pen_engine_parse(wrong[i].spec, &engine), PEN_EUSAGE,
               wrong[i].part);
  assert_null(engine);
  assert_null(pen_engine_find("fault"));
  assert_ptr_equal(pen_engine_find("threads"), &pen_engine_threads);
}

int main(void)
{
  struct CMUnitTest tests[8 * N_SPECS + 8] = {0}; /* cmocka takes all that name one */
  size_t n = 0;
#define ADD(function, spec)                                                   \
  do {                                                                        \
    char *name = malloc(128);                                                 \
    snprintf(name, 128, #function " on %s", spec);                            \
    tests[n++] =                                                              \
        (struct CMUnitTest){name, function, NULL, NULL, (void *)(spec)};      \
  } while (0)
  for (size_t s = 0; s < N_SPECS; s++) {
    ADD(test_lengths, specs[s]);
    ADD(test_many_in_flight, specs[s]);
    ADD(test_signals, specs[s]);
    ADD(test_truncated, specs[s]);
    ADD(test_misaligned, specs[s]);
    ADD(test_free_in_flight, specs[s]);
    if (s < 2)
      ADD(test_large, specs[s]);
    if (s < 3)
      ADD(test_files, specs[s]);
  }
  ADD(test_einval_is_named, "threads");
  ADD(test_eagain_for_ever, "ram");
  ADD(test_kill_at, "ram");
  ADD(test_null, "null");
  ADD(test_parse, "");
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  for (size_t i = 0; i < n; i++)
    free((void *)tests[i].name);
  pen_engine_ram_forget();
  return failed;
}
