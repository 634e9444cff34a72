/* fiber.h: a stack of its own and the switch between two of them, told to the
 * sanitizers. */
#ifndef PEN_TESTS_GPU_SIMT_FIBER_H
#define PEN_TESTS_GPU_SIMT_FIBER_H

#include <stddef.h>

/* Stacks hold a kernel's registers, and in ASan builds their redzones. */
constexpr size_t SIMT_STACK_BYTES = 512 << 10;

struct simt_fiber {
  void *sp;      /* where it was left */
  char *stack;   /* borrowed; NULL: the OS thread's own */
  void *asan[3]; /* fake stack, bottom, size: kept for ASan */
  void *tsan;
};

/* Makes `f` begin at entry() on `stack` (SIMT_STACK_BYTES) when it is switched
 * to next; entry never returns.  `index` staggers stack tops, else they share
 * one cache set. */
void simt_fiber_begin(simt_fiber *f, char *stack, size_t index,
                      void (*entry)());

/* Leaves `from` for `to`; `ends`: for good. */
void simt_fiber_switch(simt_fiber *from, simt_fiber *to, bool ends);

/* The first thing a fiber does. */
void simt_fiber_entered(simt_fiber *self);

void simt_fiber_free(simt_fiber *f);

#endif
