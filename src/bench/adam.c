/* adam.c: AdamW on arrays far larger than the caches beside the memory's
 * in-place speed, and on one thread within its cache.
 *
 * Bytes an element: p, m, v read and written (24), bf16 gradient read and bf16
 * weight written past the cache (4).  Disadvantage: one element pattern. */
#include "base/clock.h"
#include "base/error.h"
#include "src/bench/bench.h"

#define BYTES_PER_ELEM 28
#define CACHED_ELEMS ((size_t)8192) /* 224 KiB: within a core's own cache */
#define CACHED_PASSES 2000

static void update_range(void *ctx, size_t item, size_t worker)
{
  const struct pen_bench_adamw *job = ctx;
  size_t at = item * PEN_BENCH_RANGE_ELEMS;
  size_t count = job->n - at < PEN_BENCH_RANGE_ELEMS ? job->n - at
                                                     : PEN_BENCH_RANGE_ELEMS;
  (void)worker;
  pen_adamw_update_bf16(job->isa, &job->params, true, count, job->p + at,
                        job->m + at, job->v + at, job->grad + at,
                        job->weight + at);
}

double pen_bench_adamw_pass(struct pen_pool *pool, struct pen_bench_adamw *job)
{
  size_t items = (job->n + PEN_BENCH_RANGE_ELEMS - 1) / PEN_BENCH_RANGE_ELEMS;
  uint64_t begin = pen_clock_ns();
  pen_pool_run(pool, items, update_range, job);
  return (double)(pen_clock_ns() - begin) * 1e-9;
}

int pen_bench_adamw_init(enum pen_isa isa, struct pen_bench_adamw *job)
{
  static const struct pen_adamw_hyper hyper = {1e-3, 0.9, 0.999, 1e-8, 0.01};
  job->isa = isa;
  return pen_adamw_params_init(&hyper, 10, 1, &job->params);
}

/* One core, the same elements again and again. */
static double update_cached(const struct pen_bench_adamw *job)
{
  struct pen_bench_adamw small = *job;
  small.n = CACHED_ELEMS < job->n ? CACHED_ELEMS : job->n;
  uint64_t begin = pen_clock_ns();
  for (int i = 0; i < CACHED_PASSES; i++)
    update_range(&small, 0, 0);
  return (double)(pen_clock_ns() - begin) * 1e-9 * CACHED_ELEMS /
         (double)small.n;
}

static void measure(const struct pen_bench_options *o, struct pen_pool *pool,
                    struct pen_bench_adamw *job, struct pen_bench_table *table,
                    struct pen_machine *machine)
{
  double roof[PEN_BENCH_RUNS_MAX], ours[PEN_BENCH_RUNS_MAX],
      cached[PEN_BENCH_RUNS_MAX];
  pen_bench_update_pass(pool, job->n, job->p, job->m, job->v);
  pen_bench_adamw_pass(pool, job);
  for (size_t i = 0; i < o->n_runs; i++) {
    roof[i] = pen_bench_update_pass(pool, job->n, job->p, job->m, job->v);
    ours[i] = pen_bench_adamw_pass(pool, job);
    cached[i] = update_cached(job);
  }
  double n = (double)job->n;
  double ceiling =
      pen_bench_add(table, "bytes/s", 24 * n, roof, o->n_runs,
                    PEN_BENCH_NO_CEILING, "memory in place, 3 arrays, %zu threads", o->threads);
  machine->dram_update =
      pen_bench_add(table, "bytes/s", BYTES_PER_ELEM * n, ours, o->n_runs,
                    (struct pen_bench_ceiling){ceiling, "memory in place"},
                    "AdamW, bf16 weights, %zu threads, %s",
                    o->threads, pen_isa_name(o->isa));
  machine->adam_core[0] = pen_bench_add(
      table, "parameters/s", (double)CACHED_PASSES * CACHED_ELEMS, cached,
      o->n_runs, PEN_BENCH_NO_CEILING, "AdamW within a cache, 1 thread, %s", pen_isa_name(o->isa));
  pen_bench_state(o, pool, job, ceiling, table, machine);
}

int pen_bench_adam(const struct pen_bench_options *options,
                   struct pen_bench_table *table, struct pen_machine *machine)
{
  struct pen_pool *pool = NULL;
  struct pen_bench_adamw job = {
      .n = (size_t)(options->bytes / BYTES_PER_ELEM) / 64 * 64};
  size_t wide = job.n * sizeof(float), narrow = job.n * sizeof(uint16_t);
  int rc = job.n ? pen_bench_adamw_init(options->isa, &job)
                 : pen_error_set(PEN_EUSAGE, "--bench-size %llu holds no "
                                 "parameters",
                                 (unsigned long long)options->bytes);
  if (rc == 0)
    rc = pen_pool_create(options->threads, "bench", &pool);
  if (rc == 0)
    rc = pen_bench_map(wide, (void **)&job.p);
  if (rc == 0)
    rc = pen_bench_map(wide, (void **)&job.m);
  if (rc == 0)
    rc = pen_bench_map(wide, (void **)&job.v);
  if (rc == 0)
    rc = pen_bench_map(narrow, (void **)&job.grad);
  if (rc == 0)
    rc = pen_bench_map(narrow, (void **)&job.weight);
  if (rc == 0)
    measure(options, pool, &job, table, machine);
  pen_bench_unmap((void **)&job.p, wide);
  pen_bench_unmap((void **)&job.m, wide);
  pen_bench_unmap((void **)&job.v, wide);
  pen_bench_unmap((void **)&job.grad, narrow);
  pen_bench_unmap((void **)&job.weight, narrow);
  pen_pool_free(&pool);
  return rc;
}
