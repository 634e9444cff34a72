/* The data order: a bijection for every n, the same from any step on, short
 * last windows kept (cases D5, E10). */
#include "tests/data/test.h"
#include "tests/data/token_writer.h"

#include <stdlib.h>

#include "src/data/order.h"

static void permutation_is_bijection(uint64_t seed, uint64_t epoch, uint64_t n)
{
  uint8_t *seen = calloc(1, n);

  for (uint64_t i = 0; i < n; i++) {
    uint64_t x = pen_order_permute(seed, epoch, n, i);
    if (x >= n || seen[x])
      fail_msg("seed %llu epoch %llu n %llu: place %llu gives %llu, %s",
               (unsigned long long)seed, (unsigned long long)epoch, (unsigned long long)n,
               (unsigned long long)i, (unsigned long long)x,
               x >= n ? "out of range" : "a second time");
    seen[x] = 1;
  }
  free(seen);
}

static void bijection_for_many_n(void **state)
{
  uint64_t random = data_seed();

  for (uint64_t n = 1; n <= 300; n++)
    for (uint64_t epoch = 0; epoch < 3; epoch++)
      permutation_is_bijection(test_random(&random), epoch, n);
  for (uint64_t n = 65535; n <= 65537; n++)
    permutation_is_bijection(test_random(&random), 7, n);
  permutation_is_bijection(1, 0, 100003);
}

/* Far beyond memory only a sample can be checked: in range and distinct. */
static void range_for_huge_n(void **state)
{
  const uint64_t sizes[] = { UINT64_C(1) << 40, (UINT64_C(1) << 63) + 12345, UINT64_MAX };

  for (size_t k = 0; k < 3; k++) {
    uint64_t last = pen_order_permute(5, 0, sizes[k], 0);
    for (uint64_t i = 1; i < 200; i++) {
      uint64_t x = pen_order_permute(5, 0, sizes[k], sizes[k] - i);
      assert_true(x < sizes[k]);
      assert_true(x != last);
      last = x;
    }
  }
}

/* Every one of the 6 orders of 3, about equally often: a bound at 6 sigma of
 * a binomial with p = 1/6 over 6000 epochs (mean 1000, sigma 28.9). */
static void orders_of_three_are_fair(void **state)
{
  unsigned counts[27] = { 0 };

  for (uint64_t epoch = 0; epoch < 6000; epoch++)
    counts[pen_order_permute(11, epoch, 3, 0) * 9 + pen_order_permute(11, epoch, 3, 1) * 3 +
           pen_order_permute(11, epoch, 3, 2)]++;
  const unsigned orders[] = { 0 * 9 + 1 * 3 + 2, 0 * 9 + 2 * 3 + 1, 1 * 9 + 0 * 3 + 2,
                              1 * 9 + 2 * 3 + 0, 2 * 9 + 0 * 3 + 1, 2 * 9 + 1 * 3 + 0 };
  for (size_t i = 0; i < 6; i++)
    assert_in_range(counts[orders[i]], 1000 - 173, 1000 + 173);
}

/* Where place 0 goes over 64,000 epochs of 64: chi-square with 63 degrees of
 * freedom exceeds 130 with a chance below 1e-6. */
static void first_place_is_uniform(void **state)
{
  unsigned counts[64] = { 0 };
  double chi = 0;

  for (uint64_t epoch = 0; epoch < 64000; epoch++)
    counts[pen_order_permute(3, epoch, 64, 0)]++;
  for (size_t i = 0; i < 64; i++)
    chi += (counts[i] - 1000.0) * (counts[i] - 1000.0) / 1000.0;
  assert_true(chi < 130);
}

static void order_depends_on_seed_and_epoch(void **state)
{
  unsigned same_epoch = 0, same_seed = 0;

  for (uint64_t i = 0; i < 1000; i++) {
    same_epoch += pen_order_permute(1, 0, 1000, i) == pen_order_permute(2, 0, 1000, i);
    same_seed += pen_order_permute(1, 0, 1000, i) == pen_order_permute(1, 1, 1000, i);
  }
  /* one fixed point is expected; 20 has a chance of about 1/20! */
  assert_true(same_epoch < 20);
  assert_true(same_seed < 20);
}

/* These numbers are what runs that are already on disk were trained with. */
static void order_never_changes(void **state)
{
  const uint64_t expected[] = { 3, 6, 9, 8, 2, 7, 0, 1, 5, 4 };

  for (uint64_t i = 0; i < sizeof expected / sizeof *expected; i++)
    assert_int_equal(pen_order_permute(42, 1, 10, i), expected[i]);
}

