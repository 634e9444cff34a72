/* test_adamw.c: AdamW against the formula in double, and the promises of
 * kernels/adamw.h. */
#include "tests/check/level.h"

#include <fenv.h>
#include <math.h>

#include "base/rng.h"
#include "kernels/adamw.h"
#include "kernels/bf16.h"
#include "kernels/fpmode.h"
#include "tests/check/adamw_oracle.h"

#define N 1027 /* no multiple of any vector */
#define STEPS 5

static enum pen_isa level;
static uint64_t seed;

static float normal(uint64_t stream, size_t i)
{
  double pair[2];
  pen_rng_normal_pair(seed, stream, i, pair);
  return (float)pair[0];
}

/* Five steps at learning rate 0.1 and decay 0.5: nothing hides in tininess. */
static void run_against_oracle(double eps, bool decays, bool bf16_grad)
{
  const struct pen_adamw_hyper h = {0.1, 0.9, 0.95, eps, 0.5};
  const float factor = 0.375f; /* exact, and so are its products with bf16 */
  static float p[N], m[N], v[N], grad[N];
  static uint16_t grad_half[N], weight[N];
  static struct adamw_oracle o[N];
  for (size_t i = 0; i < N; i++) {
    p[i] = normal(0, i);
    m[i] = v[i] = 0;
    o[i] = (struct adamw_oracle){.p = p[i]};
  }
  for (int t = 1; t <= STEPS; t++) {
    struct pen_adamw_params params;
    test_ok(pen_adamw_params_init(&h, (uint64_t)t, factor, &params));
    for (size_t i = 0; i < N; i++) {
      grad_half[i] = pen_bf16_from_f32(normal((uint64_t)t, i));
      grad[i] = pen_bf16_to_f32(grad_half[i]);
      adamw_oracle_step(&o[i], &h, decays, t, (double)(factor * grad[i]));
    }
    if (bf16_grad)
      pen_adamw_update_bf16(level, &params, decays, N, p, m, v, grad_half,
                            weight);
    else
      pen_adamw_update_bf16_f32grad(level, &params, decays, N, p, m, v, grad,
                                    weight);
    for (size_t i = 0; i < N; i++) {
      if (!(fabs(p[i] - o[i].p) <= o[i].p_error) ||
          !(fabs(m[i] - o[i].m) <= o[i].m_error) ||
          !(fabs(v[i] - o[i].v) <= o[i].v_error))
        fail_msg("step %d element %zu: p %.9g, not %.9g +- %.2g; m %.9g, not "
                 "%.9g; v %.9g, not %.9g", t, i, (double)p[i], o[i].p,
                 o[i].p_error, (double)m[i], o[i].m, (double)v[i], o[i].v);
      assert_int_equal(weight[i], pen_bf16_from_f32_away(p[i]));
    }
  }
}

static void follows_the_formula(void **state)
{
  run_against_oracle(1e-8, true, true);
  run_against_oracle(1e-8, false, false);
  run_against_oracle(0.1, true, false); /* eps as large as sqrt(v) */
  run_against_oracle(0.1, false, true);
}

/* Decoupled: the moments never see the decay. */
static void decay_leaves_moments_alone(void **state)
{
  float p[2][N], m[2][N] = {{0}}, v[2][N] = {{0}}, grad[N], weight[N];
  for (int which = 0; which < 2; which++) {
    const struct pen_adamw_hyper h = {0.1, 0.9, 0.95, 1e-8, which * 0.5};
    for (size_t i = 0; i < N; i++)
      p[which][i] = normal(0, i);
    for (uint64_t t = 1; t <= STEPS; t++) {
      struct pen_adamw_params params;
      test_ok(pen_adamw_params_init(&h, t, 1, &params));
      for (size_t i = 0; i < N; i++)
        grad[i] = normal(t, i);
      pen_adamw_update_f32(level, &params, true, N, p[which], m[which],
                           v[which], grad, weight);
      assert_memory_equal(weight, p[which], sizeof weight);
    }
  }
  assert_memory_equal(m[0], m[1], sizeof m[0]);
  assert_memory_equal(v[0], v[1], sizeof v[0]);
  assert_memory_not_equal(p[0], p[1], sizeof p[0]);
}

