/* Schedules broken on purpose: each kind of mistake is found and named. */
#include "tests/test.h"

#include "offload/check.h"
#include "tests/sched/places.h"
#include "tests/sched/toy.h"

struct scene {
  struct toy toy;
  struct pen_layout layout;
  struct pen_carry carry, before;
  struct pen_schedule schedule;
  struct pen_check check;
};

/* Training steps until a commit has tiles of the steps before: two, or three where
 * those before the last do not commit. */
static void scene_build(struct scene *s, const struct pen_placement *p,
                        bool commits)
{
  test_ok(pen_layout_init(&s->layout, &s->toy.workload, p));
  test_ok(pen_carry_init(&s->carry, &s->layout));
  test_ok(pen_carry_init(&s->before, &s->layout));
  test_ok(pen_schedule_init(&s->schedule, &s->toy.workload, &s->layout, 0, 0,
                            true));
  test_ok(pen_check_init(&s->check, &s->layout, 10000, 50000));
  struct pen_shape shape = {.kind = PEN_STEP_TRAIN,
                            .n_micros = 2,
                            .n_tokens = 16,
                            .speculates = true};
  int last = commits ? 1 : 2;
  for (int step = 0; step <= last; step++) {
    pen_carry_copy(&s->before, &s->carry);
    test_ok(pen_schedule_build(&s->toy.workload, &s->layout, &shape,
                               commits || step == last, &s->carry, &s->schedule));
  }
  test_ok(pen_check_schedule(&s->check, &s->layout, &s->schedule, &s->before));
}

/* A training step with a pending update, everything that can be on NVMe there,
 * two micro-batches in one group. */
static void scene_init_on(struct scene *s, enum toy_kind kind,
                          const struct pen_placement *p)
{
  toy_init(&s->toy, kind, 2);
  scene_build(s, p, true);
}

/* Tiles in the store whose halves are weights in RAM, a third of the blocks updated
 * early, in a step that commits after one that did not. */
static void scene_init_halves(struct scene *s)
{
  struct pen_placement p = places_plain();
  p.state_host_bytes = 0;
  p.speculative_blocks = 3;
  toy_init(&s->toy, TOY_UNTIED, 2);
  s->toy.workload.state = &pen_state_int8;
  s->toy.workload.weight_elem_bytes = sizeof(uint16_t);
  scene_build(s, &p, false);
}

static void scene_init_of(struct scene *s, enum toy_kind kind)
{
  struct pen_placement p = places_plain();
  p.unified = false;
  p.weights_host_bytes = p.state_host_bytes = p.gradients_host_bytes = 0;
  p.activations_host_bytes = 0;
  p.group_size = 2;
  scene_init_on(s, kind, &p);
}

/* Half of the blocks updated early, with state in RAM or all on NVMe. */
static void scene_init_early(struct scene *s, bool on_nvme)
{
  struct pen_placement p = places_plain();
  if (on_nvme) {
    p.unified = false;
    p.weights_host_bytes = p.state_host_bytes = p.gradients_host_bytes = 0;
  }
  p.speculative_blocks = 3;
  scene_init_on(s, TOY_UNTIED, &p);
}

static void scene_init(struct scene *s)
{
  scene_init_of(s, TOY_TIED);
}

static void scene_done(struct scene *s)
{
  pen_check_done(&s->check);
  pen_schedule_done(&s->schedule);
  pen_carry_done(&s->before);
  pen_carry_done(&s->carry);
  pen_layout_done(&s->layout);
}

static int check(struct scene *s)
{
  return pen_check_schedule(&s->check, &s->layout, &s->schedule, &s->before);
}

static struct pen_task *find(struct scene *s, enum pen_task_kind kind, int nth)
{
  for (size_t i = 0; i < s->schedule.n_tasks; i++)
    if (s->schedule.tasks[i].kind == kind && nth-- == 0)
      return &s->schedule.tasks[i];
  fail_msg("no such task");
  return NULL;
}

static struct pen_access *access_of(struct scene *s, const struct pen_task *t,
                                    int nth)
{
  return &s->schedule.accesses[t->first_access + (uint32_t)nth];
}

