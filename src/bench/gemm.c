/* gemm.c: matrix products in a layer's shape, by the library that a run takes.
 *
 * Disadvantage: one shape, large in every direction; small models reach less. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "kernels/stream.h"
#include "kernels/gemm.h"
#include "src/bench/bench.h"

#define TOKENS 512
#define WIDTH ((size_t)2048)
#define TOKENS_PLAIN 64 /* for plain C, which takes ten times as long */

/* Seconds of each run with this many threads. */
static int time_products(const struct pen_bench_options *o, size_t threads,
                         const struct pen_gemm_library *library,
                         const struct pen_gemm *g, double *ret_seconds)
{
  struct pen_stream s = {.isa = o->isa, .gemm = library};
  int rc = pen_pool_create(threads, "bench", &s.pool);
  if (rc < 0)
    return rc;
  s.scratch = aligned_alloc(64, threads * PEN_STREAM_SCRATCH_BYTES);
  if (!s.scratch)
    rc = pen_error_set(PEN_ENOFIT, "no memory for scratch");
  for (size_t i = 0; rc == 0 && i <= o->n_runs; i++) {
    uint64_t begin = pen_clock_ns();
    pen_gemm_run(&s, g);
    if (i > 0) /* the first makes what the library keeps */
      ret_seconds[i - 1] = (double)(pen_clock_ns() - begin) * 1e-9;
    rc = pen_stream_take_status(&s);
  }
  free(s.scratch);
  pen_pool_free(&s.pool);
  return rc;
}

static int measure(const struct pen_bench_options *o, enum pen_elem elem,
                   struct pen_gemm *g, struct pen_bench_table *table,
                   double *ret_core, double *ret_all)
{
  const struct pen_gemm_library *library;
  double seconds[PEN_BENCH_RUNS_MAX];
  int rc = pen_gemm_find("auto", elem, &library);
  g->ab_elem = g->c_elem = elem;
  g->m = rc == 0 && library == &pen_gemm_reference ? TOKENS_PLAIN : TOKENS;
  double flops = 2.0 * (double)(g->m * g->n * g->k);
  if (rc == 0)
    rc = time_products(o, 1, library, g, seconds);
  if (rc < 0)
    return rc;
  double core = pen_bench_add(table, "FLOP/s", flops, seconds, o->n_runs,
                              PEN_BENCH_NO_CEILING, "%s product, 1 thread, %s", pen_elem_name(elem),
                              library->name);
  rc = time_products(o, o->threads, library, g, seconds);
  if (rc < 0)
    return rc;
  *ret_core = core;
  *ret_all = pen_bench_add(table, "FLOP/s", flops, seconds, o->n_runs,
                           (struct pen_bench_ceiling){
                               core * (double)o->threads,
                               "as many times one thread"},
                           "%s product, %zu threads, %s", pen_elem_name(elem),
                           o->threads, library->name);
  return 0;
}

int pen_bench_gemm(const struct pen_bench_options *options,
                   struct pen_bench_table *table, struct pen_machine *machine)
{
  size_t wide = WIDTH * WIDTH * sizeof(float);
  void *a = NULL, *b = NULL, *c = NULL;
  int rc = pen_bench_map(wide, &a);
  if (rc == 0)
    rc = pen_bench_map(wide, &b);
  if (rc == 0)
    rc = pen_bench_map(wide, &c);
  struct pen_gemm g = {.n = WIDTH, .k = WIDTH,
                       .a = a, .lda = WIDTH,
                       .b = b, .ldb = WIDTH, .b_trans = true,
                       .c = c, .ldc = WIDTH};
  if (rc == 0)
    rc = measure(options, PEN_ELEM_BF16, &g, table, &machine->bf16_core,
                 &machine->bf16_all);
  if (rc == 0)
    rc = measure(options, PEN_ELEM_F32, &g, table, &machine->fp32_core,
                 &machine->fp32_all);
  pen_bench_unmap(&a, wide);
  pen_bench_unmap(&b, wide);
  pen_bench_unmap(&c, wide);
  return rc;
}
