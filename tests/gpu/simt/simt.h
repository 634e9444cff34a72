/* simt.h: a stand-in that runs CUDA kernels on the CPU, for tests.
 *
 * The project's .cu files are compiled by a C++ compiler with include/ first on
 * the include path.  A thread of a block is a fiber; a warp's fibers run one
 * after another until each of them waits, warps run until all wait at a
 * barrier, blocks run one after another, all on the OS thread that runs the
 * kernel.  The order of lanes, warps and blocks can be chosen.  Shared memory
 * is NaN before each block, and so is what cp.async has not finished.
 *
 * Ends the program with a message, naming kernel, block, thread and line: a
 * barrier or warp operation that not all threads reach, a launch no device
 * would take, a write past the block's shared memory.  Finds races exactly
 * (race.h) in a build whose kernels are compiled with -fsanitize=thread.
 * Limits: no timing, no weak memory beyond barriers, full warps only. */
#ifndef PEN_TESTS_GPU_SIMT_SIMT_H
#define PEN_TESTS_GPU_SIMT_SIMT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of lanes in a warp, warps in a block and blocks in a grid. */
enum simt_order {
  SIMT_IN_ORDER,
  SIMT_REVERSED,
  SIMT_RANDOM, /* by seed; a warp also gives way to others at random */
};

/* For all kernels that start from now on. */
void simt_set_order(enum simt_order order, uint64_t seed);

/* Called for each launch, after its limits were checked: has run(record)
 * called exactly once, now or later, on any thread; 0, or the cudaError_t that
 * the launch returns (then run must not be called).  submit_now.cc runs it at
 * once; a fake runtime of streams brings its own. */
int simt_submit(struct CUstream_st *stream, void (*run)(void *record),
                void *record);

#ifdef __cplusplus
}
#endif

#endif
