/* Drawing a token: shares of many draws against the distribution worked out by
 * hand; what top-k and top-p leave out is never drawn. */
#include <math.h>

#include "src/train/sample.h"
#include "tests/test.h"

#define N 6
#define DRAWS 20000

/* Of these the softmax is 1/32, 1/2, 1/8, 1/4, 1/16, 1/32. */
static const float logits[N] = {-3.4657359f, -0.6931472f, -2.0794415f,
                                -1.3862944f, -2.7725887f, -3.4657359f};

static void shares(const struct pen_sampling *how, double share[N])
{
  struct pen_sample_choice choices[N];
  size_t count[N] = {0};
  for (uint64_t place = 0; place < DRAWS; place++)
    count[pen_sample(how, logits, N, place, choices)]++;
  for (size_t i = 0; i < N; i++)
    share[i] = (double)count[i] / DRAWS;
}

/* Six standard deviations of a share p of that many draws. */
static void assert_shares(const struct pen_sampling *how, const double want[N])
{
  double got[N];
  shares(how, got);
  for (size_t i = 0; i < N; i++) {
    double bound = 6 * sqrt(want[i] * (1 - want[i]) / DRAWS);
    if (!(fabs(got[i] - want[i]) <= bound))
      fail_msg("token %zu was drawn with share %g, not %g", i, got[i], want[i]);
  }
}

static void test_greedy(void **state)
{
  const float equal[] = {1, 3, 2, 3};
  struct pen_sampling how = {.greedy = true, .top_p = 1};
  assert_int_equal(pen_sample(&how, logits, N, 7, NULL), 1);
  assert_int_equal(pen_sample(&how, equal, 4, 7, NULL), 1);
}

static void test_temperature(void **state)
{
  struct pen_sampling how = {.temperature = 1, .top_p = 1, .seed = 5};
  assert_shares(&how, (const double[N]){1. / 32, .5, .125, .25, .0625, 1. / 32});
  how.temperature = .5; /* squares of the shares, over their sum */
  double s = 1. / 512 + .25 + 1. / 64 + .0625 + 1. / 256;
  assert_shares(&how, (const double[N]){1. / 1024 / s, .25 / s, 1. / 64 / s,
                                        .0625 / s, 1. / 256 / s, 1. / 1024 / s});
}

static void test_top_k(void **state)
{
  struct pen_sampling how = {.temperature = 1, .top_p = 1, .top_k = 2,
                             .seed = 5};
  assert_shares(&how, (const double[N]){0, 2. / 3, 0, 1. / 3, 0, 0});
  how.top_k = 1;
  assert_shares(&how, (const double[N]){0, 1, 0, 0, 0, 0});
  how.top_k = 5; /* the fifth and the sixth are equal */
  assert_shares(&how, (const double[N]){1. / 32, .5, .125, .25, .0625, 1. / 32});
  how.top_k = 100;
  assert_shares(&how, (const double[N]){1. / 32, .5, .125, .25, .0625, 1. / 32});
}

static void test_top_p(void **state)
{
  struct pen_sampling how = {.temperature = 1, .top_p = .6, .seed = 5};
  assert_shares(&how, (const double[N]){0, 2. / 3, 0, 1. / 3, 0, 0});
  how.top_p = .9;
  assert_shares(&how, (const double[N]){0, 8. / 15, 2. / 15, 4. / 15, 1. / 15, 0});
  how.top_p = 0; /* one always remains */
  assert_shares(&how, (const double[N]){0, 1, 0, 0, 0, 0});
  how.top_p = .7; /* of the two that top_k leaves, the first has 2/3 */
  how.top_k = 2;
  assert_shares(&how, (const double[N]){0, 2. / 3, 0, 1. / 3, 0, 0});
  how.top_p = .6;
  assert_shares(&how, (const double[N]){0, 1, 0, 0, 0, 0});
}

/* The same place and seed give the same token; another seed others. */
static void test_repeated(void **state)
{
  struct pen_sample_choice choices[N];
  struct pen_sampling a = {.temperature = 1, .top_p = .9, .seed = 1};
  struct pen_sampling b = a;
  size_t differ = 0;
  b.seed = 2;
  for (uint64_t place = 0; place < 100; place++) {
    uint32_t id = pen_sample(&a, logits, N, place, choices);
    assert_int_equal(id, pen_sample(&a, logits, N, place, choices));
    differ += id != pen_sample(&b, logits, N, place, choices);
  }
  assert_in_range(differ, 20, 90);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_greedy), cmocka_unit_test(test_temperature),
      cmocka_unit_test(test_top_k),  cmocka_unit_test(test_top_p),
      cmocka_unit_test(test_repeated),
  };
  return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
