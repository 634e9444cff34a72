/* The virtual clock against sums done by hand, and against bounds that no
 * schedule can beat. */
#include "tests/test.h"

#include <math.h>

#include "offload/simulate.h"
#include "tests/sched/places.h"
#include "tests/sched/small_machine.h"
#include "tests/sched/toy.h"

#define N_PLACES 60
#define NEAR 1e-9 /* of a handful of additions of doubles near 1 */

struct hand {
  struct pen_task tasks[16];
  struct pen_schedule schedule;
  struct pen_machine machine;
  struct pen_simulate_options options;
  struct pen_simulate_result result;
};

static void hand_init(struct hand *h)
{
  *h = (struct hand){.machine = small_machine()};
  h->schedule.tasks = h->tasks;
  h->options = (struct pen_simulate_options){
      .demand = {.machine = &h->machine,
                 .elem_bytes = 4,
                 .threads = 2,
                 .update_threads = 2},
      .io_depth = 4,
      .apply = true};
}

static struct pen_task *hand_add(struct hand *h, enum pen_task_kind kind,
                                 enum pen_lane lane, struct pen_cost cost)
{
  struct pen_task *t = &h->tasks[h->schedule.n_tasks++];
  t->kind = kind;
  t->lane = lane;
  t->cost = cost;
  t->ticket = ++h->schedule.n_tickets[lane];
  t->block = t->micro = t->tile = PEN_NONE;
  return t;
}

static void hand_run(struct hand *h)
{
  struct pen_simulate *s = NULL;
  test_ok(pen_simulate_create(16, &s));
  test_ok(pen_simulate_run(s, &h->schedule, &h->options, NULL, 0, &h->result));
  pen_simulate_free(&s);
}

static void is_near(double value, double wanted)
{
  if (!(fabs(value - wanted) <= NEAR * fmax(1, fabs(wanted))))
    fail_msg("%.12g, not %.12g", value, wanted);
}

static void test_chain_adds_up(void **state)
{
  struct hand h;
  hand_init(&h);
  hand_add(&h, PEN_TASK_READ, PEN_LANE_READ, (struct pen_cost){.nvme_bytes = 100});
  hand_add(&h, PEN_TASK_FORWARD, PEN_LANE_COMPUTE, (struct pen_cost){.flops = 60})
      ->wait[PEN_LANE_READ] = 1;
  hand_add(&h, PEN_TASK_WRITE, PEN_LANE_WRITE, (struct pen_cost){.nvme_bytes = 80})
      ->wait[PEN_LANE_COMPUTE] = 1;
  hand_run(&h);
  is_near(h.result.seconds, 100 / 50. + 60 / 20. + 80 / 40.);
  is_near(h.result.critical_seconds, 7);
  is_near(h.result.busy_seconds[PEN_LANE_COMPUTE], 3);
  is_near(h.result.load[PEN_RESOURCE_CORES], 3 / 7.);
  /* It is one drive that reads for 2 s and writes for 2 s. */
  assert_int_equal(h.result.binds, PEN_RESOURCE_DRIVES + PEN_DRIVE_BOTH);
  is_near(h.result.load[h.result.binds], 4 / 7.);
}

/* An update of 5 s and a product of 6 s, both wanting both cores: each at half
 * speed until the shorter is done at 10 s, then 1 s of the longer alone. */
static void test_two_share_the_cores(void **state)
{
  struct hand h;
  hand_init(&h);
  hand_add(&h, PEN_TASK_FORWARD, PEN_LANE_COMPUTE, (struct pen_cost){.flops = 120});
  hand_add(&h, PEN_TASK_UPDATE, PEN_LANE_UPDATE, (struct pen_cost){.update_elems = 50});
  hand_run(&h);
  is_near(h.result.seconds, 11);
  is_near(h.result.critical_seconds, 6);
  is_near(h.result.load[PEN_RESOURCE_CORES], 1);
  is_near(h.result.busy_seconds[PEN_LANE_UPDATE], 10);
}

