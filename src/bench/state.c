/* state.c: AdamW on the compact state formats, beside the memory's in-place
 * speed and within a core's cache.
 *
 * Works on memory that the bench of AdamW has anyway.  Disadvantage: gradients
 * and state are the same numbers everywhere, so no branch on them is seen. */
#include <string.h>

#include "base/clock.h"
#include "kernels/state.h"
#include "src/bench/bench.h"

#define CACHED_ELEMS ((size_t)8192)
#define CACHED_PASSES 400

struct job {
  const struct pen_bench_adamw *adamw;
  const struct pen_state_format *format;
  size_t n; /* elements, their arrays in adamw->p */
};

static void update_range(void *ctx, size_t item, size_t worker)
{
  const struct job *job = ctx;
  const struct pen_bench_adamw *a = job->adamw;
  size_t at = item * PEN_BENCH_RANGE_ELEMS;
  size_t n = job->n - at < PEN_BENCH_RANGE_ELEMS ? job->n - at
                                                 : PEN_BENCH_RANGE_ELEMS;
  struct pen_state_update update = {.isa = a->isa,
                                    .params = &a->params,
                                    .part = {a->p, job->n, at, n},
                                    .decay_end = n,
                                    .key = 1,
                                    .first = at,
                                    .elem = PEN_ELEM_BF16,
                                    .grad = a->grad + at,
                                    .weight = a->weight + at};
  (void)worker;
  pen_state_update(job->format, &update);
}

static double pass(struct pen_pool *pool, struct job *job)
{
  uint64_t begin = pen_clock_ns();
  pen_pool_run(pool, (job->n + PEN_BENCH_RANGE_ELEMS - 1) / PEN_BENCH_RANGE_ELEMS,
               update_range, job);
  return (double)(pen_clock_ns() - begin) * 1e-9;
}

static double cached(const struct job *job)
{
  struct job small = *job;
  small.n = CACHED_ELEMS < job->n ? CACHED_ELEMS : job->n;
  uint64_t begin = pen_clock_ns();
  for (int i = 0; i < CACHED_PASSES; i++)
    update_range(&small, 0, 0);
  return (double)(pen_clock_ns() - begin) * 1e-9 * CACHED_ELEMS /
         (double)small.n;
}

/* Of arrays and halves, read and written, and of gradients. */
static double traffic(const struct pen_state_format *format, size_t n)
{
  return 2.0 * (double)(pen_state_bytes(format, n) +
                        pen_state_half_bytes(format, n)) +
         2.0 * (double)n;
}

static double measure(const struct pen_bench_options *o, struct pen_pool *pool,
                      struct job *job, double ceiling,
                      struct pen_bench_table *table)
{
  double ours[PEN_BENCH_RUNS_MAX], core[PEN_BENCH_RUNS_MAX];
  memset(job->adamw->p, 0, pen_state_bytes(job->format, job->n));
  pass(pool, job);
  for (size_t i = 0; i < o->n_runs; i++) {
    ours[i] = pass(pool, job);
    core[i] = cached(job);
  }
  pen_bench_add(table, "bytes/s", traffic(job->format, job->n), ours, o->n_runs,
                (struct pen_bench_ceiling){ceiling, "memory in place"},
                "AdamW, %s state, %zu threads, %s", job->format->name,
                o->threads, pen_isa_name(o->isa));
  return pen_bench_add(table, "parameters/s",
                       (double)CACHED_PASSES * CACHED_ELEMS, core, o->n_runs,
                       PEN_BENCH_NO_CEILING,
                       "AdamW, %s state, within a cache, 1 thread, %s",
                       job->format->name, pen_isa_name(o->isa));
}

void pen_bench_state(const struct pen_bench_options *options,
                     struct pen_pool *pool, const struct pen_bench_adamw *adamw,
                     double ceiling, struct pen_bench_table *table,
                     struct pen_machine *machine)
{
  const struct pen_state_format *format;
  struct job job = {.adamw = adamw, /* 10 bytes an element at most fit into p */
                    .n = adamw->n / 3 / PEN_STATE_GROUP_ELEMS *
                         PEN_STATE_GROUP_ELEMS};
  for (size_t i = 1; job.n && (format = pen_state_numbered(i)); i++) {
    job.format = format;
    machine->adam_core[i] = measure(options, pool, &job, ceiling, table);
  }
}
