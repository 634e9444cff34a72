/* fiber.cc: see fiber.h.  On x86-64 a switch of fifteen instructions;
 * elsewhere ucontext, which is slower by two system calls. */
#include "tests/gpu/simt/fiber.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define SIMT_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SIMT_TSAN 1
#endif

#if SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if SIMT_TSAN
#include <sanitizer/tsan_interface.h>
#endif

[[maybe_unused]] constexpr size_t ENTRY_BYTES = 16 << 10;

#if defined(__x86_64__)
extern "C" void simt_switch_stack(void **save, void *to);
/* Saves what the ABI asks a callee to keep. */
asm(".text\n"
    ".type simt_switch_stack, @function\n"
    "simt_switch_stack:\n"
    "  pushq %rbp\n"
    "  pushq %rbx\n"
    "  pushq %r12\n"
    "  pushq %r13\n"
    "  pushq %r14\n"
    "  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n"
    "  popq %r14\n"
    "  popq %r13\n"
    "  popq %r12\n"
    "  popq %rbx\n"
    "  popq %rbp\n"
    "  ret\n"
    ".size simt_switch_stack, . - simt_switch_stack\n");

static void set_entry(simt_fiber *f, size_t index, void (*entry)())
{
  uintptr_t top = (uintptr_t)f->stack + SIMT_STACK_BYTES - index % 32 * 128;
  void **sp = (void **)(top / 16 * 16);
  *--sp = nullptr; /* entry sees a stack as after a call */
  *--sp = (void *)entry;
  for (int i = 0; i < 6; i++)
    *--sp = nullptr;
  f->sp = sp;
}

static void switch_stack(simt_fiber *from, simt_fiber *to)
{
  simt_switch_stack(&from->sp, to->sp);
}
#else
static ucontext_t *context_of(simt_fiber *f)
{
  if (!f->sp)
    f->sp = calloc(1, sizeof(ucontext_t));
  return (ucontext_t *)f->sp;
}

static void set_entry(simt_fiber *f, size_t index, void (*entry)())
{
  ucontext_t *c = context_of(f);
  getcontext(c);
  c->uc_stack.ss_sp = f->stack;
  c->uc_stack.ss_size = SIMT_STACK_BYTES - index % 32 * 128;
  makecontext(c, entry, 0);
}

static void switch_stack(simt_fiber *from, simt_fiber *to)
{
  swapcontext(context_of(from), context_of(to));
}
#endif

void simt_fiber_begin(simt_fiber *f, char *stack, size_t index,
                      void (*entry)())
{
  f->stack = stack;
#if SIMT_ASAN
  /* Frames that were left are clean; the entry's own, near the top, never is. */
  __asan_unpoison_memory_region(f->stack + SIMT_STACK_BYTES - ENTRY_BYTES,
                                ENTRY_BYTES);
  f->asan[0] = nullptr;
  f->asan[1] = f->stack;
  f->asan[2] = (void *)SIMT_STACK_BYTES;
#endif
#if SIMT_TSAN
  if (!f->tsan)
    f->tsan = __tsan_create_fiber(0);
#endif
  set_entry(f, index, entry);
}

void simt_fiber_entered(simt_fiber *self)
{
#if SIMT_ASAN
  __sanitizer_finish_switch_fiber(self->asan[0], nullptr, nullptr);
#endif
  (void)self;
}

void simt_fiber_switch(simt_fiber *from, simt_fiber *to, bool ends)
{
#if SIMT_TSAN
  if (!from->tsan)
    from->tsan = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to->tsan, 0);
#endif
#if SIMT_ASAN
  __sanitizer_start_switch_fiber(ends ? nullptr : &from->asan[0], to->asan[1],
                                 (size_t)to->asan[2]);
  if (!from->stack && !from->asan[1]) { /* the OS thread's own: asked for once */
    pthread_attr_t attr;
    size_t size = 0;
    pthread_getattr_np(pthread_self(), &attr);
    pthread_attr_getstack(&attr, &from->asan[1], &size);
    pthread_attr_destroy(&attr);
    from->asan[2] = (void *)size;
  }
#endif
  (void)ends;
  switch_stack(from, to);
#if SIMT_ASAN
  __sanitizer_finish_switch_fiber(from->asan[0], nullptr, nullptr);
#endif
}

void simt_fiber_free(simt_fiber *f)
{
#if SIMT_TSAN
  if (f->tsan && f->stack)
    __tsan_destroy_fiber(f->tsan);
#endif
#if !defined(__x86_64__)
  free(f->sp);
#endif
  *f = simt_fiber{};
}