/* Learning rate 0: every weight keeps its bits, -0 and denormals too. */
static void rate_zero_keeps_weights(void **state)
{
  const struct pen_adamw_hyper h = {0, 0.9, 0.999, 1e-8, 0.5};
  static const uint32_t special[] = {0x80000000, 0, 1, 0x80000001, 0x3f808000};
  struct pen_adamw_params params;
  float p[N], m[N] = {0}, v[N] = {0}, before[N], grad[N];
  uint16_t weight[N];
  for (size_t i = 0; i < N; i++) {
    p[i] = i % 2 ? normal(0, i) : pen_f32_from_bits(special[i / 2 % 5]);
    grad[i] = normal(1, i);
  }
  memcpy(before, p, sizeof p);
  test_ok(pen_adamw_params_init(&h, 1, 1, &params));
  pen_adamw_update_bf16_f32grad(level, &params, true, N, p, m, v, grad, weight);
  assert_memory_equal(p, before, sizeof p);
  for (size_t i = 0; i < N; i++) {
    assert_int_equal(weight[i], pen_bf16_from_f32_away(p[i]));
    assert_true(m[i] != 0 && v[i] > 0);
  }
}

/* Without gradients moments die out at +0 and stay there; no denormals, and
 * the mode the caller is in changes nothing and is left as it was. */
static void moments_die_out(void **state)
{
  const struct pen_adamw_hyper h = {1e-3, 0.9, 0.95, 1e-8, 0};
  struct pen_adamw_params params;
  float p[2][64], m[2][64], v[2][64], weight[64];
  const float grad[64] = {0};
  for (int which = 0; which < 2; which++) {
    uint64_t outer = pen_fpmode_get();
    for (size_t i = 0; i < 64; i++) {
      p[which][i] = 1;
      m[which][i] = (i % 2 ? -1 : 1) * 0x1p-124f;
      v[which][i] = 0x1p-125f;
    }
    for (uint64_t t = 1; t <= 40; t++) {
      test_ok(pen_adamw_params_init(&h, t, 1, &params));
      if (which)
        pen_fpmode_set(PEN_FPMODE_FLUSHING);
      pen_adamw_update_f32(level, &params, true, 64, p[which], m[which],
                           v[which], grad, weight);
      uint64_t left = pen_fpmode_get();
      pen_fpmode_set(outer);
      if (which)
        assert_int_equal(left & PEN_FPMODE_FLUSHING, PEN_FPMODE_FLUSHING);
      for (size_t i = 0; i < 64; i++) {
        assert_int_not_equal(fpclassify(m[which][i]), FP_SUBNORMAL);
        assert_int_not_equal(fpclassify(v[which][i]), FP_SUBNORMAL);
      }
    }
    for (size_t i = 0; i < 64; i++) {
      assert_int_equal(pen_f32_bits(m[which][i]), 0);
      assert_int_equal(pen_f32_bits(v[which][i]), 0);
    }
  }
  assert_memory_equal(p[0], p[1], sizeof p[0]);
}

/* Zeros stay zeros: padding never becomes anything else. */
static void padding_stays_zero(void **state)
{
  const struct pen_adamw_hyper h = {0.1, 0.9, 0.95, 1e-8, 0.5};
  struct pen_adamw_params params;
  float p[N] = {0}, m[N] = {0}, v[N] = {0};
  const float zeros[N] = {0};
  const uint16_t grad[N] = {0};
  uint16_t weight[N];
  for (uint64_t t = 1; t <= STEPS; t++) {
    test_ok(pen_adamw_params_init(&h, t, 0.5f, &params));
    pen_adamw_update_bf16(level, &params, true, N, p, m, v, grad, weight);
  }
  assert_memory_equal(p, zeros, sizeof p);
  assert_memory_equal(m, zeros, sizeof m);
  assert_memory_equal(v, zeros, sizeof v);
  assert_memory_equal(weight, grad, sizeof weight);
}

