/* memory.c: passes over arrays far larger than the caches, as plain as can be;
 * the compiler's own vectors reach the bandwidth.  For each number of threads,
 * on all nodes together and, where there are several, on each alone.
 *
 * Pages lie where the workers that use them ran first.  Disadvantage: nobody
 * reads another node's memory here on purpose, so the link between nodes is not
 * seen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "kernels/device.h"
#include "offload/division.h"
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

static void copy_range(void *ctx, size_t item, size_t worker)
{
  const struct pass *pass = ctx;
  size_t begin = item * PEN_BENCH_RANGE_ELEMS, end = range_end(pass, begin);
  (void)worker;
  memcpy(pass->b + begin, pass->a + begin, (end - begin) * sizeof(float));
}

/* McCalpin's STREAM (1995) */
static void triad_range(void *ctx, size_t item, size_t worker)
{
  const struct pass *pass = ctx;
  const float factor = 0.5f;
  size_t begin = item * PEN_BENCH_RANGE_ELEMS, end = range_end(pass, begin);
  float *restrict a = pass->a;
  const float *restrict b = pass->b, *restrict c = pass->c;
  (void)worker;
  for (size_t i = begin; i < end; i++)
    a[i] = b[i] + factor * c[i];
}

static void touch_range(void *ctx, size_t item, size_t worker)
{
  struct pass *pass = ctx, other = *pass;
  write_range(pass, item, worker);
  other.a = pass->b;
  write_range(&other, item, worker);
  other.a = pass->c;
  write_range(&other, item, worker);
}

enum { READ, WRITE, COPY, TRIAD, UPDATE, KINDS };

/* Bytes an element, as the program asks for them: what a cache fetches before
 * it is written is not counted. */
static const struct {
  const char *name;
  double bytes;
  void (*fn)(void *, size_t, size_t);
} kinds[KINDS] = {
    [READ] = {"read", 4, read_range},
    [WRITE] = {"written", 4, write_range},
    [COPY] = {"copied", 8, copy_range},
    [TRIAD] = {"triad", 12, triad_range},
    [UPDATE] = {"in place, 3 arrays", 24, update_range},
};

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

/* ---- the arrays ---- */

static void unmap(struct pass *pass)
{
  size_t bytes = pass->n * sizeof(float);
  pen_bench_unmap((void **)&pass->a, bytes);
  pen_bench_unmap((void **)&pass->b, bytes);
  pen_bench_unmap((void **)&pass->c, bytes);
  free(pass->sums);
  pass->sums = NULL;
}

/* Three of them, which nobody has touched. */
static int map(uint64_t all_bytes, struct pass *pass)
{
  size_t bytes = (size_t)(all_bytes / 3) / 4096 * 4096;
  *pass = (struct pass){.n = bytes / sizeof(float)};
  pass->sums = calloc(n_items(pass->n) + 1, sizeof *pass->sums);
  int rc = pass->sums && pass->n
               ? pen_bench_map_bare(bytes, (void **)&pass->a)
               : pen_error_set(PEN_ENOFIT, "no memory to measure %zu bytes on",
                               bytes);
  if (rc == 0)
    rc = pen_bench_map_bare(bytes, (void **)&pass->b);
  if (rc == 0)
    rc = pen_bench_map_bare(bytes, (void **)&pass->c);
  return rc;
}

/* ---- one set of CPUs, several numbers of threads ---- */

struct series {
  const char *where; /* "memory", "node 0 memory" */
  size_t threads[PEN_BENCH_LIST_MAX], n_threads;
  double seconds[PEN_BENCH_LIST_MAX][KINDS][PEN_BENCH_RUNS_MAX];
};

static void time_passes(const struct pen_bench_options *o, struct pen_pool *pool,
                        struct pass *pass,
                        double seconds[KINDS][PEN_BENCH_RUNS_MAX])
{
  for (size_t run = 0; run <= o->n_runs; run++) /* the first does not count */
    for (int kind = 0; kind < KINDS; kind++)
      seconds[kind][run ? run - 1 : 0] = run_pass(pool, pass, kinds[kind].fn);
}

