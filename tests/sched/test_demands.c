/* Tasks that cost the same share a demand, and no others do. */
#include "tests/test.h"

#include "offload/demands.h"
#include "tests/sched/small_machine.h"

#define TASKS 120 /* nearly as many as the table has places, so that most meet */

static struct pen_task task_of(size_t i)
{
  bool up = i % 2;
  return (struct pen_task){.kind = PEN_TASK_COPY,
                           .lane = up ? PEN_LANE_UPLOAD : PEN_LANE_DOWNLOAD,
                           .cost = {.link_bytes = 100 * (i / 2 + 1)}};
}

static void test_each_has_its_own(void **state)
{
  (void)state;
  static struct pen_task tasks[TASKS], again[TASKS];
  struct pen_machine machine = small_machine();
  machine.download = 50; /* so that a copy's direction shows */
  struct pen_demand_options options = {
      .machine = &machine, .elem_bytes = 4, .threads = 2, .update_threads = 2};
  struct pen_demands d;
  test_ok(pen_demands_init(&d, TASKS / 2));
  pen_demands_clear(&d);
  for (size_t i = 0; i < TASKS; i++) {
    uint32_t number;
    tasks[i] = task_of(i);
    test_ok(pen_demands_find(&d, &options, &tasks[i], &number));
    assert_int_equal(number, i + 1);
  }
  for (size_t i = 0; i < TASKS; i++) {
    uint32_t number;
    struct pen_demand alone;
    again[i] = task_of(i);
    again[i].block = 7; /* costs nothing */
    test_ok(pen_demands_find(&d, &options, &again[i], &number));
    assert_int_equal(number, i + 1);
    test_ok(pen_demand_of(&options, &again[i], &alone));
    assert_true(alone.seconds > 0 && d.all[number].seconds == alone.seconds);
  }
  pen_demands_done(&d);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_has_its_own)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
