/* fpmode.h: the floating-point mode our arithmetic runs in, whatever a library
 * left behind: nearest even, denormals kept, nothing traps.
 *
 * A shared library built with -ffast-math turns denormals off in the thread
 * that loads it, and threads made later inherit that; so the mode is set at
 * each entry to the kernels and put back on return. */
#ifndef PEN_KERNELS_FPMODE_H
#define PEN_KERNELS_FPMODE_H

#include <stdint.h>

#if defined(__x86_64__)

static inline uint64_t pen_fpmode_get(void)
{
  uint32_t mode;
  __asm__ volatile("stmxcsr %0" : "=m"(mode) : : "memory");
  return mode;
}

static inline void pen_fpmode_set(uint64_t mode)
{
  uint32_t low = (uint32_t)mode;
  __asm__ volatile("ldmxcsr %0" : : "m"(low) : "memory");
}

#define PEN_FPMODE_DEFAULT UINT64_C(0x1f80)
#define PEN_FPMODE_FLUSHING UINT64_C(0x9fc0) /* for tests: FTZ and DAZ */

#elif defined(__aarch64__)

static inline uint64_t pen_fpmode_get(void)
{
  uint64_t mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode) : : "memory");
  return mode;
}

static inline void pen_fpmode_set(uint64_t mode)
{
  __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}

#define PEN_FPMODE_DEFAULT UINT64_C(0)
#define PEN_FPMODE_FLUSHING (UINT64_C(1) << 24) /* for tests: FZ */

#else

static inline uint64_t pen_fpmode_get(void)
{
  return 0;
}

static inline void pen_fpmode_set(uint64_t mode)
{
}

#define PEN_FPMODE_DEFAULT UINT64_C(0)
#define PEN_FPMODE_FLUSHING UINT64_C(0)

#endif

/* Enters the default mode; returns what pen_fpmode_set must put back.  The
 * memory clobbers keep loads after this and stores before that, and with them
 * all arithmetic in between. */
static inline uint64_t pen_fpmode_begin(void)
{
  uint64_t outer = pen_fpmode_get();
  pen_fpmode_set(PEN_FPMODE_DEFAULT);
  return outer;
}

#endif
