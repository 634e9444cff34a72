/* test_state.c: what the compact state formats promise, at each level: split32
 * is fp32, random rounding is right on average and the same however a range is
 * cut, 8-bit moments are as near as their codes allow, and nothing breaks at the
 * ends of the range. */
#include "tests/check/level.h"

#include <math.h>

#include "base/rng.h"
#include "kernels/bf16.h"
#include "kernels/state.h"

#define GROUP PEN_STATE_GROUP_ELEMS
#define N (21 * GROUP)
#define BYTES_MAX (12 * N)

static enum pen_isa level;
static uint64_t seed;

static const struct pen_state_format *const compact[] = {
  &pen_state_split32, &pen_state_bf16, &pen_state_int8};
#define N_COMPACT (sizeof compact / sizeof *compact)

/* State of N elements in one format. */
struct kept {
  const struct pen_state_format *format;
  _Alignas(64) char arrays[BYTES_MAX];
  uint16_t half[N];
};

static float p[N], m[N], v[N];
static uint16_t grad[N];

static double normal(uint64_t stream, size_t i)
{
  double pair[2];
  pen_rng_normal_pair(seed, stream, i, pair);
  return pair[0];
}

static struct pen_state_part part_of(struct kept *k, size_t begin, size_t n)
{
  return (struct pen_state_part){k->arrays, N, begin, n};
}

static void pack(struct kept *k)
{
  struct pen_state_part part = part_of(k, 0, N);
  pen_state_pack(k->format, level, &part, k->half, p, m, v);
}

static void unpack(struct kept *k)
{
  struct pen_state_part part = part_of(k, 0, N);
  pen_state_unpack(k->format, level, &part, k->half, p, m, v);
}

/* Step t of [begin, begin + n); of fp32, `half` gets the weights. */
static void step(struct kept *k, const struct pen_adamw_hyper *h, uint64_t t,
                 size_t begin, size_t n)
{
  struct pen_adamw_params params;
  test_ok(pen_adamw_params_init(h, t, 0.5f, &params));
  size_t decay_begin = 100, decay_end = N - 70; /* inside groups */
  size_t from = decay_begin > begin ? decay_begin : begin;
  size_t to = decay_end < begin + n ? decay_end : begin + n;
  from = from > begin + n ? begin + n : from;
  to = to < from ? from : to;
  struct pen_state_update u = {.isa = level,
                               .params = &params,
                               .part = part_of(k, begin, n),
                               .decay_begin = from - begin,
                               .decay_end = to - begin,
                               .key = pen_rng_u64(seed, t, 7),
                               .first = 5 * GROUP + begin,
                               .elem = PEN_ELEM_BF16,
                               .grad = grad + begin,
                               .weight = k->half + begin};
  pen_state_update(k->format, &u);
}

static void draw_grad(uint64_t t)
{
  for (size_t i = 0; i < N; i++)
    grad[i] = pen_bf16_from_f32(
        (float)(normal(t, i) * pow(10, -(double)(i % 7))));
}

static void start(struct kept *k, const struct pen_state_format *format)
{
  for (size_t i = 0; i < N; i++) {
    p[i] = (float)normal(1000, i);
    m[i] = v[i] = 0;
  }
  *k = (struct kept){.format = format};
  pack(k);
}

static const struct pen_adamw_hyper strong = {0.1, 0.9, 0.95, 1e-8, 0.5};

/* 30 steps with decay that begins and ends inside groups. */
static void split32_is_fp32(void **state)
{
  static struct kept a, b;
  float other[3][N];
  start(&a, &pen_state_fp32);
  start(&b, &pen_state_split32);
  for (uint64_t t = 1; t <= 30; t++) {
    draw_grad(t);
    step(&a, &strong, t, 0, N);
    step(&b, &strong, t, 0, N);
    assert_memory_equal(a.half, b.half, sizeof a.half);
  }
  unpack(&a);
  memcpy(other[0], p, sizeof p);
  memcpy(other[1], m, sizeof m);
  memcpy(other[2], v, sizeof v);
  unpack(&b);
  assert_memory_equal(other[0], p, sizeof p);
  assert_memory_equal(other[1], m, sizeof m);
  assert_memory_equal(other[2], v, sizeof v);
}

