/* The virtual clock against the order in which run does the same step. */
#include "tests/test.h"

#include "io/json.h"
#include "offload/run.h"
#include "offload/simulate.h"
#include "tests/sched/places.h"
#include "tests/sched/small_machine.h"
#include "tests/sched/toy.h"
#include "tests/tmpdir.h"

static int load(void *ctx, uint32_t number, size_t begin, size_t n, float *p,
                float *m, float *v)
{
  const struct pen_tile *tile = &((struct pen_layout *)ctx)->tiles[number];
  for (size_t i = 0; i < n; i++) {
    p[i] = toy_initial(tile->block, tile->begin + begin + i);
    m[i] = v[i] = 0;
  }
  return 0;
}

static void name_lanes(struct pen_trace *trace)
{
  for (int lane = 0; lane < PEN_LANES; lane++)
    pen_trace_name_lane(trace, (size_t)lane, pen_lane_name((enum pen_lane)lane));
}

/* Each lane's tasks in order of their begin, as text. */
static char *saved_order(struct pen_trace *trace, const char *name)
{
  const char *path = test_tmp(name);
  struct pen_json *json = NULL;
  const struct pen_json_node *events;
  char *text = calloc(1, 1 << 20);
  size_t used = 0;
  test_ok(pen_trace_save(trace, path));
  test_ok(pen_json_load(path, &json));
  test_ok(pen_json_get_array(json, pen_json_root(json), "traceEvents", &events));
  for (int64_t lane = 0; lane < 64; lane++)
    for (size_t i = 0; i < pen_json_size(events); i++) {
      const struct pen_json_node *event = pen_json_item(events, i), *args;
      const char *phase, *what;
      int64_t tid, block = -1, micro = -1, tile = -1;
      test_ok(pen_json_get_string(json, event, "ph", &phase));
      if (strcmp(phase, "X"))
        continue;
      test_ok(pen_json_get_i64(json, event, "tid", &tid));
      if (tid != lane)
        continue;
      test_ok(pen_json_get_string(json, event, "name", &what));
      if (pen_json_has(event, "args")) {
        test_ok(pen_json_get_object(json, event, "args", &args));
        test_ok(pen_json_opt_i64(json, args, "block", &block));
        test_ok(pen_json_opt_i64(json, args, "micro", &micro));
        test_ok(pen_json_opt_i64(json, args, "tile", &tile));
      }
      used += (size_t)snprintf(text + used, (1 << 20) - used,
                               "lane %d: %s %d %d %d\n", (int)lane, what,
                               (int)block, (int)micro, (int)tile);
    }
  pen_json_free(&json);
  return text;
}

static void real_step(struct toy *toy, const struct pen_layout *layout,
                      struct pen_trace *trace)
{
  struct pen_pool *pool = NULL;
  struct pen_run *run = NULL;
  struct pen_run_plan plan;
  struct pen_run_result result;
  struct pen_shape shape = {.kind = PEN_STEP_TRAIN, .n_micros = 3, .n_tokens = 48};
  struct pen_run_update update = {.apply = true};
  test_ok(pen_pool_create(1, "update", &pool));
  test_ok(pen_run_plan(&toy->workload, layout, true, &plan));
  struct pen_run_options o = {.workload = &toy->workload,
                              .compute = &toy->compute,
                              .layout = layout,
                              .device = &pen_device_host_discrete,
                              .update_pool = pool,
                              .trace = trace,
                              .io_depth = 4};
  test_ok(pen_run_create(&o, &plan, &run));
  test_ok(pen_run_load(run, load, (void *)layout));
  test_ok(pen_run_step(run, &shape, &update, &result));
  pen_run_free(&run);
  pen_pool_free(&pool);
}

static void test_same_order_as_run(void **state)
{
  struct toy toy;
  struct pen_layout layout;
  struct pen_placement p = places_plain();
  struct pen_trace *real = NULL, *virtual = NULL;
  struct pen_shape shape = {.kind = PEN_STEP_TRAIN, .n_micros = 3, .n_tokens = 48};
  struct pen_machine machine = small_machine();
  struct pen_simulate_options options = {
      .demand = {.machine = &machine, .elem_bytes = 4, .threads = 2,
                 .update_threads = 2},
      .io_depth = 4, .apply = true};
  struct pen_simulate *simulate = NULL;
  struct pen_simulate_result result;
  struct pen_carry carry;
  struct pen_schedule schedule;
  p.unified = false; /* so that there are copies */
  toy_init(&toy, false, 3);
  test_ok(pen_layout_init(&layout, &toy.workload, &p));
  test_ok(pen_trace_create(PEN_LANES, 4000, &real));
  test_ok(pen_trace_create(PEN_LANES, 4000, &virtual));
  name_lanes(real);
  name_lanes(virtual);
  real_step(&toy, &layout, real);
  test_ok(pen_carry_init(&carry, &layout));
  test_ok(pen_schedule_init(&schedule, &toy.workload, &layout, 0, 0, true));
  test_ok(pen_schedule_build(&toy.workload, &layout, &shape, false, &carry,
                             &schedule));
  test_ok(pen_simulate_create(schedule.n_tasks, &simulate));
  test_ok(pen_simulate_run(simulate, &schedule, &options, virtual, 1000, &result));
  assert_int_equal(pen_trace_n_dropped(virtual), 0);
  char *a = saved_order(real, "real.json"), *b = saved_order(virtual, "virtual.json");
  assert_true(strlen(a) > 1000);
  assert_string_equal(a, b);
  free(a);
  free(b);
  pen_simulate_free(&simulate);
  pen_schedule_done(&schedule);
  pen_carry_done(&carry);
  pen_layout_done(&layout);
  pen_trace_free(&real);
  pen_trace_free(&virtual);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_order_as_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