/* Infinities and NaNs give results, not signals. */
static void nothing_traps(void **state)
{
  const struct pen_adamw_hyper h = {0.1, 0.9, 0.95, 1e-8, 0.5};
  struct pen_adamw_params params;
  float p[N], m[N], v[N], grad[N];
  uint16_t weight[N];
  for (size_t i = 0; i < N; i++) {
    p[i] = normal(0, i);
    m[i] = 1e38f;
    v[i] = i % 3 ? 1e38f : -1;
    grad[i] = i % 2 ? INFINITY : NAN;
  }
  test_ok(pen_adamw_params_init(&h, 3, 1, &params));
  feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
  pen_adamw_update_bf16_f32grad(level, &params, true, N, p, m, v, grad, weight);
  fedisableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
  for (size_t i = 0; i < N; i++)
    if (i % 2 == 0) {
      assert_int_equal(pen_f32_bits(p[i]), PEN_NAN_F32_BITS);
      assert_int_equal(weight[i], PEN_NAN_BF16_BITS);
    }
}

static void constants_at_their_ends(void **state)
{
  const struct pen_adamw_hyper h = {0.25, 0.5, 0.75, 0.5, 0.5};
  struct pen_adamw_params c;
  test_ok(pen_adamw_params_init(&h, 1, 0.125f, &c));
  assert_true(c.factor == 0.125f && c.decay == 0.875f &&
              c.one_minus_beta1 == 0.5f && c.beta2 == 0.75f &&
              c.one_minus_beta2 == 0.25f);
  assert_true(c.step_size == 0.25f && c.eps == 0.25f); /* sqrt(1/4) = 1/2 */
  test_ok(pen_adamw_params_init(&h, UINT64_C(1) << 40, 1, &c));
  assert_true(c.step_size == 0.25f && c.eps == 0.5f);
  test_ok(pen_adamw_params_init(&h, 2, 1, &c));
  assert_true(c.step_size == (float)(0.25 * sqrt(1 - 0.5625) / 0.75));
}

static void bad_constants_are_named(void **state)
{
  const struct pen_adamw_hyper good = {0.1, 0.9, 0.95, 1e-8, 0.5};
  struct pen_adamw_params c;
  struct pen_adamw_hyper h = good;
  h.lr = -1;
  test_fails(pen_adamw_params_init(&h, 1, 1, &c), PEN_EUSAGE, "learning rate");
  h = good;
  h.beta1 = 1;
  test_fails(pen_adamw_params_init(&h, 1, 1, &c), PEN_EUSAGE, "beta1 1");
  h = good;
  h.beta2 = NAN;
  test_fails(pen_adamw_params_init(&h, 1, 1, &c), PEN_EUSAGE, "beta2 nan");
  h = good;
  h.eps = 0;
  test_fails(pen_adamw_params_init(&h, 1, 1, &c), PEN_EUSAGE, "epsilon 0");
  h = good;
  h.weight_decay = 11;
  test_fails(pen_adamw_params_init(&h, 1, 1, &c), PEN_EUSAGE, "decay 11");
  test_fails(pen_adamw_params_init(&good, 0, 1, &c), PEN_EUSAGE, "step 0");
  test_fails(pen_adamw_params_init(&good, 1, INFINITY, &c), PEN_EUSAGE,
             "factor inf");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(follows_the_formula),
    cmocka_unit_test(decay_leaves_moments_alone),
    cmocka_unit_test(rate_zero_keeps_weights),
    cmocka_unit_test(moments_die_out),
    cmocka_unit_test(padding_stays_zero),
    cmocka_unit_test(nothing_traps),
    cmocka_unit_test(constants_at_their_ends),
    cmocka_unit_test(bad_constants_are_named),
  };
  seed = test_seed(1);
  level = test_level();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