/* An update that waits for memory, 6 s alone, holds its cores all the same: a
 * product of 3 s beside it takes 6, and 3 s of the update are left then. */
static void test_waiting_holds_the_cores(void **state)
{
  struct hand h;
  hand_init(&h);
  hand_add(&h, PEN_TASK_FORWARD, PEN_LANE_COMPUTE, (struct pen_cost){.flops = 60});
  hand_add(&h, PEN_TASK_UPDATE, PEN_LANE_UPDATE,
           (struct pen_cost){.update_elems = 1, .dram_read_bytes = 600});
  hand_run(&h);
  is_near(h.result.busy_seconds[PEN_LANE_COMPUTE], 6);
  is_near(h.result.seconds, 9);
  is_near(h.result.load[PEN_RESOURCE_CORES], 1);
}

/* Attention and passes come on top of products: 3 s, 2 s, 1 s. */
static void test_work_between_products(void **state)
{
  struct hand h;
  struct pen_cost all = {.flops = 60, .vector_flops = 12, .pass_elems = 8};
  hand_init(&h);
  hand_add(&h, PEN_TASK_FORWARD, PEN_LANE_COMPUTE, all);
  hand_run(&h);
  is_near(h.result.seconds, 3); /* of rates that are not known nothing counts */
  h.machine.vector_core = h.machine.vector_all = 6; /* no faster on two */
  h.machine.pass_core = 4, h.machine.pass_all = 8;
  hand_run(&h);
  is_near(h.result.seconds, 6);
  h.options.demand.threads = 1;
  hand_run(&h);
  is_near(h.result.seconds, 6 + 2 + 2);
}

/* One thread of products leaves a core to the optimizer's one. */
static void test_threads_leave_cores(void **state)
{
  struct hand h;
  hand_init(&h);
  h.options.demand.threads = h.options.demand.update_threads = 1;
  hand_add(&h, PEN_TASK_FORWARD, PEN_LANE_COMPUTE, (struct pen_cost){.flops = 60});
  hand_add(&h, PEN_TASK_UPDATE, PEN_LANE_UPDATE, (struct pen_cost){.update_elems = 30});
  hand_run(&h);
  is_near(h.result.seconds, 6);
}

/* A task held by the full link leaves the rest of memory to the other: the link
 * takes 100 + 100 of memory's traffic in 2 s at half speed. */
static void test_the_unused_goes_to_others(void **state)
{
  struct pen_share_demand a = {.part = {1, 0.25}}, b = {.part = {1, 0}},
                          c = {.part = {0, 1}};
  struct pen_share_group all[] = {{&a, 1, 0}, {&b, 1, 0}, {&c, 1, 0}};
  pen_share_speeds(all, 3, 2);
  is_near(all[0].speed, 0.5);
  is_near(all[1].speed, 0.5);
  is_near(all[2].speed, 0.875);
}

/* n copies, n products, the product of i needing copy i.  With two slots copy
 * i waits for product i - 2 and all but the first copy is hidden. */
static double streamed_seconds(bool two_slots)
{
  struct hand h;
  hand_init(&h);
  h.machine.cores = 3; /* one for the copies */
  for (uint32_t i = 0; i < 5; i++) {
    struct pen_task *copy = hand_add(&h, PEN_TASK_COPY, PEN_LANE_UPLOAD,
                                     (struct pen_cost){.link_bytes = 100});
    if (i >= 1)
      copy->wait[PEN_LANE_COMPUTE] = two_slots ? i - 1 : i;
    hand_add(&h, PEN_TASK_FORWARD, PEN_LANE_COMPUTE, (struct pen_cost){.flops = 40})
        ->wait[PEN_LANE_UPLOAD] = i + 1;
  }
  hand_run(&h);
  return h.result.seconds;
}

static void test_two_slots_hide_copies(void **state)
{
  is_near(streamed_seconds(true), 1 + 5 * 2);
  is_near(streamed_seconds(false), 5 * (1 + 2));
}