/* Takes out each wait in turn: the proof must fail, unless what the task still
 * waits for implies it. */
static void without_each_wait(struct scene *s)
{
  size_t found = 0, implied = 0;
  for (size_t i = 0; i < s->schedule.n_tasks; i++)
    for (int lane = 0; lane < PEN_LANES; lane++) {
      uint32_t *wait = &s->schedule.tasks[i].wait[lane], kept = *wait;
      if (!kept)
        continue;
      *wait = 0;
      if (check(s) == -PEN_ESCHEDULE)
        found++;
      else if (s->check.known[i][lane] >= kept)
        implied++;
      else
        fail_msg("task %zu (%s) without its wait for %s %u passes", i,
                 pen_task_name(s->schedule.tasks[i].kind), pen_lane_name(lane),
                 kept);
      pen_error_clear();
      *wait = kept;
    }
  print_message("# %zu waits needed, %zu implied by others\n", found, implied);
  assert_true(found > 10);
  scene_done(s);
}

static void test_missing_dependency(void **state)
{
  (void)state;
  struct scene s;
  scene_init_of(&s, TOY_TIED);
  without_each_wait(&s);
  scene_init_of(&s, TOY_EXPERTS);
  without_each_wait(&s);
  for (int on_nvme = 0; on_nvme < 2; on_nvme++) {
    scene_init_early(&s, on_nvme);
    without_each_wait(&s);
  }
}

static void test_missing_dependency_is_named(void **state)
{
  (void)state;
  struct scene s;
  scene_init(&s);
  struct pen_task *update = find(&s, PEN_TASK_UPDATE, 0);
  update->wait[PEN_LANE_READ] = 0;
  test_fails(check(&s), PEN_ESCHEDULE, "reads before the fill");
  scene_done(&s);
}

static void test_slot_reused_early(void **state)
{
  (void)state;
  struct scene s;
  scene_init(&s);
  /* The third use of the tile ring must wait for the first one's write. */
  struct pen_task *read = find(&s, PEN_TASK_READ_TILE, 2);
  assert_true(read->wait[PEN_LANE_WRITE] > 0);
  read->wait[PEN_LANE_WRITE] = 0;
  test_fails(check(&s), PEN_ESCHEDULE, "old content is in use");
  scene_done(&s);
}

static void test_cycle(void **state)
{
  (void)state;
  struct scene s;
  scene_init(&s);
  struct pen_task *forward = find(&s, PEN_TASK_FORWARD, 0);
  struct pen_task *backward = find(&s, PEN_TASK_BACKWARD, 0);
  struct pen_task *scatter = find(&s, PEN_TASK_SCATTER, 0);
  assert_true(backward->ticket > forward->ticket);
  forward->wait[PEN_LANE_UPDATE] = scatter->ticket;
  test_fails(check(&s), PEN_ESCHEDULE, "cycle");
  scene_done(&s);
}

static void test_wrong_carry(void **state)
{
  (void)state;
  struct scene s;
  scene_init(&s);
  /* The step before is said to have left weights in a ring that it had not. */
  struct pen_schedule honest = s.schedule;
  uint32_t slot = s.layout.weight_device.first;
  struct pen_access *a = NULL;
  for (size_t i = 0; i < honest.n_accesses && !a; i++)
    if (honest.accesses[i].slot == slot)
      a = &honest.accesses[i];
  assert_non_null(a);
  a->mode = PEN_ACCESS_READ;
  a->generation = s.before.generation[slot];
  s.before.object[slot] = PEN_NONE;
  test_fails(check(&s), PEN_ESCHEDULE, "reads what nothing filled");
  scene_done(&s);
}

static void test_carry_of_another_step(void **state)
{
  (void)state;
  struct scene s;
  scene_init(&s);
  for (size_t i = 0; i < s.before.n_slots; i++)
    s.before.generation[i] += 1;
  test_fails(check(&s), PEN_ESCHEDULE, "already gone");
  scene_done(&s);
}

/* With the guard's other outcome the ring slot of an updated block would hold
 * nothing: the skip read is needed. */
