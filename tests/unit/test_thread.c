/* Thread names, and the count of usable CPUs. */
#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "tests/test.h"

struct seen {
  char name[PEN_THREAD_NAME_BYTES];
  bool sigint_blocked;
};

static void look(void *arg)
{
  struct seen *seen = arg;
  sigset_t blocked;
  pthread_getname_np(pthread_self(), seen->name, sizeof seen->name);
  pthread_sigmask(SIG_SETMASK, NULL, &blocked);
  seen->sigint_blocked = sigismember(&blocked, SIGINT);
}

static void test_name(void **state)
{
  struct pen_thread thread = { 0 };
  struct seen seen = { 0 };
  pen_thread_join(&thread); /* never started */
  test_ok(pen_thread_create(&thread, "pen-a-name-too-long", look, &seen));
  pen_thread_join(&thread);
  pen_thread_join(&thread); /* twice */
  assert_string_equal(seen.name, "pen-a-name-too-");
  assert_true(seen.sigint_blocked);
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, NULL, &blocked);
  assert_false(sigismember(&blocked, SIGINT));
}

static void test_quota(void **state)
{
  assert_int_equal(pen_thread_parse_quota("max 100000\n"), 0);
  assert_int_equal(pen_thread_parse_quota("150000 100000\n"), 2);
  assert_int_equal(pen_thread_parse_quota("200000 100000\n"), 2);
  assert_int_equal(pen_thread_parse_quota("1000 100000"), 1);
  assert_int_equal(pen_thread_parse_quota("-1\n"), 0);
  assert_int_equal(pen_thread_parse_quota(""), 0);
  assert_int_equal(pen_thread_parse_quota("5 0"), 0);
}

/* A launcher that sets OMP_NUM_THREADS=1 must not make us slow. */
static void test_environment_is_not_asked(void **state)
{
  size_t before = pen_thread_usable_cpus();
  assert_true(before >= 1);
  setenv("OMP_NUM_THREADS", before == 1 ? "7" : "1", 1);
  assert_int_equal(pen_thread_usable_cpus(), before);
}

static void test_affinity(void **state)
{
  cpu_set_t all, one;
  assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
  assert_true(pen_thread_usable_cpus() <= (size_t)CPU_COUNT(&all));
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
    if (CPU_ISSET(i, &all))
      CPU_SET(i, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  assert_int_equal(pen_thread_usable_cpus(), 1);
  assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_name),
    cmocka_unit_test(test_quota),
    cmocka_unit_test(test_environment_is_not_asked),
    cmocka_unit_test(test_affinity),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
