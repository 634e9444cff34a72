/* thread.h: named threads, and how many of them this process may run. */
#ifndef PEN_BASE_THREAD_H
#define PEN_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest name `ps -L` shows; longer ones are cut. */
#define PEN_THREAD_NAME_BYTES 16

struct pen_thread {
  pthread_t handle;
  void (*fn)(void *arg);
  void *arg;
  char name[PEN_THREAD_NAME_BYTES];
  bool running;
};

/* Starts fn(arg) on a thread that `ps -L` and debuggers show as `name`.  All
 * signals are blocked in it: signals belong to main.  `thread` is borrowed
 * until pen_thread_join and must stay where it is.  -errno as of
 * pthread_create. */
int pen_thread_create(struct pen_thread *thread, const char *name,
                      void (*fn)(void *arg), void *arg);

/* Waits for the thread to end.  Nothing for a zeroed, never started or already
 * joined one. */
void pen_thread_join(struct pen_thread *thread);

/* CPUs this process may use: the smaller of the affinity mask's count and the
 * cgroup quota (v2 cpu.max, v1 cfs_quota_us) rounded up; at least 1.
 * Environment variables such as OMP_NUM_THREADS, which launchers set to 1, are
 * not asked. */
size_t pen_thread_usable_cpus(void);

/* The affinity mask's CPUs by the system's numbers, rising; the caller frees
 * them.  -ENOMEM. */
int pen_thread_allowed_cpus(uint32_t **ret_cpus, size_t *ret_n);

/* The cgroup quota in whole CPUs, rounded up; 0: none. */
size_t pen_thread_quota_cpus(void);

/* Lets the calling thread run on these CPUs alone (n >= 1), by the system's
 * numbers.  Threads that it starts inherit that.  -errno: none of them is
 * allowed to this process; nothing changed then. */
int pen_thread_bind(const uint32_t *cpus, size_t n);

/* The quota of one cgroup v2 directory's cpu.max text ("max 100000",
 * "150000 100000") in whole CPUs, rounded up; 0: no quota or not readable. */
size_t pen_thread_parse_quota(const char *text);

#endif
