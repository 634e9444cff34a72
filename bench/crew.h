/* crew.h: plain threads that start together, for ceilings: none of our pool. */
#ifndef PEN_BENCH_CREW_H
#define PEN_BENCH_CREW_H

#include <stddef.h>

#define PEN_CREW_THREADS_MAX 1024

/* Runs fn(ctx, thread, n_threads) once on each of n_threads threads and returns
 * the seconds from when all were ready until the last was done.  Making the
 * threads is not in it. */
double pen_crew_run(size_t n_threads,
                    void (*fn)(void *ctx, size_t thread, size_t n_threads),
                    void *ctx);

#endif
