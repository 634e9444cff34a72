/* A soak on a drive in its own time, whose cache, rates, heat and recovery are
 * known: all of them are found, and a drop is told by its reason. */
#include "src/bench/soak.h"

#include <errno.h>
#include <math.h>

#include "src/bench/traffic.h"
#include "tests/bench/fake_drive.h"
#include "tests/bench/fake_sys.h"

#define MB 1e6
#define WINDOW 0.05

static volatile sig_atomic_t stop;
static struct pen_bench_soak soak;

static const struct fake_drive ssd = {.burst = 40 * MB, .sustained = 10 * MB,
                                      .read = 80 * MB, .cache_bytes = 60 * MB,
                                      .recovers = 2 * MB, .noise = 0.2,
                                      .stop = &stop};

static const struct pen_bench_soak_options plain = {
    .request = 65536, .depth = 4, .most_bytes = 400 * (uint64_t)MB,
    .window_s = WINDOW, .settle_s = 3, .stop = &stop};

static int run(const struct fake_drive *drive,
               const struct pen_bench_soak_options *options)
{
  struct pen_bench_file file;
  fake_drive = *drive;
  fake_drive.sustained = fake_drive.burst; /* filling is not what is tested */
  fake_drive.fail_after = fake_drive.stop_after = 0;
  fake_drive.hot_after = 0;
  stop = 0;
  memset(&soak, 0, sizeof soak);
  int rc = pen_bench_file_open(&fake_drive_engine, "fake", 16 << 20, &file);
  if (rc == 0)
    rc = pen_bench_traffic_fill(&file, NULL);
  double now = fake_drive.now_s;
  fake_drive = *drive;
  fake_drive.now_s = now;
  if (rc == 0)
    rc = pen_bench_soak(&file, options, &soak);
  pen_bench_file_close(&file);
  return rc;
}

static void near(double got, double want, double share)
{
  if (fabs(got / want - 1) > share)
    fail_msg("%g is not within %g of %g", got, share, want);
}

/* Within two windows of the faster rate. */
static void near_bytes(double got, double want, double rate)
{
  if (fabs(got - want) > 2 * WINDOW * rate)
    fail_msg("%g bytes are not %g", got, want);
}

static void test_cache_and_sustained(void **state)
{
  test_ok(run(&ssd, &plain));
  assert_true(soak.dropped);
  assert_int_equal(soak.n_levels, 2);
  near_bytes((double)soak.cache_bytes, 60 * MB, 40 * MB);
  near(soak.burst, 40 * MB, 0.03);
  near(soak.sustained, 10 * MB, 0.03);
  near(soak.levels[0].rate, 40 * MB, 0.03);
  near(soak.levels[1].rate, 10 * MB, 0.03);
  assert_int_equal(soak.levels[1].why, PEN_BENCH_WHY_UNKNOWN);
  assert_false(soak.idled);
  assert_false(soak.stopped);
  assert_true(soak.written_bytes < 200 * (uint64_t)MB); /* it saw enough */
}

static void test_recovery(void **state)
{
  struct pen_bench_soak_options o = plain;
  o.idle_s = 10; /* 20 MB of 60 */
  test_ok(run(&ssd, &o));
  assert_true(soak.idled);
  near_bytes((double)soak.recovered_bytes, 20 * MB, 40 * MB);
  o.idle_s = 60; /* all of it */
  test_ok(run(&ssd, &o));
  near_bytes((double)soak.recovered_bytes, 60 * MB, 40 * MB);
  struct fake_drive stubborn = ssd;
  stubborn.recovers = 0;
  test_ok(run(&stubborn, &o));
  near_bytes((double)soak.recovered_bytes, 0, 40 * MB);
}

static void test_an_even_drive_has_no_cache(void **state)
{
  struct fake_drive even = ssd;
  struct pen_bench_soak_options o = plain;
  even.sustained = even.burst;
  o.most_bytes = 100 * (uint64_t)MB;
  o.idle_s = 10;
  test_ok(run(&even, &o));
  assert_false(soak.dropped);
  assert_false(soak.idled);
  assert_int_equal(soak.n_levels, 1);
  near(soak.levels[0].rate, 40 * MB, 0.03);
  assert_true(soak.written_bytes > 90 * (uint64_t)MB);
  assert_true(soak.written_bytes <= 100 * (uint64_t)MB);
}

/* More windows than are kept: neighbours are joined. */
static void test_a_long_series(void **state)
{
  struct fake_drive slow = ssd;
  struct pen_bench_soak_options o = plain;
  slow.burst = 3 * MB;
  slow.sustained = 1 * MB;
  slow.cache_bytes = 240 * MB;
  test_ok(run(&slow, &o));
  assert_true(soak.dropped);
  near((double)soak.cache_bytes, 240 * MB, 0.02);
  near(soak.sustained, 1 * MB, 0.03);
}

