/* Where bytes live never changes a number: random placements against the plain
 * one, bit for bit, on real lanes with a real store. */
#include "tests/test.h"

#include <math.h>

#include "tests/sched/places.h"
#include "tests/sched/runs.h"
#include "tests/tmpdir.h"

static void compare_all(enum toy_kind kind, int n_places, int poison_step)
{
  uint64_t seed = places_seed() + kind;
  struct pen_placement plain = places_plain();
  char difference[128];
  struct runs_outcome *reference = runs_outcome(&plain, kind, 1, 1, poison_step, NULL);
  assert_true(isfinite(reference->losses[0]));
  assert_true(reference->losses[0] != reference->losses[1]);
  for (int n = 0; n < n_places; n++) {
    struct pen_placement p = places_random(seed, (uint64_t)n);
    struct runs_outcome *o = runs_outcome(
        &p, kind, 1 + (size_t)n % 3, 1 + (size_t)n % 2, poison_step, NULL);
    if (!runs_same(o, reference, difference, sizeof difference))
      fail_msg("placement %d: %s", n, difference);
    runs_outcome_free(o);
  }
  runs_outcome_free(reference);
}

static void test_tied_is_the_same_everywhere(void **state)
{
  (void)state;
  compare_all(TOY_TIED, 25, -1);
}

static void test_untied_is_the_same_everywhere(void **state)
{
  (void)state;
  compare_all(TOY_UNTIED, 25, -1);
}

/* And which experts are fetched. */
static void test_experts_are_the_same_everywhere(void **state)
{
  (void)state;
  compare_all(TOY_EXPERTS, 20, -1);
  compare_all(TOY_TIED_EXPERTS, 20, -1);
  compare_all(TOY_EXPERTS, 6, 2);
}

/* Bytes of experts' weights that the step called for, once a call. */
static uint64_t called_bytes(const struct runs *t)
{
  uint64_t bytes = 0;
  for (size_t b = t->toy.workload.experts_begin;
       b < t->toy.workload.experts_end; b++)
    bytes += t->toy.expert_calls[b] *
             t->layout.slots[t->layout.weight_home[b]].bytes;
  return bytes;
}

/* What a step of this kind read from the drive, but for what it called for. */
static uint64_t read_beside(struct runs *t, enum pen_step_kind kind,
                            uint32_t seed, uint64_t *ret_called)
{
  struct pen_run_update update = {.apply = true};
  struct pen_run_result r;
  struct pen_shape shape = {
      .kind = kind, .n_micros = 3, .n_tokens = 16, .speculates = true};
  struct pen_store_counters before, after;
  memset(t->toy.expert_calls, 0, sizeof t->toy.expert_calls);
  t->toy.seed = seed;
  pen_store_counters(t->store, &before);
  test_ok(pen_run_step(t->run, &shape, &update, &r));
  pen_store_counters(t->store, &after);
  *ret_called = called_bytes(t);
  return after.bytes_read - before.bytes_read - *ret_called;
}

/* One micro-batch a group, so that each call is a fetch. */
static void test_only_routed_experts_are_read(void **state)
{
  (void)state;
  struct runs t = {.dir = test_tmp("experts")};
  struct pen_placement p = places_plain();
  size_t n_experts = 6, n_micros = 3;
  p.weights_host_bytes = 0;
  runs_init(&t, &p, TOY_EXPERTS, 2, 1, NULL);
  uint64_t slot =
      t.layout.slots[t.layout.weight_home[t.toy.workload.experts_begin]].bytes;
  uint64_t called, others = 0, least = UINT64_MAX, most = 0;
  read_beside(&t, PEN_STEP_EVAL, 99, &called); /* fills the rings */
  for (uint32_t seed = 1; seed <= 8; seed++) {
    uint64_t beside = read_beside(&t, PEN_STEP_EVAL, seed, &called);
    if (seed > 1)
      assert_int_equal(beside, others);
    others = beside;
    least = called < least ? called : least;
    most = called > most ? called : most;
  }
  assert_true(least < most && most < n_experts * n_micros * slot);
  /* There and back: as much beside the experts, but for the body once more. */
  uint64_t both = read_beside(&t, PEN_STEP_TRAIN, 5, &called);
  assert_true(both > others && called < 2 * n_experts * n_micros * slot);
  runs_outcome_free(t.outcome);
  runs_done(&t);
}

/* A step whose gradient has a NaN changes nothing, wherever things live. */
static void test_nonfinite_is_skipped_everywhere(void **state)
{
  (void)state;
  compare_all(TOY_TIED, 10, 2);
}

/* A failure of the model ends the step with the place it happened. */
static int failing_backward(void *ctx, size_t block, size_t micro,
                            const struct pen_inputs *in, const void *w,
                            const void *x, const void *saved, void *d,
                            float *grad, void *work)
{
  (void)ctx;
  (void)block;
  (void)micro;
  (void)in;
  (void)w;
  (void)x;
  (void)saved;
  (void)d;
  (void)grad;
  (void)work;
  return pen_error_set(PEN_ENONFINITE, "as told");
}

static void test_failure_stops_every_lane(void **state)
{
  (void)state;
  struct pen_placement p = places_random(7, 3);
  struct runs t = {.dir = test_tmp("store")};
  runs_init(&t, &p, true, 2, 2, NULL);
  t.toy.compute.backward = failing_backward;
  struct pen_shape shape = {.kind = PEN_STEP_TRAIN,
                            .n_micros = 3,
                            .n_tokens = 16,
                            .speculates = true};
  struct pen_run_update update = {.apply = true, .commit = true};
  struct pen_run_result r;
  test_fails(pen_run_step(t.run, &shape, &update, &r), PEN_ENONFINITE,
             "backward of block b3 on lane compute: as told");
  runs_outcome_free(t.outcome);
  runs_done(&t);
}

/* Loads two tiles, and is told to stop while it is at the third. */
static int load_until_told(void *ctx, uint32_t tile, size_t begin, size_t n,
                           float *p, float *m, float *v)
{
  struct runs *t = ctx;
  (void)begin;
  assert_true(tile < 3);
  t->stop = tile == 2;
  for (size_t i = 0; i < n; i++)
    p[i] = m[i] = v[i] = 0;
  return 0;
}

static void test_loading_ends_behind_a_tile(void **state)
{
  (void)state;
  struct pen_placement p = places_plain();
  struct runs t = {.dir = test_tmp("store")};
  runs_init(&t, &p, TOY_UNTIED, 1, 1, NULL);
  assert_true(t.layout.n_tiles > 3);
  test_fails(pen_run_load(t.run, load_until_told, &t), PEN_ESTOPPED,
             "stopped while loading block b");
  runs_outcome_free(t.outcome);
  runs_done(&t);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tied_is_the_same_everywhere),
      cmocka_unit_test(test_untied_is_the_same_everywhere),
      cmocka_unit_test(test_experts_are_the_same_everywhere),
      cmocka_unit_test(test_only_routed_experts_are_read),
      cmocka_unit_test(test_nonfinite_is_skipped_everywhere),
      cmocka_unit_test(test_failure_stops_every_lane),
      cmocka_unit_test(test_loading_ends_behind_a_tile),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