static void test_guard_without_its_other_half(void **state)
{
  (void)state;
  struct scene s;
  scene_init(&s);
  struct pen_task *skip = NULL;
  for (size_t i = 0; i < s.schedule.n_tasks && !skip; i++)
    if (s.schedule.tasks[i].guard == PEN_GUARD_SKIP)
      skip = &s.schedule.tasks[i];
  assert_non_null(skip);
  skip->guard = PEN_GUARD_APPLY;
  assert_int_equal(check(&s), -PEN_ESCHEDULE);
  pen_error_clear();
  scene_done(&s);
}

/* ---- what is routed is known only while the step runs ---- */

/* The nth task of this kind behind the guard ROUTED. */
static struct pen_task *find_routed(struct scene *s, enum pen_task_kind kind,
                                    int nth)
{
  for (size_t i = 0; i < s->schedule.n_tasks; i++)
    if (s->schedule.tasks[i].kind == kind &&
        s->schedule.tasks[i].guard == PEN_GUARD_ROUTED && nth-- == 0)
      return &s->schedule.tasks[i];
  fail_msg("no such task");
  return NULL;
}

/* An expert that works whoever is routed to it, while its fetch does not. */
static void test_routed_fetch_of_unrouted_work(void **state)
{
  (void)state;
  struct scene s;
  scene_init_of(&s, TOY_EXPERTS);
  find_routed(&s, PEN_TASK_EXPERT, 0)->guard = PEN_GUARD_ALWAYS;
  test_fails(check(&s), PEN_ESCHEDULE, "reads what nothing filled");
  scene_done(&s);
}

/* A fetch that depends on another expert's, or on the same one's in another
 * group. */
static void test_routed_by_another(void **state)
{
  (void)state;
  struct scene s;
  scene_init_of(&s, TOY_EXPERTS);
  struct pen_task *fetch = find_routed(&s, PEN_TASK_COPY, 0);
  fetch->block++;
  test_fails(check(&s), PEN_ESCHEDULE, "reads what nothing filled");
  fetch->block--;
  fetch->group++;
  test_fails(check(&s), PEN_ESCHEDULE, "reads what nothing filled");
  fetch->group--;
  test_ok(check(&s));
  scene_done(&s);
}

static void test_guard_is_known_before_it_is_asked(void **state)
{
  (void)state;
  struct scene s;
  scene_init_of(&s, TOY_EXPERTS);
  struct pen_task *fetch = find_routed(&s, PEN_TASK_COPY, 0);
  uint32_t kept = fetch->wait[PEN_LANE_DOWNLOAD];
  assert_true(kept > 0);
  fetch->wait[PEN_LANE_DOWNLOAD] = 0;
  test_fails(check(&s), PEN_ESCHEDULE, "reads before the fill");
  fetch->wait[PEN_LANE_DOWNLOAD] = kept;
  fetch->n_accesses--;
  test_fails(check(&s), PEN_ESCHEDULE, "its guard looks at");
  scene_done(&s);
}

/* A change in place that is left out leaves what was there: nothing, where the
 * fill was left out too. */
static void test_change_left_out_fills_nothing(void **state)
{
  (void)state;
  struct scene s;
  scene_init(&s);
  find(&s, PEN_TASK_WRITE_TILE, 0)->guard = PEN_GUARD_ALWAYS;
  test_fails(check(&s), PEN_ESCHEDULE, "reads what nothing filled");
  scene_done(&s);
}

/* What all experts add to is there, routed to or not. */
static void test_routed_change_of_nothing(void **state)
{
  (void)state;
  struct scene s;
  scene_init_of(&s, TOY_EXPERTS);
  struct pen_task *zero = NULL, *backward = find_routed(&s, PEN_TASK_EXPERT_BACKWARD, 0);
  for (size_t i = 0; i < s.schedule.n_tasks && !zero; i++)
    if (s.schedule.tasks[i].kind == PEN_TASK_ZERO &&
        s.schedule.tasks[i].block == backward->block)
      zero = &s.schedule.tasks[i];
  assert_non_null(zero);
  zero->guard = PEN_GUARD_REDO;
  test_fails(check(&s), PEN_ESCHEDULE, "reads what nothing filled");
  scene_done(&s);
}

