/* memory.c: passes over arrays far larger than the caches, as plain as can be;
 * the compiler's own vectors reach the bandwidth.
 *
 * Disadvantage: on machines of several NUMA nodes pages lie where the thread
 * that first touched them ran: on one node. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "kernels/device.h"
#include "src/bench/bench.h"

struct pass {
  size_t n;
  float *a, *b, *c;
  double *sums; /* [items], so that reads are not for nothing */
};

static size_t range_end(const struct pass *pass, size_t begin)
{
  size_t end = begin + PEN_BENCH_RANGE_ELEMS;
  return end < pass->n ? end : pass->n;
}

static void update_range(void *ctx, size_t item, size_t worker)
{
  const struct pass *pass = ctx;
  const float factor = 0.999f;
  size_t begin = item * PEN_BENCH_RANGE_ELEMS, end = range_end(pass, begin);
  float *restrict a = pass->a, *restrict b = pass->b, *restrict c = pass->c;
  (void)worker;
  for (size_t i = begin; i < end; i++) {
    a[i] *= factor;
    b[i] *= factor;
    c[i] *= factor;
  }
}

/* Sums of bits, whose order does not matter, so that they can be wide. */
static void read_range(void *ctx, size_t item, size_t worker)
{
  const struct pass *pass = ctx;
  size_t begin = item * PEN_BENCH_RANGE_ELEMS, end = range_end(pass, begin);
  const uint32_t *a = (const uint32_t *)pass->a;
  uint32_t sum = 0;
  (void)worker;
  for (size_t i = begin; i < end; i++)
    sum += a[i];
  pass->sums[item] = sum;
}

static void write_range(void *ctx, size_t item, size_t worker)
{
  const struct pass *pass = ctx;
  size_t begin = item * PEN_BENCH_RANGE_ELEMS, end = range_end(pass, begin);
  (void)worker;
  memset(pass->a + begin, 0x3c, (end - begin) * sizeof(float));
}

static size_t n_items(size_t n)
{
  return (n + PEN_BENCH_RANGE_ELEMS - 1) / PEN_BENCH_RANGE_ELEMS;
}

static double run_pass(struct pen_pool *pool, struct pass *pass,
                       void (*fn)(void *, size_t, size_t))
{
  uint64_t begin = pen_clock_ns();
  pen_pool_run(pool, n_items(pass->n), fn, pass);
  return (double)(pen_clock_ns() - begin) * 1e-9;
}

double pen_bench_update_pass(struct pen_pool *pool, size_t n, float *a,
                             float *b, float *c)
{
  struct pass pass = {.n = n, .a = a, .b = b, .c = c};
  return run_pass(pool, &pass, update_range);
}

static double copy_pass(const struct pass *pass)
{
  uint64_t begin = pen_clock_ns();
  pen_device_host_discrete.upload(&pen_device_host_discrete, pass->b, pass->a,
                                  pass->n * sizeof(float));
  return (double)(pen_clock_ns() - begin) * 1e-9;
}

static void measure(const struct pen_bench_options *o, struct pen_pool *pool,
                    struct pass *pass, struct pen_bench_table *table,
                    struct pen_machine *m)
{
  double read[PEN_BENCH_RUNS_MAX], written[PEN_BENCH_RUNS_MAX],
      updated[PEN_BENCH_RUNS_MAX], copied[PEN_BENCH_RUNS_MAX];
  double bytes = (double)pass->n * sizeof(float);
  run_pass(pool, pass, update_range);
  for (size_t i = 0; i < o->n_runs; i++) {
    read[i] = run_pass(pool, pass, read_range);
    written[i] = run_pass(pool, pass, write_range);
    updated[i] = run_pass(pool, pass, update_range);
    copied[i] = copy_pass(pass);
  }
  m->dram_read = pen_bench_add(table, "bytes/s", bytes, read, o->n_runs, 0,
                               "memory read, %zu threads", o->threads);
  m->dram_write = pen_bench_add(table, "bytes/s", bytes, written, o->n_runs, 0,
                                "memory written, %zu threads", o->threads);
  m->dram_update =
      pen_bench_add(table, "bytes/s", 6 * bytes, updated, o->n_runs, 0,
                    "memory in place, 3 arrays, %zu threads", o->threads);
  double copy = pen_bench_add(table, "bytes/s", bytes, copied, o->n_runs, 0,
                              "copy to the CPU as a device, 1 thread");
  if (!pen_machine_has_device(m)) /* whose link is another */
    m->upload = m->download = copy; /* the same memory both ways */
}

int pen_bench_memory(const struct pen_bench_options *options,
                     struct pen_bench_table *table, struct pen_machine *machine)
{
  struct pen_pool *pool = NULL;
  size_t bytes = (size_t)(options->bytes / 3) / 4096 * 4096;
  struct pass pass = {.n = bytes / sizeof(float)};
  pass.sums = calloc(n_items(pass.n) + 1, sizeof *pass.sums);
  int rc = pass.sums && pass.n
               ? pen_pool_create(options->threads, "bench", &pool)
               : pen_error_set(PEN_ENOFIT, "no memory to measure %zu bytes on",
                               bytes);
  if (rc == 0)
    rc = pen_bench_map(bytes, (void **)&pass.a);
  if (rc == 0)
    rc = pen_bench_map(bytes, (void **)&pass.b);
  if (rc == 0)
    rc = pen_bench_map(bytes, (void **)&pass.c);
  if (rc == 0)
    measure(options, pool, &pass, table, machine);
  pen_bench_unmap((void **)&pass.a, bytes);
  pen_bench_unmap((void **)&pass.b, bytes);
  pen_bench_unmap((void **)&pass.c, bytes);
  free(pass.sums);
  pen_pool_free(&pool);
  return rc;
}
