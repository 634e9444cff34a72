/* Where bytes live never changes a number: random placements against the plain
 * one, bit for bit, on real lanes with a real store. */
#include "tests/test.h"

#include <math.h>

#include "tests/sched/places.h"
#include "tests/sched/runs.h"
#include "tests/tmpdir.h"

static void compare_all(bool tied, int n_places, int poison_step)
{
  uint64_t seed = places_seed() + tied;
  struct pen_placement plain = places_plain();
  char difference[128];
  struct runs_outcome *reference = runs_outcome(&plain, tied, 1, 1, poison_step, NULL);
  assert_true(isfinite(reference->losses[0]));
  assert_true(reference->losses[0] != reference->losses[1]);
  for (int n = 0; n < n_places; n++) {
    struct pen_placement p = places_random(seed, (uint64_t)n);
    struct runs_outcome *o = runs_outcome(
        &p, tied, 1 + (size_t)n % 3, 1 + (size_t)n % 2, poison_step, NULL);
    if (!runs_same(o, reference, difference, sizeof difference))
      fail_msg("placement %d: %s", n, difference);
    runs_outcome_free(o);
  }
  runs_outcome_free(reference);
}

static void test_tied_is_the_same_everywhere(void **state)
{
  (void)state;
  compare_all(true, 25, -1);
}

static void test_untied_is_the_same_everywhere(void **state)
{
  (void)state;
  compare_all(false, 25, -1);
}

/* A step whose gradient has a NaN changes nothing, wherever things live. */
static void test_nonfinite_is_skipped_everywhere(void **state)
{
  (void)state;
  compare_all(true, 10, 2);
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
  struct pen_shape shape = {PEN_STEP_TRAIN, 3, 16, false};
  struct pen_run_update update = {.apply = true, .commit = true};
  struct pen_run_result r;
  test_fails(pen_run_step(t.run, &shape, &update, &r), PEN_ENONFINITE,
             "backward of block b3 on lane compute: as told");
  runs_outcome_free(t.outcome);
  runs_done(&t);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tied_is_the_same_everywhere),
      cmocka_unit_test(test_untied_is_the_same_everywhere),
      cmocka_unit_test(test_nonfinite_is_skipped_everywhere),
      cmocka_unit_test(test_failure_stops_every_lane),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