/* Of the kinds, by their medians, with the i-th number of threads. */
static int best_kind(const struct pen_bench_options *o, struct series *s,
                     size_t i, size_t n, double *ret_rate)
{
  int best = READ;
  *ret_rate = 0;
  for (int kind = 0; kind < KINDS; kind++) {
    double rate = kinds[kind].bytes * (double)n /
                  pen_bench_median(s->seconds[i][kind], o->n_runs);
    best = rate > *ret_rate ? kind : best;
    *ret_rate = rate > *ret_rate ? rate : *ret_rate;
  }
  return best;
}

/* Each kind is held against the best one of as many threads, that one against
 * the best of the most.  The last rates go to ret_rates. */
static void tell(const struct pen_bench_options *o, struct series *s, size_t n,
                 struct pen_bench_table *table, double ret_rates[KINDS])
{
  char names[2][80];
  struct pen_bench_ceiling ceilings[2] = {{0, names[0]}, {0, names[1]}};
  size_t last = s->n_threads - 1;
  int top = best_kind(o, s, last, n, &ceilings[1].rate);
  snprintf(names[1], sizeof names[1], "%s %s, %zu threads", s->where,
           kinds[top].name, s->threads[last]);
  for (size_t i = 0; i < s->n_threads; i++) {
    int best = best_kind(o, s, i, n, &ceilings[0].rate);
    snprintf(names[0], sizeof names[0], "%s %s, %zu threads", s->where,
             kinds[best].name, s->threads[i]);
    for (int kind = 0; kind < KINDS; kind++)
      ret_rates[kind] = pen_bench_add(
          table, "bytes/s", kinds[kind].bytes * (double)n, s->seconds[i][kind],
          o->n_runs,
          kind != best ? ceilings[0]
          : i != last  ? ceilings[1]
                       : PEN_BENCH_NO_CEILING,
          "%s %s, %zu threads", s->where, kinds[kind].name, s->threads[i]);
  }
}

/* ---- all nodes ---- */

static int make_pool(const struct pen_topology *topology, size_t threads,
                     struct pen_division *division, struct pen_pool **ret_pool)
{
  struct pen_division_wish wish = {.threads = threads, .numa = true};
  int rc = pen_division_make(topology, &wish, division);
  if (rc == 0)
    pen_division_enter(division, PEN_LANE_COMPUTE);
  return rc < 0 ? rc
                : pen_pool_create_teams(&division->compute, "bench", ret_pool);
}

static double copy_pass(const struct pass *pass)
{
  uint64_t begin = pen_clock_ns();
  pen_device_host_discrete.upload(&pen_device_host_discrete, pass->b, pass->a,
                                  pass->n * sizeof(float));
  return (double)(pen_clock_ns() - begin) * 1e-9;
}

/* What uploads are where the CPU plays a device; a device's own link counts
 * more (device.c). */
static void measure_copy(const struct pen_bench_options *o,
                         const struct pass *pass, struct pen_bench_table *table,
                         struct pen_machine *m)
{
  double copied[PEN_BENCH_RUNS_MAX];
  for (size_t i = 0; i < o->n_runs; i++)
    copied[i] = copy_pass(pass);
  double rate = pen_bench_add(table, "bytes/s", (double)pass->n * sizeof(float),
                              copied, o->n_runs, PEN_BENCH_NO_CEILING,
                              "copy to the CPU as a device, 1 thread");
  if (!pen_machine_has_device(m))
    m->upload = m->download = rate; /* the same memory both ways */
}

