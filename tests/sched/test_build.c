/* Every placement and every order of steps gives a schedule that check proves,
 * and the same arguments give the same schedule. */
#include "tests/test.h"

#include "offload/check.h"
#include "offload/run.h"
#include "tests/sched/places.h"
#include "tests/sched/toy.h"

#define N_PLACES 150

struct bench {
  struct toy toy;
  struct pen_layout layout;
  struct pen_carry carry, before;
  struct pen_schedule schedule;
  struct pen_check check;
};

/* compact: with weights and state that have halves; nothing is computed here. */
static void bench_init(struct bench *b, const struct pen_placement *p,
                       enum toy_kind kind, size_t micros, bool compact)
{
  toy_init(&b->toy, kind, micros);
  if (compact) {
    b->toy.workload.state = &pen_state_int8;
    b->toy.workload.weight_elem_bytes = sizeof(uint16_t);
  }
  test_ok(pen_layout_init(&b->layout, &b->toy.workload, p));
  test_ok(pen_carry_init(&b->carry, &b->layout));
  test_ok(pen_carry_init(&b->before, &b->layout));
  test_ok(pen_schedule_init(&b->schedule, &b->toy.workload, &b->layout, 0, 0,
                            true));
  test_ok(pen_check_init(&b->check, &b->layout, 20000, 100000));
}

static void bench_done(struct bench *b)
{
  pen_check_done(&b->check);
  pen_schedule_done(&b->schedule);
  pen_carry_done(&b->before);
  pen_carry_done(&b->carry);
  pen_layout_done(&b->layout);
}

static struct pen_shape random_shape(uint64_t seed, uint64_t n, size_t micros)
{
  static const enum pen_step_kind kinds[] = {PEN_STEP_TRAIN, PEN_STEP_TRAIN,
                                             PEN_STEP_EVAL, PEN_STEP_LOGITS,
                                             PEN_STEP_DRAIN};
  struct pen_shape s = {.kind = kinds[pen_rng_below(seed, n, 1, 5)],
                        .n_micros = 1 + pen_rng_below(seed, n, 2, micros),
                        .n_tokens = 16,
                        .save = false,
                        .speculates = pen_rng_below(seed, n, 4, 4) > 0,
                        .skips = pen_rng_below(seed, n, 5, 3) == 0};
  if (s.kind == PEN_STEP_DRAIN) {
    s.n_micros = 0;
    s.save = pen_rng_below(seed, n, 3, 2);
  }
  return s;
}

static void test_every_placement_is_proven(void **state)
{
  (void)state;
  uint64_t seed = places_seed();
  for (uint64_t n = 0; n < N_PLACES; n++) {
    struct pen_placement p = places_random(seed, n);
    struct bench b;
    size_t micros = 1 + n % TOY_MICROS_MAX;
    bench_init(&b, &p, n % TOY_KINDS, micros, n / TOY_KINDS % 2);
    for (uint64_t step = 0; step < 12; step++) {
      struct pen_shape shape = random_shape(seed ^ n, step, micros);
      pen_carry_copy(&b.before, &b.carry);
      int rc = pen_schedule_build(&b.toy.workload, &b.layout, &shape,
                                  shape.save || step % 2, &b.carry, &b.schedule);
      if (rc == 0)
        rc = pen_check_schedule(&b.check, &b.layout, &b.schedule, &b.before);
      if (rc < 0)
        fail_msg("placement %d, step %d: %s", (int)n, (int)step,
                 pen_error_text());
    }
    bench_done(&b);
  }
}

/* Field by field: nobody writes the padding between them. */
static void assert_same_access(const struct pen_access *a,
                               const struct pen_access *b)
{
  assert_int_equal(a->slot, b->slot);
  assert_int_equal(a->generation, b->generation);
  assert_int_equal(a->mode, b->mode);
  assert_int_equal(a->offset, b->offset);
  assert_int_equal(a->bytes, b->bytes);
}

static void test_build_is_pure(void **state)
{
  (void)state;
  uint64_t seed = places_seed();
  for (uint64_t n = 0; n < 10; n++) {
    struct pen_placement p = places_random(seed, n);
    struct bench a, b;
    bench_init(&a, &p, n % TOY_KINDS, 3, n % 2);
    bench_init(&b, &p, n % TOY_KINDS, 3, n % 2);
    struct pen_shape shape = {.kind = PEN_STEP_TRAIN,
                              .n_micros = 3,
                              .n_tokens = 16,
                              .speculates = true};
    for (int step = 0; step < 3; step++) {
      test_ok(pen_schedule_build(&a.toy.workload, &a.layout, &shape, step == 2,
                                 &a.carry, &a.schedule));
      test_ok(pen_schedule_build(&b.toy.workload, &b.layout, &shape, step == 2,
                                 &b.carry, &b.schedule));
      assert_int_equal(a.schedule.n_tasks, b.schedule.n_tasks);
      assert_memory_equal(a.schedule.tasks, b.schedule.tasks,
                          a.schedule.n_tasks * sizeof *a.schedule.tasks);
      assert_int_equal(a.schedule.n_accesses, b.schedule.n_accesses);
      for (size_t i = 0; i < a.schedule.n_accesses; i++)
        assert_same_access(&a.schedule.accesses[i], &b.schedule.accesses[i]);
    }
    bench_done(&a);
    bench_done(&b);
  }
}

