/* What becomes of a drive's rates: on one in its own time, whose fast cache fills
 * half way, the profile's are those of all its time, where a median would be the
 * cache's alone. */
#include "tests/test.h"

#include <math.h>

#include "src/bench/nvme_drive.h"
#include "tests/bench/fake_drive.h"

#define MB 1e6
#define FILE_BYTES ((uint64_t)64 << 20)

static void near(double got, double want, double share)
{
  if (fabs(got / want - 1) > share)
    fail_msg("%g is not within %g of %g", got, share, want);
}

/* cache: bytes that are written fast after the file was filled. */
static struct pen_machine_drive measure(double cache, size_t n_runs,
                                        struct pen_bench_table *table)
{
  const struct pen_bench_options o = {.n_runs = n_runs, .bytes = FILE_BYTES};
  const struct pen_bench_drives drives = {.state_bytes = {12}, .n_state_bytes = 1};
  struct pen_bench_drive d = {.o = &o, .dir = "D"};
  fake_drive = (struct fake_drive){.burst = 400 * MB, .sustained = 400 * MB,
                                   .read = 800 * MB};
  test_ok(pen_bench_file_open(&fake_drive_engine, "fake", FILE_BYTES, &d.file));
  test_ok(pen_bench_traffic_fill(&d.file, NULL));
  fake_drive.sustained = 100 * MB;
  fake_drive.cache_bytes = cache;
  fake_drive.used = 0;
  *table = (struct pen_bench_table){.n_rows = 0};
  test_ok(pen_bench_drive_rates(&d, &drives, table));
  pen_bench_file_close(&d.file);
  return d.found;
}

static void test_an_even_drive(void **state)
{
  static struct pen_bench_table table;
  struct pen_machine_drive found = measure(1e15, 3, &table);
  near(found.read, 800 * MB, 0.02);
  near(found.write, 400 * MB, 0.02);
  near(found.mixed, 2 / (1 / (800 * MB) + 1 / (400 * MB)), 0.02);
  for (size_t i = 0; i < 3; i++)
    near(table.rows[i].median, i == 0 ? found.read : i == 1 ? found.write : found.mixed, 0.02);
}

/* A round writes 400 MB and half of 533 MB, and what begins and ends each: the
 * cache of 2 GB is full in the third of five rounds. */
static void test_a_cache_that_fills(void **state)
{
  static struct pen_bench_table table;
  struct pen_machine_drive found = measure(2000 * MB, 5, &table);
  near(table.rows[1].most, 400 * MB, 0.02);
  near(table.rows[1].least, 100 * MB, 0.02);
  near(table.rows[1].median, 400 * MB, 0.02);
  near(found.write, (3 * 400 + 2 * 100) / 5.0 * MB, 0.02);
  near(found.read, 800 * MB, 0.02);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_an_even_drive),
    cmocka_unit_test(test_a_cache_that_fills),
  };
  return cmocka_run_group_tests_name("rates", tests, NULL, NULL);
}