static int measure_all(const struct pen_bench_options *o,
                       const struct pen_topology *topology, struct series *s,
                       struct pen_bench_table *table, struct pen_machine *m)
{
  struct pass pass = {.n = 0};
  double rates[KINDS];
  int rc = map(o->bytes, &pass);
  s->where = "memory";
  s->n_threads = o->n_thread_list;
  /* The most threads first: they decide where pages lie. */
  for (size_t i = s->n_threads; rc == 0 && i-- > 0;) {
    struct pen_division division = {.binds = false};
    struct pen_pool *pool = NULL;
    s->threads[i] = o->thread_list[i];
    rc = make_pool(topology, s->threads[i], &division, &pool);
    if (rc == 0 && i + 1 == s->n_threads)
      run_pass(pool, &pass, touch_range);
    if (rc == 0)
      time_passes(o, pool, &pass, s->seconds[i]);
    pen_pool_free(&pool);
    pen_division_done(&division);
  }
  if (rc == 0) {
    tell(o, s, pass.n, table, rates);
    m->dram_read = rates[READ];
    m->dram_write = rates[WRITE];
    m->dram_update = rates[UPDATE];
    measure_copy(o, &pass, table, m);
  }
  unmap(&pass);
  return rc;
}

/* ---- one node ---- */

/* The calling thread is bound to it, and with it all that it starts. */
static int measure_node(const struct pen_bench_options *o, uint32_t number,
                        size_t n_cpus, struct series *s,
                        struct pen_bench_table *table)
{
  struct pass pass = {.n = 0};
  double rates[KINDS];
  char where[32];
  int rc = map(o->bytes, &pass);
  snprintf(where, sizeof where, "node %u memory", number);
  s->where = where;
  s->n_threads = 0;
  for (size_t i = 0; i < o->n_thread_list; i++)
    if (o->thread_list[i] < n_cpus)
      s->threads[s->n_threads++] = o->thread_list[i];
  if (s->n_threads < PEN_BENCH_LIST_MAX)
    s->threads[s->n_threads++] = n_cpus;
  for (size_t i = 0; rc == 0 && i < s->n_threads; i++) {
    struct pen_pool *pool = NULL;
    rc = pen_pool_create(s->threads[i], "bench", &pool);
    if (rc == 0 && i == 0)
      run_pass(pool, &pass, touch_range);
    if (rc == 0)
      time_passes(o, pool, &pass, s->seconds[i]);
    pen_pool_free(&pool);
  }
  if (rc == 0)
    tell(o, s, pass.n, table, rates);
  unmap(&pass);
  return rc;
}

static int measure_nodes(const struct pen_bench_options *o,
                         const struct pen_topology *t, struct series *s,
                         struct pen_bench_table *table)
{
  uint32_t *cpus = calloc(t->n_cpus, sizeof *cpus);
  int rc = cpus ? 0 : pen_error_set(PEN_ENOFIT, "no memory for a list of CPUs");
  for (uint32_t node = 0; rc == 0 && node < t->n_nodes; node++) {
    size_t n = 0;
    for (size_t i = 0; i < t->n_cpus; i++)
      if (t->cpus[i].node == node)
        cpus[n++] = t->cpus[i].number;
    rc = pen_thread_bind(cpus, n);
    if (rc == 0)
      rc = measure_node(o, t->node_number[node], n, s, table);
  }
  free(cpus);
  return rc;
}

int pen_bench_memory(const struct pen_bench_options *options,
                     struct pen_bench_table *table, struct pen_machine *machine)
{
  struct pen_topology topology = {.n_nodes = 1};
  struct series *s = calloc(1, sizeof *s);
  uint32_t *allowed = NULL;
  size_t n_allowed = 0;
  int rc = s ? pen_topology_read(&topology)
             : pen_error_set(PEN_ENOFIT, "no memory for a series");
  if (rc == 0)
    rc = pen_thread_allowed_cpus(&allowed, &n_allowed);
  if (rc == 0)
    rc = measure_all(options, &topology, s, table, machine);
  if (rc == 0 && topology.n_nodes > 1)
    rc = measure_nodes(options, &topology, s, table);
  if (rc == 0) /* what comes after runs anywhere again */
    rc = pen_thread_bind(allowed, n_allowed);
  free(allowed);
  free(s);
  pen_topology_done(&topology);
  return rc;
}
