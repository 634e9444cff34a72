/* Rotary tables far out, and the scalings at their corners. */
#include "src/model/rope.h"

#include <math.h>

#include "tests/test.h"

/* D10: at position 100,000 every angle is right to 1e-6: cos and sin are within
 * 1e-6 of long double, which a rounded frequency (6e-8 of 1e5 radians) would
 * miss by 6e-3. */
static void test_far_position(void **state)
{
  enum { HEAD_DIM = 16, HALF = HEAD_DIM / 2, N = 100001 };
  struct pen_rope_config rope = {.type = PEN_ROPE_DEFAULT, .theta = 500000,
                                 .dim = HEAD_DIM, .attention_factor = 1};
  float *c = malloc((size_t)N * HALF * sizeof *c);
  float *s = malloc((size_t)N * HALF * sizeof *s);
  pen_rope_fill(&rope, N, c, s);
  for (size_t i = 0; i < HALF; i++) {
    long double angle =
        100000 * powl(500000, -2 * (long double)i / HEAD_DIM);
    size_t at = (size_t)(N - 1) * HALF + i;
    assert_true(fabsl(c[at] - cosl(angle)) < 1e-6L);
    assert_true(fabsl(s[at] - sinl(angle)) < 1e-6L);
  }
  free(c);
  free(s);
}

static void assert_frequency(const struct pen_rope_config *rope, size_t i,
                             double want)
{
  double got = pen_rope_frequency(rope, false, i);
  if (!(fabs(got / want - 1) < 1e-12))
    fail_msg("pair %zu: %.17g, not %.17g", i, got, want);
}

static double plain(double theta, size_t i)
{
  return pow(theta, -2.0 * (double)i / 128);
}

static void test_linear_and_dynamic(void **state)
{
  struct pen_rope_config rope = {.type = PEN_ROPE_LINEAR, .dim = 128,
                                 .theta = 10000, .factor = 4, .attention_factor = 1};
  assert_frequency(&rope, 5, plain(10000, 5) / 4);
  rope.type = PEN_ROPE_DYNAMIC; /* up to the trained length */
  assert_frequency(&rope, 5, plain(10000, 5));
}

/* Llama 3.1's numbers: wavelengths below 2048 are kept, above 8192 divided by
 * 8, and between blended. */
static void test_llama3(void **state)
{
  struct pen_rope_config rope = {
      .type = PEN_ROPE_LLAMA3, .dim = 128, .theta = 500000, .factor = 8,
      .low_freq_factor = 1, .high_freq_factor = 4,
      .original_max_positions = 8192, .attention_factor = 1};
  const double two_pi = 6.283185307179586;
  size_t n_kept = 0, n_blended = 0, n_divided = 0;
  for (size_t i = 0; i < 64; i++) {
    double f = plain(500000, i), wavelength = two_pi / f;
    if (wavelength < 2048) {
      assert_frequency(&rope, i, f);
      n_kept++;
    } else if (wavelength > 8192) {
      assert_frequency(&rope, i, f / 8);
      n_divided++;
    } else {
      double smooth = (8192 / wavelength - 1) / 3;
      assert_frequency(&rope, i, f * (smooth + (1 - smooth) / 8));
      n_blended++;
    }
  }
  assert_true(n_kept && n_blended && n_divided);
}

/* Ramp between the dimensions that turn 32 times and once over 4096. */
static void test_yarn(void **state)
{
  struct pen_rope_config rope = {
      .type = PEN_ROPE_YARN, .dim = 128, .theta = 10000, .factor = 16,
      .beta_fast = 32, .beta_slow = 1, .original_max_positions = 4096, .attention_factor = 1,
      .truncate = true};
  double scale = 128 / (2 * log(10000)), two_pi = 6.283185307179586;
  double low = floor(scale * log(4096 / (32 * two_pi)));
  double high = ceil(scale * log(4096 / two_pi));
  assert_true(low > 0 && high < 64);
  for (size_t i = 0; i < 64; i++) {
    double f = plain(10000, i);
    double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
    assert_frequency(&rope, i, f * (1 - ramp) + f / 16 * ramp);
  }
}

/* Sequences longer than the original positions turn by the other list; their
 * rows follow those of the short ones. */
static void test_longrope(void **state)
{
  struct pen_rope_config rope = {
      .type = PEN_ROPE_LONGROPE, .dim = 4, .theta = 100, .attention_factor = 2,
      .original_max_positions = 8, .short_factors = {1, 4},
      .long_factors = {2, 16}};
  assert_int_equal(pen_rope_rows(&rope, 8), 8);
  assert_int_equal(pen_rope_first_row(&rope, 8, 8), 0);
  assert_int_equal(pen_rope_rows(&rope, 12), 24);
  assert_int_equal(pen_rope_first_row(&rope, 12, 8), 0);
  assert_int_equal(pen_rope_first_row(&rope, 12, 9), 12);
  float c[48], s[48];
  pen_rope_fill(&rope, 12, c, s);
  for (size_t p = 0; p < 12; p++)
    for (size_t i = 0; i < 2; i++) {
      double plain = (double)p * (i ? 0.1 : 1);
      double is_short = plain / (i ? 4 : 1), is_long = plain / (i ? 16 : 2);
      assert_true(fabs((double)c[2 * p + i] - 2 * cos(is_short)) < 1e-6);
      assert_true(fabs((double)s[2 * (12 + p) + i] - 2 * sin(is_long)) < 1e-6);
    }
}

static void test_attention_factor(void **state)
{
  float c[4], s[4];
  struct pen_rope_config rope = {.type = PEN_ROPE_DEFAULT, .dim = 4,
                                 .theta = 10000, .attention_factor = 1.25};
  pen_rope_fill(&rope, 2, c, s);
  assert_true(c[0] == 1.25f && s[0] == 0);
  assert_true(fabs((double)c[2] - 1.25 * cos(1)) < 1e-7);
  assert_true(fabs((double)s[2] - 1.25 * sin(1)) < 1e-7);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_far_position),
      cmocka_unit_test(test_linear_and_dynamic),
      cmocka_unit_test(test_llama3),
      cmocka_unit_test(test_yarn),
      cmocka_unit_test(test_longrope),
      cmocka_unit_test(test_attention_factor),
  };
  return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}
