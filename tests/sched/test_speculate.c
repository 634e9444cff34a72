/* Early updates never change a number: what is done during backward, whatever
 * becomes of it, against updates that waited, over two hundred steps.
 *
 * One line that makes it red: a shadow taken for its home after a clipped step,
 * old weights read where new ones are, an extent given away while it is aside. */
#include "tests/test.h"

#include "tests/sched/places.h"
#include "tests/sched/runs.h"

#define STEPS 200
#define PLACES (TEST_SANITIZED ? 1 : 3)

static double clips_half(enum toy_kind kind)
{
  struct pen_placement plain = places_plain();
  struct runs_course course = {STEPS, 0, -1, 0, 0};
  struct runs_outcome *o = runs_of(&plain, kind, 1, 1, &course, NULL);
  double low = 0, high = 1e30;
  for (int turn = 0; turn < 200; turn++) {
    double middle = (low + high) / 2;
    int below = 0;
    for (int i = 0; i < STEPS; i++)
      below += o->norms[i] < middle;
    *(below < STEPS / 2 ? &low : &high) = middle;
  }
  runs_outcome_free(o);
  return high;
}

/* Where state lies, which of it is early, and with how many slots. */
static struct pen_placement place(uint64_t seed, int n)
{
  struct pen_placement p = places_random(seed, (uint64_t)n);
  p.state_device_bytes = 0;
  if (n % 4 == 0)
    p.state_host_bytes = PEN_ALL_BYTES;
  else if (n % 4 == 1)
    p.state_host_bytes = 0;
  p.speculative_blocks = n % 3 == 0 ? SIZE_MAX : 1 + (size_t)n % 4;
  return p;
}

static void compare(enum toy_kind kind, const struct runs_course *course,
                    int n_places, size_t *stood, size_t *redone,
                    size_t *discarded)
{
  struct pen_placement plain = places_plain();
  char difference[128];
  struct runs_outcome *want = runs_of(&plain, kind, 1, 1, course, NULL);
  assert_int_equal(want->n_stood + want->n_redone + want->n_discarded, 0);
  *stood = *redone = *discarded = 0;
  for (int n = 0; n < n_places; n++) {
    struct pen_placement p = place(places_seed() + kind, n);
    struct runs_outcome *got =
        runs_of(&p, kind, 1 + (size_t)n % 3, 1, course, NULL);
    if (!runs_same(got, want, difference, sizeof difference))
      fail_msg("placement %d: %s", n, difference);
    *stood += got->n_stood;
    *redone += got->n_redone;
    *discarded += got->n_discarded;
    runs_outcome_free(got);
  }
  runs_outcome_free(want);
}

static void test_never_clipped(void **state)
{
  (void)state;
  struct runs_course course = {STEPS, 0, -1, 0, 0};
  size_t stood, redone, discarded;
  compare(TOY_UNTIED, &course, PLACES, &stood, &redone, &discarded);
  assert_true(stood > PLACES * STEPS / 2 && redone == 0 && discarded == 0);
}

static void test_always_clipped(void **state)
{
  (void)state;
  struct runs_course course = {STEPS, 1e-6, -1, 0, 0};
  size_t stood, redone, discarded;
  compare(TOY_UNTIED, &course, PLACES, &stood, &redone, &discarded);
  assert_true(redone > PLACES * STEPS / 2 && stood == 0 && discarded == 0);
}

/* And gradients that are not finite, evaluations and saves in between. */
static void test_sometimes_clipped(void **state)
{
  (void)state;
  static const enum toy_kind kinds[] = {TOY_UNTIED, TOY_TIED, TOY_EXPERTS};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    struct runs_course course = {STEPS, clips_half(kinds[k]), -1, 9, 13};
    size_t stood, redone, discarded;
    compare(kinds[k], &course, PLACES + 1, &stood, &redone, &discarded);
    print_message("# %zu stood, %zu redone, %zu discarded\n", stood, redone,
                  discarded);
    size_t least = 12 * (PLACES + 1); /* a sixteenth of all steps */
    assert_true(stood > least && redone > least && discarded > least);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_never_clipped),
      cmocka_unit_test(test_always_clipped),
      cmocka_unit_test(test_sometimes_clipped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