static void test_drive_bound_is_bytes_by_rate(void **state)
{
  struct hand h;
  hand_init(&h);
  for (int i = 0; i < 6; i++)
    hand_add(&h, PEN_TASK_READ_TILE, PEN_LANE_READ,
             (struct pen_cost){.nvme_bytes = 70});
  hand_add(&h, PEN_TASK_FORWARD, PEN_LANE_COMPUTE, (struct pen_cost){.flops = 20});
  hand_run(&h);
  is_near(h.result.seconds, 6 * 70 / 50.);
  is_near(h.result.least_seconds[PEN_RESOURCE_DRIVES], 8.4);
  assert_int_equal(h.result.binds, PEN_RESOURCE_DRIVES + PEN_DRIVE_READ);
  /* A second drive like it halves that. */
  h.machine.n_drives = 2;
  h.machine.drives[1] = h.machine.drives[0];
  hand_run(&h);
  is_near(h.result.seconds, 4.2);
}

/* Drives that are alike are simulated as one; a hair's breadth of difference
 * makes them several, and the step as long. */
static void test_equal_drives_are_as_several(void **state)
{
  struct hand h;
  hand_init(&h);
  h.machine.n_drives = 3;
  for (int d = 0; d < 3; d++)
    h.machine.drives[d] = (struct pen_machine_drive){
        .read = 40, .write = 20, .mixed = 25, .latency_s = 0.01, .sync_s = 0.1};
  for (uint32_t i = 0; i < 4; i++) {
    hand_add(&h, PEN_TASK_READ, PEN_LANE_READ, (struct pen_cost){.nvme_bytes = 70});
    hand_add(&h, PEN_TASK_WRITE, PEN_LANE_WRITE, (struct pen_cost){.nvme_bytes = 90})
        ->wait[PEN_LANE_READ] = i + 1;
  }
  hand_add(&h, PEN_TASK_COMMIT, PEN_LANE_WRITE, (struct pen_cost){0});
  hand_run(&h);
  struct pen_simulate_result one = h.result;
  h.machine.drives[1].read *= 1 + 1e-12;
  hand_run(&h);
  is_near(one.seconds, h.result.seconds);
  is_near(one.critical_seconds, h.result.critical_seconds);
  assert_int_equal(one.n_resources, h.result.n_resources);
  for (size_t r = 0; r < one.n_resources; r++) {
    is_near(one.load[r], h.result.load[r]);
    is_near(one.least_seconds[r], h.result.least_seconds[r]);
  }
  assert_true(one.load[PEN_RESOURCE_DRIVES + 2 * PEN_DRIVE_RESOURCES] > 0.1);
}

/* A step that cannot be short enough is given up: at once where bytes by rate
 * say so, else when the clock does. */
static void test_enough_is_enough(void **state)
{
  struct hand h;
  hand_init(&h);
  hand_add(&h, PEN_TASK_FORWARD, PEN_LANE_COMPUTE, (struct pen_cost){.flops = 120});
  hand_add(&h, PEN_TASK_UPDATE, PEN_LANE_UPDATE, (struct pen_cost){.update_elems = 50});
  for (int i = 0; i < 4; i++)
    hand_add(&h, PEN_TASK_COPY, PEN_LANE_UPLOAD, (struct pen_cost){.link_bytes = 1});
  hand_run(&h);
  double whole = h.result.seconds;
  h.options.enough_s = whole * 1.001;
  hand_run(&h);
  is_near(h.result.seconds, whole);
  for (double part = 0.1; part < 1; part += 0.2) {
    h.options.enough_s = whole * part;
    hand_run(&h);
    assert_true(h.result.seconds >= h.options.enough_s);
    assert_true(h.result.seconds <= whole * (1 + NEAR));
  }
}

/* 100 bytes each way: measured together at 30 bytes/s it takes 200 / 30 s, and
 * at 80 the slower direction alone counts. */