/* What pen_run_plan reserves is enough for any step that follows. */
static void test_planned_room_is_enough(void **state)
{
  (void)state;
  uint64_t seed = places_seed();
  for (uint64_t n = 0; n < 40; n++) {
    struct pen_placement p = places_random(seed, n);
    struct bench b;
    bench_init(&b, &p, n % TOY_KINDS, 4, n / TOY_KINDS % 2);
    struct pen_run_plan plan;
    test_ok(pen_run_plan(&b.toy.workload, &b.layout, true, &plan));
    struct pen_schedule fixed;
    test_ok(pen_schedule_init(&fixed, &b.toy.workload, &b.layout, plan.n_tasks,
                              plan.n_accesses, false));
    for (uint64_t step = 0; step < 30; step++) {
      struct pen_shape shape = random_shape(seed + n, step, 4);
      bool commits = shape.save || pen_rng_below(seed, n, step, 2);
      int rc = pen_schedule_build(&b.toy.workload, &b.layout, &shape, commits,
                                  &b.carry, &fixed);
      if (rc < 0)
        fail_msg("placement %d, step %d: %s", (int)n, (int)step,
                 pen_error_text());
    }
    pen_schedule_done(&fixed);
    bench_done(&b);
  }
}

/* Sums over tasks leave out what is done again, and what is written only where
 * the update is skipped; what is read then stands for what is read else. */
static void test_sums_leave_out_the_rare(void **state)
{
  (void)state;
  struct pen_task tasks[] = {
      {.lane = PEN_LANE_WRITE, .cost.nvme_bytes = 1},
      {.lane = PEN_LANE_WRITE, .guard = PEN_GUARD_APPLY, .cost.nvme_bytes = 10},
      {.lane = PEN_LANE_WRITE, .guard = PEN_GUARD_SKIP, .cost.nvme_bytes = 100},
      {.lane = PEN_LANE_WRITE, .guard = PEN_GUARD_REDO, .cost.nvme_bytes = 1000},
      {.lane = PEN_LANE_READ, .guard = PEN_GUARD_SKIP, .cost.nvme_bytes = 10000},
  };
  struct pen_schedule s = {.tasks = tasks,
                           .n_tasks = sizeof tasks / sizeof *tasks};
  assert_int_equal(pen_schedule_cost(&s).nvme_bytes, 10011);
  assert_int_equal(pen_schedule_nvme_written(&s, false), 11);
  assert_int_equal(pen_schedule_nvme_written(&s, true), 1000);
}

/* Halves are due after a step that wrote heads alone, until a commit; a step whose
 * update is skipped writes nothing, and leaves what it found. */
static void test_halves_are_due_until_a_commit(void **state)
{
  (void)state;
  static const struct {
    bool skips, commits, due;
  } steps[] = {{false, false, false}, /* nothing is pending yet */
               {true, false, false}, {false, false, true},
               {true, false, true},  {true, true, false},
               {true, false, false}, {false, false, true},
               {false, true, false}};
  struct bench b;
  struct pen_placement p = places_plain();
  p.state_host_bytes = 0;
  bench_init(&b, &p, TOY_UNTIED, 2, true);
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    struct pen_shape shape = {.kind = PEN_STEP_TRAIN,
                              .n_micros = 2,
                              .n_tokens = 16,
                              .skips = steps[i].skips};
    pen_carry_copy(&b.before, &b.carry);
    test_ok(pen_schedule_build(&b.toy.workload, &b.layout, &shape,
                               steps[i].commits, &b.carry, &b.schedule));
    test_ok(pen_check_schedule(&b.check, &b.layout, &b.schedule, &b.before));
    assert_int_equal(b.carry.halves_due, steps[i].due);
  }
  bench_done(&b);
}

struct rows_count {
  size_t gathers, gathers_ahead, tiles_ahead;
  size_t first_forward, first_update, last_head; /* of the rows; places in the schedule */
};