static void cuts_change_nothing(void **state)
{
  static struct kept whole, cut;
  for (size_t f = 0; f < N_COMPACT; f++) {
    start(&whole, compact[f]);
    start(&cut, compact[f]);
    for (uint64_t t = 1; t <= 5; t++) {
      draw_grad(t);
      step(&whole, &strong, t, 0, N);
      for (size_t at = 0, n; at < N; at += n) {
        n = (1 + pen_rng_below(seed, t, at, 5)) * GROUP;
        n = n < N - at ? n : N - at;
        step(&cut, &strong, t, at, n);
      }
      assert_memory_equal(whole.arrays, cut.arrays, sizeof whole.arrays);
      assert_memory_equal(whole.half, cut.half, sizeof whole.half);
    }
  }
}

/* State that training left goes to fp32 and back without a changed bit: it may
 * be moved, saved and loaded by anyone. */
static void packing_keeps_what_was_unpacked(void **state)
{
  static struct kept k, again;
  for (size_t f = 0; f < N_COMPACT; f++) {
    start(&k, compact[f]);
    for (uint64_t t = 1; t <= 40; t++) {
      draw_grad(t);
      step(&k, &strong, t, 0, N);
      unpack(&k);
      again = (struct kept){.format = compact[f]};
      pack(&again);
      assert_memory_equal(k.arrays, again.arrays, sizeof k.arrays);
      assert_memory_equal(k.half, again.half, sizeof k.half);
    }
  }
}

/* The master is the weight and more bits of it, to nearest with ties away. */
static void weights_are_rounded_masters(void **state)
{
  static struct kept k;
  for (size_t f = 0; f < N_COMPACT; f++) {
    start(&k, compact[f]);
    for (uint64_t t = 1; t <= 10; t++) {
      draw_grad(t);
      step(&k, &strong, t, 0, N);
      unpack(&k);
      for (size_t i = 0; i < N; i++)
        assert_int_equal(k.half[i], pen_bf16_from_f32_away(p[i]));
    }
  }
}

/* Learning rate 0 and no decay: masters keep their bits, also the 24 of int8. */
static void rate_zero_keeps_masters(void **state)
{
  const struct pen_adamw_hyper h = {0, 0.9, 0.999, 1e-8, 0};
  static struct kept k;
  float before[N];
  for (size_t f = 0; f < N_COMPACT; f++) {
    start(&k, compact[f]);
    unpack(&k);
    memcpy(before, p, sizeof p);
    for (uint64_t t = 1; t <= 5; t++) {
      draw_grad(t);
      step(&k, &h, t, 0, N);
    }
    unpack(&k);
    assert_memory_equal(before, p, sizeof p);
  }
}

/* ---- random rounding ---- */

/* Mean error of one step's results in units of their distance to the next
 * number, over elements that all have the same exact result, and which share of
 * them was rounded up.  64 * 21 draws of each of many keys. */
static void rounding_is_right_on_average(void **state)
{
  const struct pen_adamw_hyper h = {1e-3, 0.9, 0.999, 1e-8, 0};
  static struct kept k, exact;
  for (size_t f = 1; f < N_COMPACT; f++) {
    double error[2] = {0, 0}, square[2] = {0, 0}, n = 0;
    for (uint64_t trial = 1; trial <= 60; trial++) {
      start(&k, compact[f]);
      for (size_t i = 0; i < N; i++) { /* the groups' largest stay the same */
        m[i] = i % GROUP ? 0.3f : 1;
        v[i] = i % GROUP ? 0.02f : 1;
        grad[i] = pen_bf16_from_f32(i % GROUP ? 0.8f : 2);
      }
      pack(&k);
      unpack(&k);
      exact = (struct kept){.format = &pen_state_fp32};
      pack(&exact);
      step(&exact, &h, trial, 0, N);
      step(&k, &h, trial, 0, N);
      float want[2];
      unpack(&exact);
      want[0] = m[1];
      want[1] = v[1];
      unpack(&k);
      for (size_t i = 0; i < N; i++) {
        if (i % GROUP == 0)
          continue;
        double e[2] = {m[i] - (double)want[0], v[i] - (double)want[1]};
        for (int j = 0; j < 2; j++) {
          error[j] += e[j];
          square[j] += e[j] * e[j];
        }
        n++;
      }
    }
    for (int j = 0; j < 2; j++) {
      double mean = error[j] / n, deviation = sqrt(square[j] / n);
      assert_true(deviation > 0);
      if (!(fabs(mean) <= 4.5 * deviation / sqrt(n)))
        fail_msg("%s: moment %d is off by %g on average, its spread is %g over "
                 "%g draws", compact[f]->name, j + 1, mean, deviation, n);
    }
  }
}