static void test_reads_and_writes_together(void **state)
{
  struct hand h;
  hand_init(&h);
  h.machine.drives[0] = (struct pen_machine_drive){.read = 40, .write = 40};
  hand_add(&h, PEN_TASK_READ, PEN_LANE_READ, (struct pen_cost){.nvme_bytes = 100});
  hand_add(&h, PEN_TASK_WRITE, PEN_LANE_WRITE, (struct pen_cost){.nvme_bytes = 100});
  h.machine.drives[0].mixed = 30;
  hand_run(&h);
  is_near(h.result.seconds, 200 / 30.);
  h.machine.drives[0].mixed = 80;
  hand_run(&h);
  is_near(h.result.seconds, 2.5);
  assert_true(h.result.seconds >=
              h.result.least_seconds[PEN_RESOURCE_DRIVES + PEN_DRIVE_BOTH]);
}

/* Four reads of 0.1 s latency: one after the other, or all at once. */
static void test_latency_and_depth(void **state)
{
  struct hand h;
  hand_init(&h);
  h.machine.drives[0].latency_s = 0.1;
  for (int i = 0; i < 4; i++)
    hand_add(&h, PEN_TASK_READ, PEN_LANE_READ, (struct pen_cost){.nvme_bytes = 5});
  hand_run(&h);
  is_near(h.result.seconds, 0.1 + 20 / 50.);
  h.options.io_depth = 1;
  hand_run(&h);
  is_near(h.result.seconds, 4 * (0.1 + 5 / 50.));
}

static void test_guards(void **state)
{
  struct hand h;
  hand_init(&h);
  h.machine.drives[0].sync_s = 0.5;
  hand_add(&h, PEN_TASK_UPDATE, PEN_LANE_UPDATE, (struct pen_cost){.update_elems = 20})
      ->guard = PEN_GUARD_APPLY;
  hand_add(&h, PEN_TASK_READ, PEN_LANE_READ, (struct pen_cost){.nvme_bytes = 25})
      ->guard = PEN_GUARD_SKIP;
  struct pen_task *commit =
      hand_add(&h, PEN_TASK_COMMIT, PEN_LANE_WRITE, (struct pen_cost){0});
  commit->wait[PEN_LANE_UPDATE] = commit->wait[PEN_LANE_READ] = 1;
  hand_run(&h);
  is_near(h.result.seconds, 2 + 2 * 0.5);
  h.options.apply = false;
  hand_run(&h);
  is_near(h.result.seconds, 0.5 + 2 * 0.5);
}

/* 60 operations with so many rows. */
static double seconds_with_rows(struct hand *h, double rows)
{
  h->tasks[0].cost = (struct pen_cost){.flops = 60, .rows = rows};
  hand_run(h);
  return h->result.seconds;
}

/* 20 FLOP/s with 2,048 rows, 15 with 512, 5 with 128: between two sizes a row takes
 * a part that falls as 1 / rows. */
static void test_products_of_few_rows(void **state)
{
  struct hand h;
  hand_init(&h);
  hand_add(&h, PEN_TASK_FORWARD, PEN_LANE_COMPUTE, (struct pen_cost){0});
  is_near(seconds_with_rows(&h, 128), 3); /* not known: as with many */
  h.machine.products[1] = (struct pen_machine_products){7.5, 15, 1, 1};
  is_near(seconds_with_rows(&h, 128), 4);
  h.machine.products[2] = (struct pen_machine_products){2.5, 5, 1, 1};
  is_near(seconds_with_rows(&h, 1), 12);
  is_near(seconds_with_rows(&h, 128), 12);
  is_near(seconds_with_rows(&h, 512), 4);
  is_near(seconds_with_rows(&h, 2048), 3);
  is_near(seconds_with_rows(&h, 1e6), 3);
  /* 1/256 is a third of the way from 1/512 to 1/128, and of the seconds' */
  is_near(seconds_with_rows(&h, 256), 4 + (12 - 4) / 3.);
  is_near(seconds_with_rows(&h, 1024), 3 + (4 - 3) / 3.);
  h.options.demand.threads = 1;
  is_near(seconds_with_rows(&h, 512), 8);
  h.options.demand.elem_bytes = 2;
  is_near(seconds_with_rows(&h, 512), 60);
}

