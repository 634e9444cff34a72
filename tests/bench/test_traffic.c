/* What a drive is given: in an update both ways at once from the first moment on,
 * as many bytes of either, and all of it in the file. */
#include "tests/test.h"

#include "src/bench/traffic.h"
#include "tests/bench/fake_drive.h"

#define FILE_BYTES ((uint64_t)64 << 20)
#define REQUEST ((size_t)1 << 20)
#define DEPTH 8

/* Of the requests that the engine has and has not given back. */
static struct seen {
  size_t reads, writes;
  size_t least_reads, least_writes; /* while DEPTH are in flight */
  uint64_t bytes[2];
} seen;

static int submit(struct pen_engine_ring *ring,
                  const struct pen_engine_request *requests, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    *(requests[i].write ? &seen.writes : &seen.reads) += 1;
    seen.bytes[requests[i].write] += requests[i].bytes;
    assert_true(requests[i].offset + requests[i].bytes <= FILE_BYTES);
  }
  if (seen.reads + seen.writes == DEPTH) {
    seen.least_reads = seen.reads < seen.least_reads ? seen.reads : seen.least_reads;
    seen.least_writes = seen.writes < seen.least_writes ? seen.writes : seen.least_writes;
  }
  return fake_drive_engine.ring_submit(ring, requests, n);
}

/* The drive gives all back at once. */
static int reap(struct pen_engine_ring *ring, size_t min, size_t max,
                struct pen_engine_completion *ret_completions)
{
  (void)min;
  size_t all = seen.reads + seen.writes;
  int n = all ? fake_drive_engine.ring_reap(ring, all, max, ret_completions) : 0;
  assert_int_equal(n, all);
  seen.reads = seen.writes = 0;
  return n;
}

static struct pen_engine watched, watched_ring;

static int create(const struct pen_engine *engine, size_t depth,
                  struct pen_engine_file *const *files, size_t n_files,
                  const struct pen_engine_region *regions, size_t n_regions,
                  struct pen_engine_ring **ret_ring)
{
  (void)engine;
  test_ok(fake_drive_engine.ring_create(&fake_drive_engine, depth, files, n_files,
                                        regions, n_regions, ret_ring));
  (*ret_ring)->engine = &watched_ring;
  return 0;
}

static void test_an_update_does_both_at_once(void **state)
{
  struct pen_bench_file file;
  struct pen_bench_traffic *t;
  const struct pen_bench_traffic_options o = {
      .way = PEN_BENCH_UPDATE, .request = REQUEST, .depth = DEPTH};
  uint64_t moved = 0;
  double seconds;
  fake_drive = (struct fake_drive){.burst = 1e9, .sustained = 1e9, .read = 1e9};
  test_ok(pen_bench_file_open(&fake_drive_engine, "fake", FILE_BYTES, &file));
  test_ok(pen_bench_traffic_fill(&file, NULL));
  watched = watched_ring = fake_drive_engine;
  watched.ring_create = create;
  watched_ring.ring_submit = submit;
  watched_ring.ring_reap = reap;
  file.engine = &watched;
  seen = (struct seen){.least_reads = DEPTH, .least_writes = DEPTH};
  test_ok(pen_bench_traffic_open(&file, &o, &t));
  test_ok(pen_bench_traffic_move(t, 3 * FILE_BYTES, 0, &moved, &seconds));
  test_ok(pen_bench_traffic_sync(t, &seconds));
  pen_bench_traffic_close(&t);
  assert_int_equal(seen.least_reads, DEPTH / 2);
  assert_int_equal(seen.least_writes, DEPTH / 2);
  assert_int_equal(seen.bytes[0], seen.bytes[1]);
  file.engine = &fake_drive_engine;
  test_ok(pen_bench_traffic_verify(&file, NULL));
  pen_bench_file_close(&file);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_an_update_does_both_at_once),
  };
  return cmocka_run_group_tests_name("traffic", tests, NULL, NULL);
}