/* What the second training step does for the embedding's rows; each of their
 * tiles has at most one task that looks ahead. */
static struct rows_count count_rows(const struct pen_placement *p,
                                    enum toy_kind kind, size_t micros)
{
  struct bench b;
  struct pen_shape shape = {.kind = PEN_STEP_TRAIN,
                            .n_micros = micros,
                            .n_tokens = TOY_TOKENS,
                            .speculates = true};
  struct rows_count n = {.first_forward = SIZE_MAX, .first_update = SIZE_MAX};
  bench_init(&b, p, kind, micros, false);
  for (int step = 0; step < 2; step++)
    test_ok(pen_schedule_build(&b.toy.workload, &b.layout, &shape, true, &b.carry,
                               &b.schedule));
  bool *ahead = calloc(b.layout.n_tiles, sizeof *ahead);
  assert_non_null(ahead);
  for (size_t i = 0; i < b.schedule.n_tasks; i++) {
    const struct pen_task *t = &b.schedule.tasks[i];
    n.gathers += t->kind == PEN_TASK_GATHER;
    n.gathers_ahead += t->kind == PEN_TASK_GATHER_AHEAD;
    if (t->kind == PEN_TASK_ROWS_AHEAD) {
      assert_true(pen_workload_is_rows(&b.toy.workload, b.layout.tiles[t->tile].block));
      assert_false(ahead[t->tile]);
      ahead[t->tile] = true;
      n.tiles_ahead++;
    }
    if (t->kind == PEN_TASK_FORWARD && n.first_forward == SIZE_MAX)
      n.first_forward = i;
    if (t->kind == PEN_TASK_HEAD_FORWARD)
      n.last_head = i;
    if (t->kind == PEN_TASK_UPDATE && n.first_update == SIZE_MAX &&
        pen_workload_is_rows(&b.toy.workload, t->block))
      n.first_update = i;
  }
  free(ahead);
  bench_done(&b);
  return n;
}

/* Where all that it takes lies in RAM, the rows of the step are made ahead and
 * their update hides under forward; else it comes first. */
static void test_rows_are_made_ahead(void **state)
{
  (void)state;
  enum { MICROS = 3 };
  for (enum toy_kind kind = TOY_UNTIED; kind < TOY_KINDS; kind++) {
    struct pen_placement p = places_plain();
    struct toy toy;
    struct pen_layout l;
    toy_init(&toy, kind, MICROS);
    test_ok(pen_layout_init(&l, &toy.workload, &p));
    size_t tiles = l.block_tiles[toy.workload.rows_end] -
                   l.block_tiles[toy.workload.rows_begin];
    size_t blocks = toy.workload.rows_end - toy.workload.rows_begin;
    pen_layout_done(&l);
    p.group_size = MICROS;
    struct rows_count n = count_rows(&p, kind, MICROS);
    assert_int_equal(n.tiles_ahead, tiles);
    assert_int_equal(n.gathers_ahead, MICROS);
    assert_int_equal(n.gathers, 0);
    assert_true(n.first_forward < n.first_update && n.first_update < SIZE_MAX);
    /* Other blocks' updates do not wait for it, the head's neither. */
    assert_true(pen_workload_is_tied(&toy.workload) || n.last_head < n.first_update);
    p.gradients_host_bytes = 0; /* on NVMe */
    n = count_rows(&p, kind, MICROS);
    assert_int_equal(n.tiles_ahead + n.gathers_ahead, 0);
    assert_int_equal(n.gathers, MICROS * blocks);
    assert_true(n.first_update < n.first_forward);
  }
}

/* The next tile is updated while the one before it goes up. */
static void test_weights_go_up_by_tile(void **state)
{
  (void)state;
  struct pen_placement p = places_plain();
  struct pen_shape shape = {.kind = PEN_STEP_TRAIN, .n_micros = 1, .n_tokens = 16,
                            .speculates = true};
  struct bench b;
  p.unified = false;
  p.weights_device_bytes = PEN_ALL_BYTES;
  p.tile_elems = PEN_NORM_CHUNK_ELEMS; /* three in the second block */
  p.speculative_blocks = 6; /* all but the first */
  bench_init(&b, &p, TOY_UNTIED, 1, false);
  for (int step = 0; step < 2; step++)
    test_ok(pen_schedule_build(&b.toy.workload, &b.layout, &shape, false, &b.carry,
                               &b.schedule));
  size_t sent[PEN_GUARDS] = {0}, updated[PEN_GUARDS] = {0};
  uint32_t *ticket = calloc(b.layout.n_tiles, sizeof *ticket); /* of an update */
  assert_non_null(ticket);
  for (size_t i = 0; i < b.schedule.n_tasks; i++) {
    const struct pen_task *t = &b.schedule.tasks[i];
    if ((t->kind == PEN_TASK_UPDATE || t->kind == PEN_TASK_SPECULATE) &&
        !pen_workload_is_rows(&b.toy.workload, t->block)) { /* those stay in RAM */
      ticket[t->tile] = t->ticket;
      updated[t->guard]++;
    }
    if (t->kind == PEN_TASK_COPY && t->tile != PEN_NONE) {
      assert_int_equal(t->wait[PEN_LANE_UPDATE], ticket[t->tile]);
      sent[t->guard]++;
    }
  }
  assert_true(updated[PEN_GUARD_APPLY] > 0 && updated[PEN_GUARD_REDO] >= 6 + 2);
  assert_int_equal(updated[PEN_GUARD_ALWAYS], updated[PEN_GUARD_REDO]);
  assert_memory_equal(sent, updated, sizeof sent);
  free(ticket);
  bench_done(&b);
}