static void test_unknown_rates_are_asked_for(void **state)
{
  struct pen_simulate *s = NULL;
  struct hand h;
  hand_init(&h);
  hand_add(&h, PEN_TASK_READ, PEN_LANE_READ, (struct pen_cost){.nvme_bytes = 1});
  hand_add(&h, PEN_TASK_FORWARD, PEN_LANE_COMPUTE, (struct pen_cost){.flops = 1});
  test_ok(pen_simulate_create(2, &s));
  h.machine.n_drives = 0;
  test_fails(pen_simulate_run(s, &h.schedule, &h.options, NULL, 0, &h.result),
             PEN_EUSAGE, "penstock bench nvme");
  h.machine = small_machine();
  h.machine.products[0].fp32_all = 0;
  test_fails(pen_simulate_run(s, &h.schedule, &h.options, NULL, 0, &h.result),
             PEN_EUSAGE, "fp32 product");
  h.options.demand.elem_bytes = 2;
  test_ok(pen_simulate_run(s, &h.schedule, &h.options, NULL, 0, &h.result));
  h.tasks[0].wait[PEN_LANE_COMPUTE] = 1;
  test_fails(pen_simulate_run(s, &h.schedule, &h.options, NULL, 0, &h.result),
             PEN_ESCHEDULE, "comes after it");
  pen_simulate_free(&s);
}

/* ---- schedules that build makes ---- */

struct built {
  struct toy toy;
  struct pen_layout layout;
  struct pen_carry carry;
  struct pen_schedule schedule;
  struct pen_simulate *simulate;
  struct pen_machine machine;
  struct pen_simulate_options options;
};

/* The training step that applies the update of the one before it. */
static void built_init(struct built *b, const struct pen_placement *p,
                       bool tied, size_t micros)
{
  struct pen_shape shape = {
      .kind = PEN_STEP_TRAIN, .n_micros = micros, .n_tokens = 16. * micros};
  *b = (struct built){.machine = small_machine()};
  toy_init(&b->toy, tied, micros);
  for (size_t i = 0; i < b->toy.workload.n_blocks; i++)
    b->toy.blocks[i].forward_flops_per_token = 2. * b->toy.blocks[i].elems;
  test_ok(pen_layout_init(&b->layout, &b->toy.workload, p));
  test_ok(pen_carry_init(&b->carry, &b->layout));
  test_ok(pen_schedule_init(&b->schedule, &b->toy.workload, &b->layout, 0, 0, true));
  for (int step = 0; step < 2; step++)
    test_ok(pen_schedule_build(&b->toy.workload, &b->layout, &shape, true,
                               &b->carry, &b->schedule));
  test_ok(pen_simulate_create(b->schedule.n_tasks, &b->simulate));
  b->machine.drives[0].latency_s = 1e-3;
  b->machine.drives[0].sync_s = 1e-3;
  b->options = (struct pen_simulate_options){
      .demand = {.machine = &b->machine,
                 .elem_bytes = b->toy.workload.weight_elem_bytes,
                 .threads = 2, .update_threads = 2},
      .io_depth = 4, .apply = true};
}

static void built_done(struct built *b)
{
  pen_simulate_free(&b->simulate);
  pen_schedule_done(&b->schedule);
  pen_carry_done(&b->carry);
  pen_layout_done(&b->layout);
}

static struct pen_simulate_result built_run(struct built *b)
{
  struct pen_simulate_result r;
  test_ok(pen_simulate_run(b->simulate, &b->schedule, &b->options, NULL, 0, &r));
  return r;
}