/* ---- why ---- */

#define SENSOR "devices/nvme0/hwmon0/"

static int run_with_sensor(struct fake_drive drive)
{
  static struct pen_disk disk;
  struct pen_bench_soak_options o = plain;
  fake_attribute(SENSOR "temp1_input", "30000");
  fake_attribute(SENSOR "temp1_max", "85000");
  snprintf(disk.heat, sizeof disk.heat, "%s", test_tmp("sys/devices/nvme0/hwmon0"));
  drive.sensor = test_tmp("sys/" SENSOR "temp1_input");
  o.disk = &disk;
  return run(&drive, &o);
}

static void test_a_full_cache_is_not_heat(void **state)
{
  test_ok(run_with_sensor(ssd));
  assert_int_equal(soak.n_levels, 2);
  assert_int_equal(soak.levels[1].why, PEN_BENCH_WHY_CACHE);
  assert_true(soak.levels[1].celsius == 30);
}

static void test_heat_is_told(void **state)
{
  struct fake_drive hot = ssd;
  hot.cache_bytes = 1e12;
  hot.hot_after = 80 * MB;
  hot.throttled = 15 * MB;
  test_ok(run_with_sensor(hot));
  assert_int_equal(soak.n_levels, 2);
  assert_int_equal(soak.levels[1].why, PEN_BENCH_WHY_HEAT);
  near_bytes((double)soak.cache_bytes, 80 * MB, 40 * MB);
  assert_true(soak.levels[1].celsius == 84);
}

static void test_reasons(void **state)
{
  static const struct {
    struct pen_disk_heat heat;
    enum pen_bench_why why;
  } rows[] = {
    {{40, 80, false}, PEN_BENCH_WHY_CACHE},
    {{76.9, 80, false}, PEN_BENCH_WHY_CACHE},
    {{77, 80, false}, PEN_BENCH_WHY_HEAT},
    {{40, 80, true}, PEN_BENCH_WHY_HEAT},
    {{40, NAN, true}, PEN_BENCH_WHY_HEAT},
    {{40, NAN, false}, PEN_BENCH_WHY_UNKNOWN},
    {{NAN, NAN, false}, PEN_BENCH_WHY_UNKNOWN},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    assert_int_equal(pen_bench_why_of(&rows[i].heat), rows[i].why);
}

/* ---- ends ---- */

static void test_stopping_keeps_what_was_seen(void **state)
{
  struct fake_drive d = ssd;
  struct pen_bench_soak_options o = plain;
  o.idle_s = 10;
  d.stop_after = 80 * (uint64_t)MB;
  test_ok(run(&d, &o));
  assert_true(soak.stopped && soak.dropped && !soak.idled);
  near(soak.burst, 40 * MB, 0.03);
}

static void test_a_failing_drive_is_told(void **state)
{
  struct fake_drive d = ssd;
  d.fail_after = 30 * (uint64_t)MB;
  test_fails(run(&d, &plain), EIO, "fake");
}

static void test_words(void **state)
{
  static struct pen_bench_table table;
  struct pen_bench_soak_options o = plain;
  o.idle_s = 10;
  test_ok(run(&ssd, &o));
  pen_bench_soak_rows(&soak, &o, "D", &table);
  char all[8192] = "";
  for (size_t i = 0; i < table.n_notes; i++)
    strcat(strcat(all, table.notes[i]), "\n");
  for (size_t i = 0; i < table.n_rows; i++)
    strcat(strcat(all, table.rows[i].name), "\n");
  static const char *const wanted[] = {
    "no sensor is shown here", "D written in a burst of 5", "D written, sustained",
    "after 10 s of idling 1", "D soak, level 2, from 5"};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
    if (!strstr(all, wanted[i]))
      fail_msg("\"%s\" is not in\n%s", wanted[i], all);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_cache_and_sustained),
    cmocka_unit_test(test_recovery),
    cmocka_unit_test(test_an_even_drive_has_no_cache),
    cmocka_unit_test(test_a_long_series),
    cmocka_unit_test(test_a_full_cache_is_not_heat),
    cmocka_unit_test(test_heat_is_told),
    cmocka_unit_test(test_reasons),
    cmocka_unit_test(test_stopping_keeps_what_was_seen),
    cmocka_unit_test(test_a_failing_drive_is_told),
    cmocka_unit_test(test_words),
  };
  return cmocka_run_group_tests_name("soak", tests, NULL, NULL);
}
