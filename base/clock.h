/* clock.h: monotonic time. */
#ifndef PEN_BASE_CLOCK_H
#define PEN_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds since an arbitrary start; never goes back. */
static inline uint64_t pen_clock_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
