/* bench_gemm.c: our products on our pool, in turn with what a library does best
 * alone for the same shape.
 *
 * All ways of all libraries run first; the best of a few runs each is the
 * ceiling that is then measured beside us.  Disadvantage: where two ways are
 * near each other, the lesser may be chosen. */
#include <stdlib.h>

#include "base/error.h"
#include "bench/arguments.h"
#include "bench/products.h"
#include "bench/report.h"
#include "kernels/stream.h"

#define TRIALS 3 /* of each way, after one that does not count */

static double roof[PEN_REPORT_RUNS_MAX], ours[PEN_REPORT_RUNS_MAX];

static size_t best_way(const struct pen_arguments *a,
                       const struct pen_product *product,
                       const struct pen_product_ways *ways)
{
  double best[PEN_PRODUCTS_RIVALS_MAX] = {0};
  size_t found = 0;
  for (int i = 0; i <= TRIALS; i++)
    for (size_t w = 0; w < ways->n; w++) {
      double rate = pen_product_ways_time(a, product, ways, w);
      if (i > 0 && rate > best[w])
        best[w] = rate;
    }
  for (size_t w = 1; w < ways->n; w++)
    if (best[w] > best[found])
      found = w;
  return found;
}

struct ours {
  struct pen_stream *stream;
  const struct pen_gemm *gemm;
};

static void run_ours(void *ctx)
{
  const struct ours *o = ctx;
  pen_gemm_run(o->stream, o->gemm);
}

static void measure(struct pen_report *report, const struct pen_arguments *a,
                    struct pen_stream *s, const struct pen_product *product)
{
  struct pen_product_ways ways;
  pen_product_ways_begin(product, a->threads, &ways);
  size_t way = best_way(a, product, &ways);
  for (size_t i = 0; i <= a->repeats; i++) {
    size_t at = i ? i - 1 : 0; /* the first does not count */
    roof[at] = pen_product_ways_time(a, product, &ways, way);
    ours[at] = pen_product_time(a, product, run_ours,
                                &(struct ours){s, &product->gemm});
    if (pen_stream_take_status(s) < 0)
      pen_report_fail();
  }
  struct pen_report_series series = {"", "FLOP/s", ours, a->repeats};
  struct pen_report_series ceiling = {ways.rival[way]->name, "FLOP/s", roof,
                                      a->repeats};
  pen_report_begin(report, "bench_gemm.product");
  pen_product_put(report, product, a->threads);
  pen_json_put_string(&report->writer, "library", s->gemm->name);
  pen_report_end(report, &series, &ceiling);
  pen_product_ways_end(&ways);
}

int main(int argc, char **argv)
{
  struct pen_arguments a;
  struct pen_report report;
  struct pen_products products;
  struct pen_stream s = {.isa = PEN_ISA_SCALAR};
  pen_arguments_parse(PEN_BENCH_GEMM, argc, argv, &a);
  pen_report_init(&report, argc, argv);
  if (pen_isa_choose(NULL, &s.isa) < 0 ||
      pen_gemm_find(a.gemm, (enum pen_elem)a.dtype, &s.gemm) < 0 ||
      pen_pool_create(a.threads, "bench", &s.pool) < 0)
    pen_report_fail();
  s.scratch = aligned_alloc(64, a.threads * PEN_STREAM_SCRATCH_BYTES);
  if (!s.scratch) {
    pen_error_set(PEN_ENOFIT, "no memory for scratch");
    pen_report_fail();
  }
  pen_products_init(&products, &a);
  for (size_t i = 0; i < products.n; i++)
    measure(&report, &a, &s, &products.items[i]);
  pen_products_done(&products);
  free(s.scratch);
  pen_pool_free(&s.pool);
  pen_arguments_done(&a);
  return 0;
}
