/* Thread names, and the count of usable CPUs. */
#include "base/thread.h"

#include <errno.h>
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

static void *bind_to(void *arg)
{
  cpu_set_t now;
  assert_int_equal(pen_thread_bind(arg, 1), 0);
  assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof now, &now), 0);
  assert_int_equal(CPU_COUNT(&now), 1);
  assert_true(CPU_ISSET(*(uint32_t *)arg, &now));
  return NULL;
}

static void test_bind(void **state)
{
  uint32_t *cpus;
  size_t n, n_after;
  test_ok(pen_thread_allowed_cpus(&cpus, &n));
  assert_true(n >= 1 && n >= pen_thread_usable_cpus());
  for (size_t i = 1; i < n; i++)
    assert_true(cpus[i - 1] < cpus[i]);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, bind_to, &cpus[n - 1]), 0);
  pthread_join(thread, NULL);
  free(cpus);
  test_ok(pen_thread_allowed_cpus(&cpus, &n_after)); /* this thread is free */
  assert_int_equal(n_after, n);
  free(cpus);
  test_fails(pen_thread_bind(&(uint32_t){ 1000000 }, 1), EINVAL, "1000000");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_name),
    cmocka_unit_test(test_quota),
    cmocka_unit_test(test_environment_is_not_asked),
    cmocka_unit_test(test_affinity),
    cmocka_unit_test(test_bind),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
