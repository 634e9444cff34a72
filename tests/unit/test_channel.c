/* Order, bound, close; several threads on both ends. */
#include "base/channel.h"

#include <stdatomic.h>
#include <unistd.h>

#include "base/thread.h"
#include "tests/test.h"

static void test_order_and_bound(void **state)
{
  struct pen_channel channel;
  uint64_t word = 99;
  test_ok(pen_channel_init(&channel, 3));
  assert_false(pen_channel_try_take(&channel, &word));
  assert_int_equal(word, 99);
  for (uint64_t round = 0; round < 10; round++) { /* wraps the ring */
    assert_true(pen_channel_try_put(&channel, round));
    assert_true(pen_channel_put(&channel, round + 100));
    assert_true(pen_channel_take(&channel, &word));
    assert_int_equal(word, round);
    assert_true(pen_channel_put(&channel, round + 200));
    assert_true(pen_channel_put(&channel, round + 300));
    assert_false(pen_channel_try_put(&channel, 5));
    for (uint64_t i = 1; i <= 3; i++) {
      assert_true(pen_channel_take(&channel, &word));
      assert_int_equal(word, round + i * 100);
    }
  }
  pen_channel_done(&channel);
  pen_channel_done(&channel);
}

static void test_close(void **state)
{
  struct pen_channel channel;
  uint64_t word = 0;
  int object;
  test_ok(pen_channel_init(&channel, 2));
  assert_true(pen_channel_put_pointer(&channel, &object));
  pen_channel_close(&channel);
  pen_channel_close(&channel);
  assert_false(pen_channel_put(&channel, 2));
  assert_ptr_equal(pen_channel_take_pointer(&channel), &object);
  assert_false(pen_channel_take(&channel, &word));
  assert_null(pen_channel_take_pointer(&channel));
  pen_channel_done(&channel);
}

struct crowd {
  struct pen_channel channel;
  atomic_uint_fast64_t next, sum, n_taken;
};

enum { N_WORDS = 20000 };

static void producer(void *arg)
{
  struct crowd *crowd = arg;
  uint64_t word;
  while ((word = atomic_fetch_add(&crowd->next, 1)) < N_WORDS)
    pen_channel_put(&crowd->channel, word);
}

static void consumer(void *arg)
{
  struct crowd *crowd = arg;
  uint64_t word;
  while (pen_channel_take(&crowd->channel, &word)) {
    atomic_fetch_add(&crowd->sum, word);
    atomic_fetch_add(&crowd->n_taken, 1);
  }
}

static void test_crowd(void **state)
{
  struct crowd crowd = { 0 };
  struct pen_thread producers[3] = { 0 }, consumers[3] = { 0 };
  test_ok(pen_channel_init(&crowd.channel, 4));
  for (int i = 0; i < 3; i++) {
    test_ok(pen_thread_create(&consumers[i], "consumer", consumer, &crowd));
    test_ok(pen_thread_create(&producers[i], "producer", producer, &crowd));
  }
  for (int i = 0; i < 3; i++)
    pen_thread_join(&producers[i]);
  pen_channel_close(&crowd.channel);
  for (int i = 0; i < 3; i++)
    pen_thread_join(&consumers[i]);
  assert_int_equal(crowd.n_taken, N_WORDS);
  assert_int_equal(crowd.sum, (uint64_t)N_WORDS * (N_WORDS - 1) / 2);
  pen_channel_done(&crowd.channel);
}

static void blocked_put(void *arg)
{
  struct crowd *crowd = arg;
  atomic_store(&crowd->sum, pen_channel_put(&crowd->channel, 1) ? 1 : 2);
}

static void test_close_wakes_producer(void **state)
{
  struct crowd crowd = { 0 };
  struct pen_thread thread = { 0 };
  test_ok(pen_channel_init(&crowd.channel, 1));
  assert_true(pen_channel_put(&crowd.channel, 0));
  test_ok(pen_thread_create(&thread, "blocked", blocked_put, &crowd));
  usleep(10000);
  assert_int_equal(crowd.sum, 0); /* waits */
  pen_channel_close(&crowd.channel);
  pen_thread_join(&thread);
  assert_int_equal(crowd.sum, 2);
  pen_channel_done(&crowd.channel);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_order_and_bound),
    cmocka_unit_test(test_close),
    cmocka_unit_test(test_crowd),
    cmocka_unit_test(test_close_wakes_producer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
