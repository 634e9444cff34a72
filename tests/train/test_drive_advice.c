/* Advice on drives: against sums done here, and against itself on other
 * machines. */
#include "tests/test.h"

#include <math.h>

#include "src/train/drive_advice.h"

/* A workstation whose GPU is fast beside its one drive. */
static struct pen_machine workstation(void)
{
  struct pen_machine m = {.cores = 16,
                          .products = {{60e9, 960e9, 120e9, 1920e9}},
                          .dram_read = 60e9, .dram_write = 60e9,
                          .dram_update = 60e9,
                          .upload = 25e9, .download = 25e9,
                          .adam_core = {1e9},
                          .ram_bytes = 1e12,
                          .device_bf16 = 165e12, .device_fp32 = 80e12,
                          .device_memory = 1e12, .device_bytes = 24e9,
                          .n_drives = 1};
  m.drives[0] = (struct pen_machine_drive){
      .read = 4e9, .write = 2e9, .latency_s = 1e-4, .sync_s = 1e-3};
  return m;
}

static struct pen_drive_advice ask(const struct pen_drive_advice_question *q,
                                   size_t size)
{
  struct pen_drive_advice a;
  test_ok(pen_drive_advice_size(q, size, &a));
  return a;
}

static void test_one_size(void **state)
{
  struct pen_machine m = workstation();
  struct pen_drive_advice_question q = {
      .machine = &m, .tokens_per_step = 8192, .tbw = 1200000000000000u};
  struct pen_drive_advice a = ask(&q, 0);
  double n = (double)a.parameters;
  assert_true(a.fits && a.has_room);
  assert_true(n > 1.4e9 && n < 1.7e9);
  assert_int_equal(a.tokens_per_step, 8192);
  /* p, m and v of each parameter, padding aside. */
  double written = (double)a.written_bytes;
  assert_true(written >= 12 * n && written < 12.1 * n);
  assert_true(fabs(a.alone_seconds / (written / 4e9 + written / 2e9) - 1) < 1e-6);
  assert_true(a.added_seconds > 0 && a.added_seconds < a.step_seconds);
  assert_true(a.added_seconds <= a.alone_seconds * 1.02);
  assert_true(a.step_seconds >= a.alone_seconds);
  assert_true(fabs(a.steps_to_tbw * written / 1.2e15 - 1) < 1e-9);
  assert_true(fabs(a.days_to_tbw * 86400 / a.steps_to_tbw - a.step_seconds) <
              1e-6 * a.step_seconds);
  /* More tokens hide more of it, and write no more. */
  q.tokens_per_step = 524288;
  struct pen_drive_advice many = ask(&q, 0);
  assert_true(many.added_seconds < 0.5 * a.added_seconds);
  assert_int_equal(many.written_bytes, a.written_bytes);
}

static void test_drives(void **state)
{
  struct pen_machine m = workstation();
  struct pen_drive_advice_question q = {
      .machine = &m, .tokens_per_step = 8192, .tbw = 1000000000000u};
  struct pen_drive_advice one = ask(&q, 1);
  m.n_drives = 2;
  m.drives[1] = m.drives[0];
  struct pen_drive_advice two = ask(&q, 1);
  assert_true(two.added_seconds < one.added_seconds);
  assert_true(fabs(two.alone_seconds * 2 / one.alone_seconds - 1) < 1e-9);
  assert_true(fabs(two.steps_to_tbw / one.steps_to_tbw - 2) < 1e-9);
  m.n_drives = 0;
  struct pen_drive_advice none;
  test_fails(pen_drive_advice_size(&q, 1, &none), PEN_EUSAGE,
             "penstock bench nvme");
}

static void test_room(void **state)
{
  struct pen_machine m = workstation();
  struct pen_drive_advice_question q = {.machine = &m,
                                        .tokens_per_step = 2048,
                                        .n_checkpoints = 2,
                                        .durable = true};
  struct pen_drive_advice a = ask(&q, 0);
  /* Five extents a tile, three models; the last tile of each block has room for
   * a whole one, which with the largest tiles is 8 % at most. */
  double bytes = (5 * 12 + 3 * 2) * (double)a.parameters;
  assert_true((double)a.drive_bytes >= bytes &&
              (double)a.drive_bytes < 1.08 * bytes);
  q.free_bytes = a.drive_bytes;
  assert_true(ask(&q, 0).has_room);
  /* Never one that has none: this model's room is for no larger one. */
  double largest = (double)pen_drive_advice_largest(&q);
  assert_true(largest <= (double)a.parameters &&
              largest > 0.92 * (double)a.parameters);
  q.free_bytes--;
  assert_false(ask(&q, 0).has_room);
  q.free_bytes++;
  q.durable = false;
  assert_true((double)pen_drive_advice_largest(&q) > 3 * largest);
}

static void test_memory(void **state)
{
  struct pen_machine m = workstation();
  struct pen_drive_advice_question q = {
      .machine = &m, .tokens_per_step = 2048, .host_bytes = 1 << 30};
  struct pen_drive_advice a;
  m.device_bytes = 2e9;
  test_ok(pen_drive_advice_size(&q, 2, &a));
  assert_false(a.fits);
  assert_true(a.parameters > 7000000000u && a.step_seconds == 0);
}

/* All of them, in order, on the same machine. */
static void test_sizes(void **state)
{
  struct pen_machine m = workstation();
  struct pen_drive_advice_question q = {.machine = &m,
                                        .tokens_per_step = 4096};
  struct pen_drive_advice before = {.parameters = 0};
  for (size_t i = 0; i < PEN_DRIVE_ADVICE_SIZES; i++) {
    struct pen_drive_advice a = ask(&q, i);
    assert_true(a.fits);
    assert_true(a.parameters > before.parameters);
    assert_true(a.written_bytes > before.written_bytes);
    assert_true(a.step_seconds > before.step_seconds);
    before = a;
  }
  assert_true(before.parameters > 69000000000u &&
              before.parameters < 72000000000u);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_size), cmocka_unit_test(test_drives),
      cmocka_unit_test(test_room), cmocka_unit_test(test_memory),
      cmocka_unit_test(test_sizes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