/* ---- what is updated during backward ---- */

static struct pen_task *find_again(struct scene *s, enum pen_task_kind kind)
{
  for (size_t i = 0; i < s->schedule.n_tasks; i++)
    if (s->schedule.tasks[i].kind == kind &&
        s->schedule.tasks[i].guard == PEN_GUARD_REDO)
      return &s->schedule.tasks[i];
  fail_msg("nothing is done again");
  return NULL;
}

/* An update that is done again although it stands, or only then. */
static void test_done_again_only_if_it_does_not_stand(void **state)
{
  (void)state;
  for (int on_nvme = 0; on_nvme < 2; on_nvme++) {
    struct scene s;
    scene_init_early(&s, on_nvme);
    struct pen_task *update = find_again(&s, PEN_TASK_UPDATE);
    update->guard = PEN_GUARD_APPLY;
    test_fails(check(&s), PEN_ESCHEDULE, "done early");
    update->guard = PEN_GUARD_REDO;
    test_ok(check(&s));
    s.before.speculated = false;
    test_fails(check(&s), PEN_ESCHEDULE, "done early");
    scene_done(&s);
  }
}

static void test_redo_is_examined(void **state)
{
  (void)state;
  struct scene s;
  scene_init_early(&s, true);
  /* Its state is read only where it is not done again. */
  find_again(&s, PEN_TASK_READ_TILE)->guard = PEN_GUARD_SKIP;
  assert_int_equal(check(&s), -PEN_ESCHEDULE);
  pen_error_clear();
  scene_done(&s);
}

static void test_a_part_of_a_shadow_is_left(void **state)
{
  (void)state;
  struct scene s;
  scene_init_early(&s, false);
  struct pen_task *early = find(&s, PEN_TASK_SPECULATE, 0);
  for (int nth = 1; nth < 3; nth++) { /* state, weights */
    struct pen_access *a = access_of(&s, early, nth);
    a->bytes -= 4096;
    test_fails(check(&s), PEN_ESCHEDULE, "part of a shadow");
    a->bytes += 4096;
  }
  early->guard = PEN_GUARD_APPLY;
  test_fails(check(&s), PEN_ESCHEDULE, "part of a shadow");
  early->guard = PEN_GUARD_ALWAYS;
  test_ok(check(&s));
  scene_done(&s);
  scene_init_early(&s, true);
  find(&s, PEN_TASK_WRITE_ASIDE, 0)->kind = PEN_TASK_WRITE_TILE;
  test_fails(check(&s), PEN_ESCHEDULE, "written aside");
  scene_done(&s);
}

static void test_each_tile_is_updated_once(void **state)
{
  (void)state;
  struct scene s;
  scene_init_early(&s, false);
  struct pen_task *update = find(&s, PEN_TASK_UPDATE, 1);
  uint32_t tile = update->tile;
  update->tile = find(&s, PEN_TASK_UPDATE, 0)->tile;
  test_fails(check(&s), PEN_ESCHEDULE, "updated twice");
  update->tile = tile;
  update->kind = PEN_TASK_SCATTER;
  test_fails(check(&s), PEN_ESCHEDULE, "tiles are updated");
  scene_done(&s);
}

static void test_part_never_filled(void **state)
{
  (void)state;
  struct scene s;
  scene_init(&s);
  struct pen_task *update = find(&s, PEN_TASK_UPDATE, 0);
  struct pen_access *weights = access_of(&s, update, 2);
  assert_int_equal(weights->mode, PEN_ACCESS_WRITE);
  weights->bytes -= 4096;
  test_fails(check(&s), PEN_ESCHEDULE, "bytes that nothing filled");
  scene_done(&s);
}