static void test_impossible_placements_are_refused(void **state)
{
  (void)state;
  struct toy toy;
  toy_init(&toy, true, 2);
  struct pen_layout l;
  struct pen_placement p = places_plain();
  p.tile_elems = 1000;
  test_fails(pen_layout_init(&l, &toy.workload, &p), PEN_EUSAGE, "--tile-size");
  p = places_plain();
  p.weight_slots = 0;
  test_fails(pen_layout_init(&l, &toy.workload, &p), PEN_EUSAGE,
             "--weight-slots 0");
  p = places_plain();
  p.activation_slots = 1;
  test_fails(pen_layout_init(&l, &toy.workload, &p), PEN_EUSAGE,
             "activation slots");
}

/* Bytes on the device follow the budget, block by block (case B14). */
static void test_budgets_are_kept(void **state)
{
  (void)state;
  struct toy toy;
  toy_init(&toy, false, 2);
  uint64_t all = 0, previous = 0;
  for (size_t b = 0; b < toy.workload.n_blocks; b++)
    all += toy.blocks[b].elems * sizeof(float);
  for (int tenth = 0; tenth <= 10; tenth++) {
    struct pen_placement p = places_plain();
    p.unified = false;
    p.weights_device_bytes = all * (uint64_t)tenth / 10;
    struct pen_layout l;
    test_ok(pen_layout_init(&l, &toy.workload, &p));
    uint64_t on_device = 0;
    for (size_t b = 0; b < toy.workload.n_blocks; b++)
      if (l.slots[l.weight_home[b]].tier == PEN_TIER_DEVICE)
        on_device += l.slots[l.weight_home[b]].bytes;
    assert_true(on_device <= p.weights_device_bytes);
    assert_true(on_device >= previous);
    previous = on_device;
    pen_layout_done(&l);
  }
  assert_true(previous > 0);
}

/* An outline is what the fitting rule asks: it says of a placement what its
 * layout says. */
static void test_an_outline_has_the_bytes(void **state)
{
  struct toy toy;
  toy_init(&toy, true, 3);
  for (uint64_t i = 0; i < N_PLACES; i++) {
    struct pen_placement p = places_random(places_seed(), i);
    struct pen_layout whole, outline;
    p.inference = i % 4 == 3;
    test_ok(pen_layout_init(&whole, &toy.workload, &p));
    test_ok(pen_layout_outline(&outline, &toy.workload, &p));
    for (int tier = 0; tier < PEN_TIERS; tier++)
      assert_int_equal(outline.tier_bytes[tier], whole.tier_bytes[tier]);
    assert_int_equal(outline.n_store_tiles, whole.n_store_tiles);
    assert_int_equal(outline.n_speculative, whole.n_speculative);
    assert_int_equal(outline.n_speculative_store_tiles,
                     whole.n_speculative_store_tiles);
    for (size_t b = 0; b < toy.workload.n_blocks; b++)
      assert_int_equal(outline.slots[outline.weight_home[b]].tier,
                       whole.slots[whole.weight_home[b]].tier);
    pen_layout_done(&outline);
    pen_layout_done(&whole);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_placement_is_proven),
      cmocka_unit_test(test_build_is_pure),
      cmocka_unit_test(test_planned_room_is_enough),
      cmocka_unit_test(test_an_outline_has_the_bytes),
      cmocka_unit_test(test_sums_leave_out_the_rare),
      cmocka_unit_test(test_halves_are_due_until_a_commit),
      cmocka_unit_test(test_rows_are_made_ahead),
      cmocka_unit_test(test_weights_go_up_by_tile),
      cmocka_unit_test(test_impossible_placements_are_refused),
      cmocka_unit_test(test_budgets_are_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
