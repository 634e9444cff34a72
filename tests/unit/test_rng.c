/* Philox against the known answers published with Random123 (kat_vectors),
 * and the distributions made from it. */
#include "base/rng.h"

#include <math.h>

#include "tests/test.h"

static void test_known_answers(void **state)
{
  static const struct {
    uint32_t counter[4], key[2], bits[4];
  } known[] = {
    { { 0, 0, 0, 0 }, { 0, 0 },
      { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
    { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
      { 0xffffffff, 0xffffffff },
      { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
    { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
      { 0xa4093822, 0x299f31d0 },
      { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    uint32_t bits[4];
    pen_rng_philox(known[i].counter, known[i].key, bits);
    assert_memory_equal(bits, known[i].bits, sizeof bits);
  }
  /* which word of seed, stream and index goes where is part of every run */
  assert_int_equal(pen_rng_u32(0x299f31d0a4093822u, 0x0370734413198a2eu,
                               0x85a308d3243f6a88u), 0xd16cfe09);
  assert_true(pen_rng_u64(0, 0, 0) == 0xe169c58d6627e8d5u);
}

static void test_uniform(void **state)
{
  uint64_t seed = test_seed(7);
  enum { N = 100000 };
  double sum = 0, squares = 0;
  uint64_t counts[10] = { 0 };
  for (uint64_t i = 0; i < N; i++) {
    double x = pen_rng_double(seed, 3, i);
    assert_true(x >= 0 && x < 1);
    sum += x;
    squares += x * x;
    uint64_t below = pen_rng_below(seed, 4, i, 10);
    assert_true(below < 10);
    counts[below]++;
  }
  /* six standard errors: 1/sqrt(12 N) for the mean, sqrt(4/45/N) for x^2 */
  assert_true(fabs(sum / N - 0.5) < 6 / sqrt(12.0 * N));
  assert_true(fabs(squares / N - 1 / 3.0) < 6 * sqrt(4.0 / 45 / N));
  for (int i = 0; i < 10; i++)
    assert_true(fabs((double)counts[i] - N / 10.0) < 6 * sqrt(N * 0.09));
  assert_int_equal(pen_rng_below(seed, 4, 0, 1), 0);
}

static void test_normal(void **state)
{
  uint64_t seed = test_seed(7);
  enum { N = 100000 };
  double sum = 0, squares = 0, fourth = 0, products = 0;
  for (uint64_t i = 0; i < N / 2; i++) {
    double x[2];
    pen_rng_normal_pair(seed, 5, i, x);
    for (int j = 0; j < 2; j++) {
      sum += x[j];
      squares += x[j] * x[j];
      fourth += x[j] * x[j] * x[j] * x[j];
    }
    products += x[0] * x[1];
  }
  /* six standard errors; variances of x, x^2, x^4, xy are 1, 2, 96, 1 */
  assert_true(fabs(sum / N) < 6 / sqrt(N));
  assert_true(fabs(squares / N - 1) < 6 * sqrt(2.0 / N));
  assert_true(fabs(fourth / N - 3) < 6 * sqrt(96.0 / N));
  assert_true(fabs(products / (N / 2)) < 6 / sqrt(N / 2));
}

static void test_streams_differ(void **state)
{
  assert_true(pen_rng_u64(1, 2, 3) != pen_rng_u64(1, 3, 2));
  assert_true(pen_rng_u64(1, 2, 3) != pen_rng_u64(2, 2, 3));
  assert_true(pen_rng_u64(1, 2, 3) == pen_rng_u64(1, 2, 3));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_known_answers),
    cmocka_unit_test(test_uniform),
    cmocka_unit_test(test_normal),
    cmocka_unit_test(test_streams_differ),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