static void test_two_fill_the_same_bytes(void **state)
{
  (void)state;
  struct scene s;
  scene_init(&s);
  /* Two tiles of one block are updated by one lane in order; put one on a lane
   * of its own and let both fill the same part. */
  uint32_t first = PEN_NONE, second = PEN_NONE;
  for (uint32_t i = 0; i < s.schedule.n_tasks; i++) {
    struct pen_task *t = &s.schedule.tasks[i];
    if (t->kind != PEN_TASK_READ_TILE)
      continue;
    if (first == PEN_NONE)
      first = i;
    else if (second == PEN_NONE)
      second = i;
  }
  struct pen_access *a = access_of(&s, &s.schedule.tasks[first], 0);
  struct pen_access *b = access_of(&s, &s.schedule.tasks[second], 0);
  *b = *a;
  assert_int_equal(check(&s), -PEN_ESCHEDULE);
  pen_error_clear();
  scene_done(&s);
}

static void test_ticket_out_of_order(void **state)
{
  (void)state;
  struct scene s;
  scene_init(&s);
  find(&s, PEN_TASK_FORWARD, 1)->ticket++;
  test_fails(check(&s), PEN_ESCHEDULE, "ticket");
  scene_done(&s);
}

/* A commit names whole tiles, whatever was decided; what stands was written
 * whole. */
static void test_tiles_are_committed_whole(void **state)
{
  (void)state;
  struct scene s;
  scene_init_halves(&s);
  struct pen_task *halves = find(&s, PEN_TASK_WRITE_HALVES, 2);
  assert_int_equal(halves->guard, PEN_GUARD_SKIP);
  halves->guard = PEN_GUARD_APPLY;
  test_fails(check(&s), PEN_ESCHEDULE, "whose halves are not in the store");
  halves->guard = PEN_GUARD_SKIP;
  test_ok(check(&s));
  struct pen_task *write = find(&s, PEN_TASK_WRITE_TILE, 1);
  write->cost.nvme_bytes -= PEN_SLOT_ALIGN;
  test_fails(check(&s), PEN_ESCHEDULE, "whose halves are not in the store");
  write->cost.nvme_bytes += PEN_SLOT_ALIGN;
  struct pen_task *aside = find(&s, PEN_TASK_WRITE_ASIDE, 1);
  aside->cost.nvme_bytes -= PEN_SLOT_ALIGN;
  test_fails(check(&s), PEN_ESCHEDULE, "written aside, whole");
  aside->cost.nvme_bytes += PEN_SLOT_ALIGN;
  test_ok(check(&s));
  scene_done(&s);
}

/* Halves come behind heads that no commit has. */
static void test_halves_are_added_to_what_no_commit_has(void **state)
{
  (void)state;
  struct scene s;
  scene_init_halves(&s);
  assert_true(s.before.halves_due);
  s.before.halves_due = false;
  test_fails(check(&s), PEN_ESCHEDULE, "adds halves to a tile that a commit has");
  s.before.halves_due = true;
  test_ok(check(&s));
  scene_done(&s);
}

static void test_halves_wait_for_what_they_need(void **state)
{
  (void)state;
  struct scene s;
  scene_init_halves(&s);
  without_each_wait(&s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_missing_dependency),
      cmocka_unit_test(test_missing_dependency_is_named),
      cmocka_unit_test(test_slot_reused_early),
      cmocka_unit_test(test_cycle),
      cmocka_unit_test(test_wrong_carry),
      cmocka_unit_test(test_carry_of_another_step),
      cmocka_unit_test(test_guard_without_its_other_half),
      cmocka_unit_test(test_routed_fetch_of_unrouted_work),
      cmocka_unit_test(test_routed_by_another),
      cmocka_unit_test(test_guard_is_known_before_it_is_asked),
      cmocka_unit_test(test_change_left_out_fills_nothing),
      cmocka_unit_test(test_routed_change_of_nothing),
      cmocka_unit_test(test_done_again_only_if_it_does_not_stand),
      cmocka_unit_test(test_redo_is_examined),
      cmocka_unit_test(test_a_part_of_a_shadow_is_left),
      cmocka_unit_test(test_each_tile_is_updated_once),
      cmocka_unit_test(test_part_never_filled),
      cmocka_unit_test(test_two_fill_the_same_bytes),
      cmocka_unit_test(test_ticket_out_of_order),
      cmocka_unit_test(test_tiles_are_committed_whole),
      cmocka_unit_test(test_halves_are_added_to_what_no_commit_has),
      cmocka_unit_test(test_halves_wait_for_what_they_need),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
