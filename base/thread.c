/* thread.c: pthreads with a name, and the count of usable CPUs.
 *
 * Invariant: a joined or failed pen_thread has running == false.
 * Disadvantage: the cgroup quota is read once per call and not followed when
 * an administrator changes it. */
#include "base/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static void *enter(void *arg)
{
  struct pen_thread *thread = arg;
  pthread_setname_np(pthread_self(), thread->name);
  thread->fn(thread->arg);
  return NULL;
}

int pen_thread_create(struct pen_thread *thread, const char *name,
                      void (*fn)(void *arg), void *arg)
{
  thread->fn = fn;
  thread->arg = arg;
  thread->running = false;
  snprintf(thread->name, sizeof thread->name, "%s", name);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int r = pthread_create(&thread->handle, NULL, enter, thread);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (r)
    return pen_error_set(-r, "cannot start thread %s", thread->name);
  thread->running = true;
  return 0;
}

void pen_thread_join(struct pen_thread *thread)
{
  if (!thread->running)
    return;
  pthread_join(thread->handle, NULL);
  thread->running = false;
}

size_t pen_thread_parse_quota(const char *text)
{
  long quota, period = 100000;
  if (sscanf(text, "%ld %ld", &quota, &period) < 1 || quota <= 0 ||
      period <= 0)
    return 0;
  return (size_t)(quota / period + (quota % period != 0));
}

static bool read_text(const char *path, char *ret_text, size_t n_bytes)
{
  FILE *f = fopen(path, "re");
  if (!f)
    return false;
  size_t n = fread(ret_text, 1, n_bytes - 1, f);
  ret_text[n] = '\0';
  fclose(f);
  return n > 0;
}

static size_t min_quota(size_t a, size_t b)
{
  return a == 0 ? b : b == 0 || a < b ? a : b;
}

/* The smallest quota from this process's cgroup up to the root: each level
 * binds all below it. */
static size_t quota_v2(const char *group)
{
  char dir[2048], path[2100], text[128];
  size_t quota = 0;
  snprintf(dir, sizeof dir, "%s", group);
  for (;;) {
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", dir);
    if (read_text(path, text, sizeof text))
      quota = min_quota(quota, pen_thread_parse_quota(text));
    char *slash = strrchr(dir, '/');
    if (!slash)
      return quota;
    *slash = '\0';
  }
}

static size_t quota_v1(void)
{
  char quota[64], period[64], both[130];
  if (!read_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota, sizeof quota) ||
      !read_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period,
                 sizeof period))
    return 0;
  snprintf(both, sizeof both, "%s %s", quota, period);
  return pen_thread_parse_quota(both);
}

size_t pen_thread_quota_cpus(void)
{
  char text[4096];
  if (!read_text("/proc/self/cgroup", text, sizeof text))
    return 0;
  size_t quota = quota_v1();
  for (char *line = text, *next; line && *line; line = next) {
    next = strchr(line, '\n');
    if (next)
      *next++ = '\0';
    if (strncmp(line, "0::/", 4) == 0)
      quota = min_quota(quota, quota_v2(line[4] ? line + 3 : ""));
  }
  return quota;
}

/* The affinity mask, grown until the kernel accepts it; NULL: not to be had. */
static cpu_set_t *read_mask(int *ret_n_cpus)
{
  for (int n_cpus = 1024; n_cpus <= 1 << 20; n_cpus *= 2) {
    cpu_set_t *set = CPU_ALLOC(n_cpus);
    *ret_n_cpus = n_cpus;
    if (!set || sched_getaffinity(0, CPU_ALLOC_SIZE(n_cpus), set) == 0)
      return set;
    CPU_FREE(set);
  }
  return NULL;
}

int pen_thread_allowed_cpus(uint32_t **ret_cpus, size_t *ret_n)
{
  int n_cpus = 0;
  cpu_set_t *set = read_mask(&n_cpus);
  size_t n_bytes = CPU_ALLOC_SIZE(n_cpus), n = 0;
  int count = set ? CPU_COUNT_S(n_bytes, set) : 0;
  uint32_t *cpus = count ? malloc((size_t)count * sizeof *cpus) : NULL;
  for (int cpu = 0; cpus && cpu < n_cpus; cpu++)
    if (CPU_ISSET_S(cpu, n_bytes, set))
      cpus[n++] = (uint32_t)cpu;
  CPU_FREE(set);
  if (!cpus)
    return pen_error_set(-ENOMEM, "cannot read this process's affinity mask");
  *ret_cpus = cpus;
  *ret_n = n;
  return 0;
}

int pen_thread_bind(const uint32_t *cpus, size_t n)
{
  uint32_t most = 0;
  for (size_t i = 0; i < n; i++)
    if (cpus[i] > most)
      most = cpus[i];
  size_t n_bytes = CPU_ALLOC_SIZE(most + 1);
  cpu_set_t *set = CPU_ALLOC(most + 1);
  if (!set)
    return pen_error_set(-ENOMEM, "no memory for a mask of %" PRIu32 " CPUs",
                         most + 1);
  CPU_ZERO_S(n_bytes, set);
  for (size_t i = 0; i < n; i++)
    CPU_SET_S(cpus[i], n_bytes, set);
  int code = pthread_setaffinity_np(pthread_self(), n_bytes, set);
  CPU_FREE(set);
  return code ? pen_error_set(-code, "cannot bind a thread to %zu CPUs, the "
                              "last of them %" PRIu32, n, most)
              : 0;
}

size_t pen_thread_usable_cpus(void)
{
  int n_cpus = 0;
  cpu_set_t *set = read_mask(&n_cpus);
  int count = set ? CPU_COUNT_S(CPU_ALLOC_SIZE(n_cpus), set) : 0;
  size_t cpus = count > 0 ? (size_t)count : 1, quota = pen_thread_quota_cpus();
  CPU_FREE(set);
  return quota && quota < cpus ? quota : cpus;
}