static void test_no_step_beats_its_bounds(void **state)
{
  uint64_t seed = places_seed();
  for (uint64_t n = 0; n < N_PLACES; n++) {
    struct pen_placement p = places_random(seed, n);
    struct built b;
    built_init(&b, &p, n % 2, 1 + n % TOY_MICROS_MAX);
    b.machine.drives[0].mixed = n % 3 * 35;
    struct pen_simulate_result r = built_run(&b), again = built_run(&b);
    assert_memory_equal(&r, &again, sizeof r);
    assert_true(r.seconds >= r.critical_seconds * (1 - NEAR));
    for (size_t i = 0; i < r.n_resources; i++) {
      if (r.seconds < r.least_seconds[i] * (1 - NEAR))
        fail_msg("placement %d: %g s, resource %zu alone needs %g s", (int)n,
                 r.seconds, i, r.least_seconds[i]);
      assert_true(r.load[i] <= 1 + NEAR);
    }
    double nvme_bytes = 0;
    for (size_t i = 0; i < b.schedule.n_tasks; i++)
      if (b.schedule.tasks[i].guard != PEN_GUARD_SKIP)
        nvme_bytes += (double)b.schedule.tasks[i].cost.nvme_bytes;
    is_near(r.least_seconds[PEN_RESOURCE_DRIVES] * 50 +
                r.least_seconds[PEN_RESOURCE_DRIVES + 1] * 40,
            nvme_bytes);
    built_done(&b);
  }
}

/* What a rehearsal rests on: the first step with an update to apply finds its
 * rings as all later ones do. */
static void test_the_second_step_is_any_later_one(void **state)
{
  uint64_t seed = places_seed();
  for (uint64_t n = 0; n < N_PLACES; n++) {
    struct pen_placement p = places_random(seed, n);
    size_t micros = 1 + n % TOY_MICROS_MAX;
    struct pen_shape shape = {.kind = PEN_STEP_TRAIN,
                              .n_micros = micros,
                              .n_tokens = 16. * micros,
                              .speculates = true};
    struct built b;
    built_init(&b, &p, n % 2, micros);
    pen_carry_done(&b.carry);
    test_ok(pen_carry_init(&b.carry, &b.layout));
    double seconds = 0;
    for (int step = 0; step < 5; step++) {
      test_ok(pen_schedule_build(&b.toy.workload, &b.layout, &shape, n % 3,
                                 &b.carry, &b.schedule));
      pen_simulate_free(&b.simulate);
      test_ok(pen_simulate_create(b.schedule.n_tasks, &b.simulate));
      if (step == 1)
        seconds = built_run(&b).seconds;
      if (step > 1)
        is_near(built_run(&b).seconds, seconds);
    }
    built_done(&b);
  }
}

/* Twice the rate of anything.  A step may get a little slower all the same: a
 * task that now comes earlier shares with one on the critical path (Graham's
 * anomaly of list schedules, which max-min sharing has too).  Over 50 seeds the
 * worst is below 1 %; more than 2 % would be a mistake. */
static void test_faster_is_not_slower(void **state)
{
  uint64_t seed = places_seed();
  for (uint64_t n = 0; n < N_PLACES; n++) {
    struct pen_placement p = places_random(seed, n);
    struct built b;
    built_init(&b, &p, n % 2, 1 + n % TOY_MICROS_MAX);
    double before = built_run(&b).seconds, all;
    double *rates[] = {&b.machine.dram_read, &b.machine.dram_write,
                       &b.machine.dram_update, &b.machine.upload,
                       &b.machine.download, &b.machine.adam_core[0],
                       &b.machine.drives[0].read, &b.machine.drives[0].write};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
      *rates[i] *= 2;
      double after = built_run(&b).seconds;
      if (after > before * 1.02)
        fail_msg("placement %d: rate %zu doubled, %g s became %g s", (int)n, i,
                 before, after);
      *rates[i] /= 2;
    }
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
      *rates[i] *= 2;
    struct pen_machine_products *products = &b.machine.products[0];
    products->fp32_core *= 2, products->fp32_all *= 2;
    products->bf16_core *= 2, products->bf16_all *= 2;
    b.machine.drives[0].latency_s /= 2, b.machine.drives[0].sync_s /= 2;
    all = built_run(&b).seconds;
    is_near(all * 2, before); /* the clock itself twice as fast */
    built_done(&b);
  }
}