/* A second moment that drifts by a thousandth a step: nearest would stand. */
static void small_changes_add_up(void **state)
{
  const struct pen_adamw_hyper h = {0, 0.9, 0.999, 1e-8, 0};
  static struct kept k;
  for (size_t f = 1; f < N_COMPACT; f++) {
    double mean = 0;
    start(&k, compact[f]);
    for (size_t i = 0; i < N; i++) {
      m[i] = 0;
      v[i] = i % GROUP ? 0.25f : 1;
      grad[i] = pen_bf16_from_f32(i % GROUP ? 0 : 2);
    }
    pack(&k);
    for (uint64_t t = 1; t <= 500; t++)
      step(&k, &h, t, 0, N);
    unpack(&k);
    for (size_t i = 0; i < N; i++)
      mean += i % GROUP ? v[i] : 0;
    mean /= (double)(N - N / GROUP);
    double want = 0.25 * pow(0.999, 500); /* 0.152, seen to 2 % */
    if (fabs(mean / want - 1) > 0.03)
      fail_msg("%s: %g after 500 steps, not %g", compact[f]->name, mean, want);
  }
}

/* ---- 8 bits ---- */

/* Packing errs by half the distance of two codes at most. */
static void codes_are_near(void **state)
{
  static struct kept k;
  float was_m[N], was_v[N];
  start(&k, &pen_state_int8);
  for (size_t i = 0; i < N; i++) {
    was_m[i] = m[i] = (float)(normal(3, i) * pow(10, -3 * (double)(i % 5) / 4));
    was_v[i] = v[i] = (float)(pow(normal(4, i), 2) * pow(10, -(double)(i % 7)));
  }
  pack(&k);
  unpack(&k);
  for (size_t at = 0; at < N; at += GROUP) {
    double m_most = 0, v_most = 0;
    for (size_t i = at; i < at + GROUP; i++) {
      m_most = fmax(m_most, fabs(was_m[i]));
      v_most = fmax(v_most, was_v[i]);
    }
    for (size_t i = at; i < at + GROUP; i++) {
      double km = 127 * sqrt(fabs(was_m[i]) / m_most);
      double kv = 255 * pow(was_v[i] / v_most, 0.25);
      double m_far = m_most * (2 * km + 1) / (2 * 127. * 127) * 1.001;
      double v_far = v_most * (pow(floor(kv) + 1, 4) - pow(floor(kv), 4)) /
                     2 / pow(255, 4) * 1.001;
      if (kv < 1) /* never 0 */
        v_far = v_most / pow(255, 4);
      assert_true(fabs(m[i] - was_m[i]) <= m_far);
      assert_true(fabs(v[i] - was_v[i]) <= v_far);
      assert_true((v[i] > 0) == (was_v[i] > 0));
      assert_true(m[i] == 0 || (m[i] < 0) == (was_m[i] < 0));
      if (fabs(was_m[i]) == m_most)
        assert_true(m[i] == was_m[i]);
      if (was_v[i] == v_most)
        assert_true(v[i] == was_v[i]);
    }
  }
}

/* Moments of any size, and none, stay numbers that are not denormal.  (Masters are
 * AdamW's: a first moment of 1e30 beside a second one of 0 takes one away.) */
