/* gemm.c: a layer's three matrix products in turn, forward and the two of backward,
 * by the library that a run takes, with many rows and with few.
 *
 * Disadvantage: one shape of weights; small models reach less. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "kernels/stream.h"
#include "kernels/gemm.h"
#include "src/bench/bench.h"

#define WIDTH ((size_t)2048)
#define ROWS_PLAIN 64 /* for plain C, which takes ten times as long */

/* x, y, dx [rows, WIDTH]; w [WIDTH, WIDTH]; sums [WIDTH, WIDTH] fp32 */
struct arrays {
  void *x, *y, *dx, *w, *sums;
};

/* What is measured in turns. */
struct sizes {
  const struct pen_gemm_library *library;
  enum pen_elem elem;
  const size_t *rows; /* [n], the most first */
  size_t n;
};

static void layer(struct pen_stream *s, enum pen_elem elem, size_t rows,
                  const struct arrays *a)
{
  struct pen_gemm g = {.m = rows, .n = WIDTH, .k = WIDTH,
                       .lda = WIDTH, .ldb = WIDTH, .ldc = WIDTH,
                       .a = a->x, .b = a->w, .b_trans = true, .c = a->y,
                       .ab_elem = elem, .c_elem = elem};
  pen_gemm_run(s, &g);
  g.a = a->y, g.b_trans = false, g.c = a->dx; /* of the input */
  pen_gemm_run(s, &g);
  g.m = WIDTH, g.k = rows, g.a_trans = true; /* of the weights */
  g.b = a->x, g.c = a->sums, g.c_elem = PEN_ELEM_F32, g.accumulate = true;
  pen_gemm_run(s, &g);
}

/* All sizes in turns, each with as many operations, so that a machine that is
 * slow for a while is so for all of them.  Seconds of so many operations. */
static int time_layers(const struct pen_bench_options *o, size_t threads,
                       const struct sizes *z, const struct arrays *a,
                       double (*ret_seconds)[PEN_BENCH_RUNS_MAX])
{
  struct pen_stream s = {.isa = o->isa, .gemm = z->library};
  int rc = pen_pool_create(threads, "bench", &s.pool);
  if (rc < 0)
    return rc;
  s.scratch = aligned_alloc(64, threads * PEN_STREAM_SCRATCH_BYTES);
  if (!s.scratch)
    rc = pen_error_set(PEN_ENOFIT, "no memory for scratch");
  for (size_t i = 0; rc == 0 && i < z->n * (o->n_runs + 1); i++) {
    size_t size = i % z->n, run = i / z->n;
    size_t passes = run > 0 ? z->rows[0] / z->rows[size] : 1;
    uint64_t begin = pen_clock_ns();
    for (size_t pass = 0; pass < passes; pass++)
      layer(&s, z->elem, z->rows[size], a);
    if (run > 0) /* the first makes what the library keeps */
      ret_seconds[size][run - 1] = (double)(pen_clock_ns() - begin) * 1e-9;
    rc = pen_stream_take_status(&s);
  }
  free(s.scratch);
  pen_pool_free(&s.pool);
  return rc;
}

/* Rows of one number of threads; in the profile where rates go. */
static int measure(const struct pen_bench_options *o, size_t threads,
                   const struct sizes *z, const struct arrays *a,
                   struct pen_bench_table *table, const double *core,
                   double *ret_rates)
{
  static double seconds[PEN_MACHINE_ROWS][PEN_BENCH_RUNS_MAX];
  double flops = 6.0 * (double)(z->rows[0] * WIDTH * WIDTH);
  int rc = time_layers(o, threads, z, a, seconds);
  for (size_t i = 0; rc == 0 && i < z->n; i++)
    ret_rates[i] = pen_bench_add(
        table, "FLOP/s", flops, seconds[i], o->n_runs,
        (struct pen_bench_ceiling){core ? core[i] * (double)threads : 0,
                                   "as many times one thread"},
        "%s products, %zu rows, %zu thread%s, %s", pen_elem_name(z->elem),
        z->rows[i], threads, threads > 1 ? "s" : "", z->library->name);
  return rc;
}

/* Plain C is as fast, or as slow, with any rows. */
static int measure_sizes(const struct pen_bench_options *o, enum pen_elem elem,
                         const struct arrays *a, struct pen_bench_table *table,
                         struct pen_machine *machine)
{
  static const size_t few = ROWS_PLAIN;
  struct sizes z = {.elem = elem, .rows = pen_machine_rows, .n = PEN_MACHINE_ROWS};
  double core[PEN_MACHINE_ROWS] = {0}, all[PEN_MACHINE_ROWS] = {0};
  int rc = pen_gemm_find("auto", elem, &z.library);
  if (rc == 0 && z.library == &pen_gemm_reference) {
    z.rows = &few;
    z.n = 1;
  }
  if (rc == 0)
    rc = measure(o, 1, &z, a, table, NULL, core);
  if (rc == 0)
    rc = measure(o, o->threads, &z, a, table, core, all);
  for (size_t i = 0; rc == 0 && i < PEN_MACHINE_ROWS; i++) {
    struct pen_machine_products *p = &machine->products[i];
    *(elem == PEN_ELEM_BF16 ? &p->bf16_core : &p->fp32_core) = core[i];
    *(elem == PEN_ELEM_BF16 ? &p->bf16_all : &p->fp32_all) = all[i];
  }
  return rc;
}

int pen_bench_gemm(const struct pen_bench_options *options,
                   struct pen_bench_table *table, struct pen_machine *machine)
{
  size_t wide = WIDTH * WIDTH * sizeof(float);
  size_t rows = pen_machine_rows[0] * WIDTH * sizeof(float);
  struct arrays a = {NULL};
  int rc = pen_bench_map(rows, &a.x);
  if (rc == 0)
    rc = pen_bench_map(rows, &a.y);
  if (rc == 0)
    rc = pen_bench_map(rows, &a.dx);
  if (rc == 0)
    rc = pen_bench_map(wide, &a.w);
  if (rc == 0)
    rc = pen_bench_map(wide, &a.sums);
  if (rc == 0)
    rc = measure_sizes(options, PEN_ELEM_BF16, &a, table, machine);
  if (rc == 0)
    rc = measure_sizes(options, PEN_ELEM_F32, &a, table, machine);
  pen_bench_unmap(&a.x, rows);
  pen_bench_unmap(&a.y, rows);
  pen_bench_unmap(&a.dx, rows);
  pen_bench_unmap(&a.w, wide);
  pen_bench_unmap(&a.sums, wide);
  return rc;
}
