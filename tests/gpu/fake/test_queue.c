/* Lanes as queues of a device: the plugin's device row on the fake runtime, with
 * delays drawn by seed, trains the toy to the same bits as the host does. */
#include "tests/test.h"

#include "src/bench/link.h"
#include "tests/gpu/fake/fake.h"
#include "tests/gpu/fake/toy_device.h"
#include "tests/sched/places.h"
#include "tests/sched/runs.h"
#include "tests/tmpdir.h"

static int calm(void **state)
{
  (void)state;
  fake_settings()->jitter = 0;
  return 0;
}

static struct pen_placement place(uint64_t n)
{
  struct pen_placement p = places_random(places_seed(), n);
  p.unified = false;
  return p;
}

static void test_the_same_bits(void **state)
{
  struct pen_placement plain = places_plain();
  char text[128];
  (void)state;
  for (enum toy_kind kind = TOY_UNTIED; kind < TOY_KINDS; kind++) {
    struct runs_outcome *want = runs_outcome(&plain, kind, 1, 1, -1, NULL);
    uint64_t n_random = TEST_SANITIZED || kind >= TOY_EXPERTS ? 2 : 4;
    for (uint64_t n = 0; n <= n_random; n++) {
      struct pen_placement p = n ? place(n - 1) : toy_device_place(TOY_NEAR);
      fake_settings()->jitter = n + 1;
      uint64_t before = fake_counts()->allocations;
      struct runs_outcome *got = runs_outcome(&p, kind, 2, 1, -1, &toy_device_on);
      assert_int_equal(fake_counts()->allocations, before + 1); /* the arena */
      if (!runs_same(got, want, text, sizeof text))
        fail_msg("placement %d on the device: %s", (int)n, text);
      runs_outcome_free(got);
    }
    runs_outcome_free(want);
  }
  assert_int_equal(fake_counts()->pageable_copies, 0);
}

/* Host memory that cannot be pinned, or only its beginning: slower, the same. */
static void test_less_pinned_memory(void **state)
{
  struct pen_placement plain = places_plain(), p = place(2);
  static const uint64_t pinned[] = {0, (uint64_t)2 << 20};
  char text[128];
  (void)state;
  fake_settings()->strict = false;
  struct runs_outcome *want = runs_outcome(&plain, true, 1, 1, -1, NULL);
  for (size_t i = 0; i < 2; i++) {
    fake_settings()->pin_bytes = pinned[i];
    uint64_t before = fake_counts()->pageable_copies;
    struct runs_outcome *got = runs_outcome(&p, true, 2, 1, -1, &toy_device_on);
    if (!runs_same(got, want, text, sizeof text))
      fail_msg("with %zu bytes pinned: %s", (size_t)pinned[i], text);
    assert_true(fake_counts()->pageable_copies > before);
    runs_outcome_free(got);
  }
  fake_settings()->pin_bytes = UINT64_MAX;
  fake_settings()->strict = true;
  runs_outcome_free(want);
}

/* A system that pins small pieces only, but as many as one likes. */
static void test_many_pieces(void **state)
{
  size_t bytes = ((size_t)300 << 20) + 4096, pinned = 0;
  void *host;
  (void)state;
  test_ok(pen_device_host_map(bytes, &host));
  fake_settings()->pin_piece = (uint64_t)2 << 20;
  test_ok(toy_device.device.pin(&toy_device.device, host, bytes, &pinned));
  assert_int_equal(pinned, bytes);
  assert_int_equal(toy_device.n_pieces, 151);
  assert_int_equal(toy_device.piece_ends[149], (size_t)300 << 20);
  toy_device.device.unpin(&toy_device.device);
  fake_settings()->pin_piece = UINT64_MAX;
  pen_device_host_free(&host, bytes);
}

/* ---- measuring ---- */

/* Both ways at once is a second thread: what ThreadSanitizer is to see. */
static void test_the_link_is_measured(void **state)
{
  struct pen_bench_options o = {.n_runs = 3};
  struct pen_bench_link link = {.device = &toy_device.device, .bytes = 1 << 20};
  static struct pen_bench_table table;
  struct pen_machine machine = {.upload = 0};
  void *arena, *host;
  size_t pinned = 0;
  (void)state;
  fake_settings()->strict = false; /* pageable memory is what is measured */
  test_ok(toy_device.device.alloc(&toy_device.device, link.bytes, &arena));
  test_ok(pen_device_host_alloc(link.bytes, &host));
  test_ok(toy_device.device.pin(&toy_device.device, host, link.bytes, &pinned));
  assert_int_equal(pinned, link.bytes);
  link.arena = arena;
  link.host = host;
  link.pageable = calloc(1, link.bytes);
  assert_non_null(link.pageable);
  uint64_t before = fake_counts()->pageable_copies;
  test_ok(pen_bench_link_pinned(&o, &link, &table, &machine));
  assert_int_equal(fake_counts()->pageable_copies, before);
  test_ok(pen_bench_link_pageable(&o, &link, &table, &machine));
  assert_true(fake_counts()->pageable_copies > before);
  assert_int_equal(table.n_rows, 7);
  assert_true(machine.upload > 0 && machine.download > 0);
  toy_device.device.unpin(&toy_device.device);
  toy_device.device.free(&toy_device.device, &arena, link.bytes);
  pen_device_host_free(&host, link.bytes);
  free(link.pageable);
  fake_settings()->strict = true;
}

/* ---- failures ---- */

static int step_once(const struct pen_placement *p, char *text, size_t bytes)
{
  struct runs t = {.dir = test_tmp("store")};
  struct pen_shape shape = {.kind = PEN_STEP_TRAIN,
                            .n_micros = 3,
                            .n_tokens = 16,
                            .speculates = true};
  struct pen_run_update update = {.apply = true, .commit = true};
  struct pen_run_result r;
  runs_init(&t, p, true, 2, 1, &toy_device_on);
  int rc = pen_run_step(t.run, &shape, &update, &r);
  snprintf(text, bytes, "%s", pen_error_text());
  pen_error_clear();
  runs_outcome_free(t.outcome);
  runs_done(&t);
  return rc;
}

/* A launch that breaks the device: the step ends, its place is told.  Last, since
 * the device stays broken. */
static void test_failure_is_told(void **state)
{
  struct pen_placement p = place(3);
  char text[1024];
  (void)state;
  fake_settings()->fault = fake_counts()->launches + 20;
  assert_int_equal(step_once(&p, text, sizeof text), -PEN_EDEVICE);
  printf("# %s\n", text);
  assert_non_null(strstr(text, " of block "));
  assert_non_null(strstr(text, " on lane "));
  assert_non_null(strstr(text, "illegal memory access"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_the_same_bits, calm),
      cmocka_unit_test_teardown(test_less_pinned_memory, calm),
      cmocka_unit_test_teardown(test_many_pieces, calm),
      cmocka_unit_test_teardown(test_the_link_is_measured, calm),
      cmocka_unit_test_teardown(test_failure_is_told, calm),
  };
  return cmocka_run_group_tests(tests, toy_device_open, toy_device_close);
}