/* D5: 10 batches, window 4: 3 updates, the last of 2 micro-batches. */
static void last_window_is_short_and_kept(void **state)
{
  struct pen_order order = { .seed = 1, .n_sequences = 10, .batch_sequences = 1,
                             .accumulation = 4, .shuffle = true };
  struct pen_order_step step;

  assert_int_equal(pen_order_epoch_steps(&order), 3);
  pen_order_step(&order, 2, &step);
  assert_int_equal(step.epoch, 0);
  assert_int_equal(step.n_micro, 2);
  assert_int_equal(step.n_sequences, 2);
  pen_order_step(&order, 3, &step);
  assert_int_equal(step.epoch, 1);
  assert_int_equal(step.step_in_epoch, 0);
  assert_int_equal(step.n_micro, 4);
}

/* The ids of steps begin .. end-1, in order, into ret_ids; returns how many. */
static size_t stream(const struct pen_order *order, uint64_t begin, uint64_t end,
                     uint64_t *ret_ids)
{
  size_t n = 0;

  for (uint64_t s = begin; s < end; s++) {
    struct pen_order_step step;
    size_t n_step = 0;
    pen_order_step(order, s, &step);
    for (uint64_t m = 0; m < step.n_micro; m++) {
      size_t k = pen_order_micro(order, &step, m, ret_ids + n);
      assert_in_range(k, 1, order->batch_sequences);
      n_step += k;
      n += k;
    }
    assert_int_equal(n_step, step.n_sequences);
  }
  return n;
}

/* E10: the stream resumed at any step is the straight stream's rest, and each
 * epoch has every sequence once. */
static void resumed_stream_is_straight_stream(void **state)
{
  for (uint64_t n = 1; n <= 23; n++)
    for (uint64_t batch = 1; batch <= 5; batch++)
      for (uint64_t window = 1; window <= 4; window++) {
        struct pen_order order = { .seed = n, .n_sequences = n, .batch_sequences = batch,
                                   .accumulation = window, .shuffle = true };
        uint64_t steps = pen_order_epoch_steps(&order);
        uint64_t whole[23 * 3 + 5], rest[23 * 3 + 5];
        size_t n_whole = stream(&order, 0, 3 * steps, whole);
        assert_int_equal(n_whole, 3 * n);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
          uint32_t seen = 0;
          for (uint64_t i = 0; i < n; i++)
            seen |= UINT32_C(1) << whole[epoch * n + i];
          assert_int_equal(seen, (UINT32_C(1) << n) - 1);
        }
        for (uint64_t from = 0; from <= 3 * steps; from++) {
          uint64_t head[23 * 3 + 5];
          size_t n_head = stream(&order, 0, from, head);
          size_t n_rest = stream(&order, from, 3 * steps, rest);
          assert_int_equal(n_head + n_rest, n_whole);
          assert_memory_equal(rest, whole + n_head, n_rest * sizeof *rest);
        }
      }
}

static void unshuffled_is_file_order(void **state)
{
  struct pen_order order = { .n_sequences = 7, .batch_sequences = 3, .accumulation = 2 };
  uint64_t ids[16];

  assert_int_equal(stream(&order, 0, 2, ids), 7);
  for (uint64_t i = 0; i < 7; i++)
    assert_int_equal(ids[i], i);
}

static void absurd_counts_do_not_overflow(void **state)
{
  struct pen_order order = { .n_sequences = 5, .batch_sequences = UINT64_MAX / 2,
                             .accumulation = UINT64_MAX / 2 };
  struct pen_order_step step;
  uint64_t ids[8];

  pen_order_step(&order, 1, &step);
  assert_int_equal(step.epoch, 1);
  assert_int_equal(step.n_sequences, 5);
  assert_int_equal(pen_order_micro(&order, &step, 0, ids), 5);
  order.n_sequences = 0;
  assert_refused(pen_order_check(&order), PEN_EUSAGE, "no sequence");
  order.n_sequences = 1;
  order.accumulation = 0;
  assert_refused(pen_order_check(&order), PEN_EUSAGE, "at least 1");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(bijection_for_many_n),
    cmocka_unit_test(range_for_huge_n),
    cmocka_unit_test(orders_of_three_are_fair),
    cmocka_unit_test(first_place_is_uniform),
    cmocka_unit_test(order_depends_on_seed_and_epoch),
    cmocka_unit_test(order_never_changes),
    cmocka_unit_test(last_window_is_short_and_kept),
    cmocka_unit_test(resumed_stream_is_straight_stream),
    cmocka_unit_test(unshuffled_is_file_order),
    cmocka_unit_test(absurd_counts_do_not_overflow),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