static void extremes_stay_numbers(void **state)
{
  static const float sizes[] = {0, 1e-45f, 1e-38f, 1e-30f, 1e-20f, 1, 1e20f,
                                1e30f, 3.4e38f, INFINITY, NAN};
  static struct kept k;
  for (size_t a = 0; a < sizeof sizes / sizeof *sizes; a++)
    for (size_t b = 0; b < sizeof sizes / sizeof *sizes; b++) {
      start(&k, &pen_state_int8);
      for (size_t i = 0; i < N; i++) {
        m[i] = i % 3 ? sizes[a] : -sizes[b];
        v[i] = i % 5 ? sizes[a] : sizes[b];
        grad[i] = pen_bf16_from_f32(i % 2 ? sizes[a] < 1e30f ? sizes[a] : 1
                                          : 1e-3f);
      }
      pack(&k);
      for (uint64_t t = 1; t <= 3; t++)
        step(&k, &strong, t, 0, N);
      unpack(&k);
      for (size_t i = 0; i < N; i++)
        if (!isfinite(m[i]) || !isfinite(v[i]) ||
            fpclassify(m[i]) == FP_SUBNORMAL ||
            fpclassify(v[i]) == FP_SUBNORMAL)
          fail_msg("moments %g and %g became m %g, v %g", (double)sizes[a],
                   (double)sizes[b], (double)m[i], (double)v[i]);
    }
}

/* One huge gradient in a group: the others move by no more than a few rates. */
static void an_outlier_hurts_nobody(void **state)
{
  const struct pen_adamw_hyper h = {1e-2, 0.9, 0.999, 1e-8, 0};
  static struct kept k;
  float before[N];
  start(&k, &pen_state_int8);
  for (uint64_t t = 1; t <= 50; t++) {
    unpack(&k);
    memcpy(before, p, sizeof p);
    for (size_t i = 0; i < N; i++)
      grad[i] = pen_bf16_from_f32(t == 20 && i % GROUP == 9
                                      ? 1e4f
                                      : (float)(1e-4 * normal(t, i)));
    step(&k, &h, t, 0, N);
    unpack(&k);
    for (size_t i = 0; i < N; i++)
      if (fabsf(p[i] - before[i]) > 11e-2f)
        fail_msg("step %d moved element %zu by %g", (int)t, i,
                 (double)fabsf(p[i] - before[i]));
  }
}

static void padding_stays_zero(void **state)
{
  static struct kept k;
  const float zeros[N] = {0};
  const uint16_t halves[N] = {0};
  for (size_t f = 0; f < N_COMPACT; f++) {
    k = (struct kept){.format = compact[f]};
    memset(grad, 0, sizeof grad);
    for (uint64_t t = 1; t <= 5; t++)
      step(&k, &strong, t, 0, N);
    unpack(&k);
    assert_memory_equal(p, zeros, sizeof p);
    assert_memory_equal(m, zeros, sizeof m);
    assert_memory_equal(v, zeros, sizeof v);
    assert_memory_equal(k.half, halves, sizeof halves);
  }
}

static void the_table(void **state)
{
  const struct pen_state_format *format = NULL;
  static const struct {
    const char *name;
    double bytes; /* beside the half */
  } rows[] = {{"fp32", 12}, {"split32", 10}, {"bf16", 6}, {"int8", 3.125}};
  for (size_t i = 0; i < 4; i++) {
    test_ok(pen_state_find(rows[i].name, &format));
    assert_true(pen_state_numbered(i) == format);
    assert_int_equal(pen_state_number(format), i);
    assert_true((double)pen_state_bytes(format, N) == rows[i].bytes * N);
    assert_int_equal(pen_state_half_bytes(format, N), i ? 2 * N : 0);
  }
  assert_null(pen_state_numbered(4));
  test_fails(pen_state_find("fp8", &format), PEN_EUSAGE,
             "fp32, split32, bf16, int8");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(split32_is_fp32),
    cmocka_unit_test(cuts_change_nothing),
    cmocka_unit_test(packing_keeps_what_was_unpacked),
    cmocka_unit_test(weights_are_rounded_masters),
    cmocka_unit_test(rate_zero_keeps_masters),
    cmocka_unit_test(rounding_is_right_on_average),
    cmocka_unit_test(small_changes_add_up),
    cmocka_unit_test(codes_are_near),
    cmocka_unit_test(extremes_stay_numbers),
    cmocka_unit_test(an_outlier_hurts_nobody),
    cmocka_unit_test(padding_stays_zero),
    cmocka_unit_test(the_table),
  };
  seed = test_seed(1);
  level = test_level();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
