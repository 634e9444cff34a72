/* Levels in made-up series of rates: how many, where, how high; noise, lone slow
 * windows and slow declines. */
#include "src/bench/plateau.h"

#include <math.h>

#include "base/rng.h"
#include "tests/test.h"

static double rates[PEN_PLATEAU_WINDOWS_MAX];
static struct pen_plateau found[PEN_PLATEAUS_MAX];

static uint64_t seed(void)
{
  const char *text = getenv("PEN_SEED");
  return text ? strtoull(text, NULL, 10) : 20261130;
}

struct level {
  size_t n;
  double rate;
};

/* Normal noise with this share of the rate; every `slow`-th window (0: none) is
 * ten times as slow. */
static size_t make(const struct level *levels, size_t n_levels, double noise,
                   size_t slow, uint64_t stream)
{
  size_t n = 0;
  for (size_t l = 0; l < n_levels; l++)
    for (size_t i = 0; i < levels[l].n; i++, n++) {
      double pair[2];
      pen_rng_normal_pair(seed(), stream, n, pair);
      rates[n] = levels[l].rate * (1 + noise * pair[0]);
      if (slow && n % slow == slow - 1)
        rates[n] /= 10;
    }
  return n;
}

/* Within two windows and 3 %. */
static void hold(const struct level *levels, size_t n_levels, double noise,
                 size_t slow, uint64_t stream)
{
  size_t n = make(levels, n_levels, noise, slow, stream), at = 0;
  size_t got = pen_plateau_find(rates, n, found);
  if (got != n_levels)
    fail_msg("%zu levels instead of %zu (stream %llu)", got, n_levels,
             (unsigned long long)stream);
  for (size_t l = 0; l < n_levels; l++) {
    assert_true(llabs((long long)found[l].begin - (long long)at) <= 2);
    if (fabs(found[l].rate / levels[l].rate - 1) > 0.03)
      fail_msg("level %zu is %g instead of %g", l, found[l].rate, levels[l].rate);
    at += levels[l].n;
  }
  assert_int_equal(found[0].begin, 0);
  assert_int_equal(found[n_levels - 1].end, n);
  for (size_t l = 1; l < n_levels; l++)
    assert_int_equal(found[l].begin, found[l - 1].end);
}

#define LEVELS(...) (const struct level[]){__VA_ARGS__},                      \
    sizeof((const struct level[]){__VA_ARGS__}) / sizeof(struct level)

static void test_levels(void **state)
{
  printf("# PEN_SEED=%llu\n", (unsigned long long)seed());
  for (uint64_t stream = 0; stream < 20; stream++) {
    hold(LEVELS({200, 3e9}), 0.05, 0, stream);
    hold(LEVELS({80, 5e9}, {120, 1.2e9}), 0.05, 0, stream);
    hold(LEVELS({30, 5e9}, {150, 1.5e9}, {150, 0.6e9}), 0.05, 0, stream);
    hold(LEVELS({100, 2e9}, {60, 0.5e9}, {100, 2e9}), 0.05, 0, stream);
    hold(LEVELS({6, 5e9}, {500, 1e9}), 0.01, 0, stream);
    hold(LEVELS({60, 1e9}, {60, 0.85e9}), 0.02, 0, stream);
  }
}

static void test_lone_slow_windows_are_no_level(void **state)
{
  for (uint64_t stream = 0; stream < 20; stream++) {
    hold(LEVELS({300, 3e9}), 0.02, 4, stream);
    hold(LEVELS({300, 3e9}), 0.05, 17, stream);
    hold(LEVELS({100, 5e9}, {200, 1e9}), 0.05, 23, stream);
  }
}

static void test_what_hardly_differs_is_one_level(void **state)
{
  hold(LEVELS({100, 1e9}), 0, 0, 0);
  size_t n = make(LEVELS({100, 1e9}, {100, 0.95e9}), 0.001, 0, 0);
  assert_int_equal(pen_plateau_find(rates, n, found), 1);
}

static void test_short_series(void **state)
{
  assert_int_equal(pen_plateau_find(rates, 0, found), 0);
  for (size_t n = 1; n < 10; n++) {
    make(LEVELS({10, 2e9}), 0.02, 0, n);
    assert_int_equal(pen_plateau_find(rates, n, found), 1);
    assert_int_equal(found[0].begin, 0);
    assert_int_equal(found[0].end, n);
  }
}

/* A decline is stairs downwards, within the series. */
static void test_a_decline_goes_down(void **state)
{
  size_t n = 400;
  for (size_t i = 0; i < n; i++)
    rates[i] = 5e9 - 1e7 * (double)i;
  size_t got = pen_plateau_find(rates, n, found);
  assert_true(got >= 2 && got <= PEN_PLATEAUS_MAX);
  for (size_t i = 1; i < got; i++)
    assert_true(found[i].rate < found[i - 1].rate);
  assert_int_equal(found[got - 1].end, n);
}

/* Up and down all the time: as many levels as fit, and all windows in them. */
static void test_more_levels_than_fit(void **state)
{
  for (size_t i = 0; i < PEN_PLATEAU_WINDOWS_MAX; i++)
    rates[i] = i / 8 % 2 ? 1e9 : 4e9;
  size_t got = pen_plateau_find(rates, PEN_PLATEAU_WINDOWS_MAX, found);
  assert_int_equal(got, PEN_PLATEAUS_MAX);
  assert_int_equal(found[got - 1].end, PEN_PLATEAU_WINDOWS_MAX);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_levels),
    cmocka_unit_test(test_lone_slow_windows_are_no_level),
    cmocka_unit_test(test_what_hardly_differs_is_one_level),
    cmocka_unit_test(test_short_series),
    cmocka_unit_test(test_a_decline_goes_down),
    cmocka_unit_test(test_more_levels_than_fit),
  };
  return cmocka_run_group_tests_name("plateau", tests, NULL, NULL);
}
