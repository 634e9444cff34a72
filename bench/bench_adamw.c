/* bench_adamw.c: AdamW's speed on arrays far larger than the caches, beside
 * the memory's in-place speed measured in turn with it.
 *
 *   bench_adamw [ELEMS [THREADS]]      PEN_ISA picks the level
 *
 * Bytes an element: p, m, v read and written (24), bf16 gradient read and bf16
 * weight written past the cache (4). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/pool.h"
#include "base/thread.h"
#include "kernels/adamw.h"
#include "src/bench/bench.h"

#define REPEATS 15
#define BYTES_PER_ELEM 28

struct job {
  enum pen_isa isa;
  struct pen_adamw_params params;
  size_t n;
  float *p, *m, *v;
  uint16_t *grad, *weight;
};

static void update_range(void *ctx, size_t item, size_t worker)
{
  const struct job *job = ctx;
  size_t at = item * PEN_BENCH_RANGE_ELEMS;
  size_t count = job->n - at < PEN_BENCH_RANGE_ELEMS ? job->n - at
                                                : PEN_BENCH_RANGE_ELEMS;
  pen_adamw_update_bf16(job->isa, &job->params, true, count, job->p + at,
                        job->m + at, job->v + at, job->grad + at,
                        job->weight + at);
}

static double update_all(struct pen_pool *pool, struct job *job)
{
  size_t items = (job->n + PEN_BENCH_RANGE_ELEMS - 1) / PEN_BENCH_RANGE_ELEMS;
  uint64_t begin = pen_clock_ns();
  pen_pool_run(pool, items, update_range, job);
  return (double)(pen_clock_ns() - begin) * 1e-9;
}

/* Touched pages, huge where the system gives them, and some to spare: arrays
 * that lie a large power of two apart fall on the same banks of memory, and
 * the plain pass drops to a tenth. */
static void *map_filled(size_t bytes, int byte)
{
  const size_t spare = 17 * 4096;
  void *map = mmap(NULL, bytes + spare, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) {
    fprintf(stderr, "cannot map %zu bytes; ask for fewer elements\n", bytes);
    exit(1);
  }
  madvise(map, bytes, MADV_HUGEPAGE);
  return memset(map, byte, bytes);
}

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void print(const char *what, double *seconds, double bytes,
                  double *ret_median)
{
  qsort(seconds, REPEATS, sizeof *seconds, by_value);
  *ret_median = bytes / seconds[REPEATS / 2] * 1e-9;
  printf("%-28s %6.1f GB/s (%.1f to %.1f in %d runs)\n", what, *ret_median,
         bytes / seconds[REPEATS - 1] * 1e-9, bytes / seconds[0] * 1e-9,
         REPEATS);
}

int main(int argc, char **argv)
{
  struct job job = {.n = argc > 1 ? strtoull(argv[1], NULL, 0) : 64u << 20};
  size_t threads = argc > 2 ? strtoull(argv[2], NULL, 0)
                            : pen_thread_usable_cpus();
  const struct pen_adamw_hyper hyper = {1e-3, 0.9, 0.999, 1e-8, 0.01};
  struct pen_pool *pool = NULL;
  if (job.n == 0 || threads == 0) {
    fprintf(stderr, "usage: bench_adamw [ELEMS [THREADS]]\n");
    return 2;
  }
  if (pen_isa_choose(NULL, &job.isa) < 0 ||
      pen_adamw_params_init(&hyper, 10, 1, &job.params) < 0 ||
      pen_pool_create(threads, "bench", &pool) < 0) {
    fprintf(stderr, "%s\n", pen_error_text());
    return 1;
  }
  job.p = map_filled(job.n * 4, 0x3c); /* 0.0115 */
  job.m = map_filled(job.n * 4, 0x3c);
  job.v = map_filled(job.n * 4, 0x3c);
  job.grad = map_filled(job.n * 2, 0x3c);
  job.weight = map_filled(job.n * 2, 0);

  double roof[REPEATS], ours[REPEATS], roof_rate, our_rate;
  pen_bench_update_pass(pool, job.n, job.p, job.m, job.v);
  update_all(pool, &job);
  for (int i = 0; i < REPEATS; i++) {
    roof[i] = pen_bench_update_pass(pool, job.n, job.p, job.m, job.v);
    ours[i] = update_all(pool, &job);
  }
  printf("%zu elements, %zu threads, %s\n", job.n, threads,
         pen_isa_name(job.isa));
  print("in-place update of 3 arrays", roof, 24.0 * (double)job.n, &roof_rate);
  print("AdamW, bf16 weights", ours, (double)BYTES_PER_ELEM * (double)job.n,
        &our_rate);
  printf("AdamW: %.2f G elements/s, %.0f %% of the memory's speed\n",
         our_rate / BYTES_PER_ELEM, 100 * our_rate / roof_rate);
  pen_pool_free(&pool);
  return 0;
}
