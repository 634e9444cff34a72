/* race.h: exact race detection for kernels compiled with -fsanitize=thread and
 * linked with race.cc instead of TSan's runtime.
 *
 * Barriers are all the order there is, so happens-before is two counters: an
 * earlier access of another thread is ordered before this one if both are of
 * one block and a __syncthreads of the block, or a __syncwarp of their common
 * warp, came between.  Atomics are exempt.  Where kernels are not instrumented
 * none is ever found. */
#ifndef PEN_TESTS_GPU_SIMT_RACE_H
#define PEN_TESTS_GPU_SIMT_RACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Who runs, for the accesses that follow. */
struct simt_race_thread {
  uint32_t block, thread;        /* thread: in the block */
  uint32_t block_epoch, warp_epoch; /* barriers passed */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Races found so far in this process; each is printed, up to a few. */
size_t simt_races(void);
/* Whether they are looked for in this build. */
bool simt_race_is_on(void);

#ifdef __cplusplus
}

/* NULL: outside of kernels, nothing is recorded. */
extern __thread const simt_race_thread *simt_race_current;

/* Forgets all accesses: another kernel, another block's shared memory. */
void simt_race_begin_kernel(const char *name);
void simt_race_begin_block(const void *shared, size_t bytes);
/* Accesses to [p, p + bytes) never count: the engine's own memory. */
void simt_race_exempt(const void *p, size_t bytes);
#endif

#endif