/* With a device of its own, products and copies leave the cores alone and its
 * memory is not RAM. */
static void test_device(void **state)
{
  struct hand h;
  hand_init(&h);
  h.machine.device_fp32 = 1000;
  h.machine.device_memory = 400;
  struct pen_cost product = {.flops = 500, .dram_read_bytes = 0,
                             .device_read_bytes = 100};
  hand_add(&h, PEN_TASK_FORWARD, PEN_LANE_COMPUTE, product);
  struct pen_cost adam = {.update_elems = 5};
  hand_add(&h, PEN_TASK_UPDATE, PEN_LANE_UPDATE, adam);
  hand_run(&h);
  is_near(h.result.least_seconds[PEN_RESOURCE_DEVICE], 0.5);
  is_near(h.result.least_seconds[PEN_RESOURCE_DEVICE_MEMORY], 0.25);
  is_near(h.result.least_seconds[PEN_RESOURCE_DRAM], 0);
  is_near(h.result.busy_seconds[PEN_LANE_COMPUTE], 0.5);
  is_near(h.result.seconds, 0.5); /* the update has both cores: 5 / 5 / 2 */
  is_near(h.result.least_seconds[PEN_RESOURCE_CORES], 0.5);

  /* The same played by the cores. */
  h.machine.device_fp32 = 0;
  hand_run(&h);
  is_near(h.result.least_seconds[PEN_RESOURCE_DEVICE], 0);
  is_near(h.result.least_seconds[PEN_RESOURCE_DRAM], 1);
  assert_true(h.result.seconds > 25);
}

/* What a toy step costs, counted by hand: AdamW moves 12 bytes of state each
 * way and reads a gradient and writes a weight for every element. */
static void test_update_traffic(void **state)
{
  struct pen_placement p = places_plain();
  struct built b;
  uint64_t elems = 0, read = 0, written = 0, all = 0;
  built_init(&b, &p, false, 2);
  for (size_t i = 0; i < b.toy.workload.n_blocks; i++)
    all += b.toy.blocks[i].elems;
  for (size_t i = 0; i < b.schedule.n_tasks; i++)
    if (b.schedule.tasks[i].kind == PEN_TASK_UPDATE) {
      elems += b.schedule.tasks[i].cost.update_elems;
      read += b.schedule.tasks[i].cost.dram_read_bytes;
      written += b.schedule.tasks[i].cost.dram_written_bytes;
    }
  assert_int_equal(elems, all);
  uint64_t wanted = all * (12 + b.toy.workload.weight_elem_bytes);
  /* Tiles are rounded up to pages, twice each. */
  uint64_t slack = 2 * PEN_SLOT_ALIGN * b.layout.n_tiles;
  assert_in_range(read, wanted, wanted + slack);
  assert_in_range(written, wanted, wanted + slack);
  built_done(&b);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_chain_adds_up),
      cmocka_unit_test(test_two_share_the_cores),
      cmocka_unit_test(test_waiting_holds_the_cores),
      cmocka_unit_test(test_work_between_products),
      cmocka_unit_test(test_threads_leave_cores),
      cmocka_unit_test(test_the_unused_goes_to_others),
      cmocka_unit_test(test_two_slots_hide_copies),
      cmocka_unit_test(test_drive_bound_is_bytes_by_rate),
      cmocka_unit_test(test_equal_drives_are_as_several),
      cmocka_unit_test(test_enough_is_enough),
      cmocka_unit_test(test_reads_and_writes_together),
      cmocka_unit_test(test_latency_and_depth),
      cmocka_unit_test(test_guards),
      cmocka_unit_test(test_products_of_few_rows),
      cmocka_unit_test(test_unknown_rates_are_asked_for),
      cmocka_unit_test(test_no_step_beats_its_bounds),
      cmocka_unit_test(test_the_second_step_is_any_later_one),
      cmocka_unit_test(test_faster_is_not_slower),
      cmocka_unit_test(test_device),
      cmocka_unit_test(test_update_traffic),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
