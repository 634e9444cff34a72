/* roof_gemm.c: product libraries alone on the products of a step, each in all
 * the ways it has, in turn.
 *
 * Disadvantage: the same product again and again, which a step does not do. */
#include "bench/arguments.h"
#include "bench/products.h"
#include "bench/report.h"

static double rates[PEN_PRODUCTS_RIVALS_MAX][PEN_REPORT_RUNS_MAX];

static void measure(struct pen_report *report, const struct pen_arguments *a,
                    const struct pen_product *product)
{
  struct pen_product_ways ways;
  pen_product_ways_begin(product, a->threads, &ways);
  for (size_t i = 0; i <= a->repeats; i++) /* the first does not count */
    for (size_t w = 0; w < ways.n; w++)
      rates[w][i ? i - 1 : 0] = pen_product_ways_time(a, product, &ways, w);
  for (size_t w = 0; w < ways.n; w++) {
    struct pen_report_series series = {"", "FLOP/s", rates[w], a->repeats};
    pen_report_begin(report, "roof_gemm.product");
    pen_product_put(report, product, a->threads);
    pen_json_put_string(&report->writer, "library", ways.rival[w]->name);
    pen_report_end(report, &series, NULL);
  }
  pen_product_ways_end(&ways);
}

int main(int argc, char **argv)
{
  struct pen_arguments a;
  struct pen_report report;
  struct pen_products products;
  pen_arguments_parse(PEN_ROOF_GEMM, argc, argv, &a);
  pen_report_init(&report, argc, argv);
  pen_products_init(&products, &a);
  for (size_t i = 0; i < products.n; i++)
    measure(&report, &a, &products.items[i]);
  pen_products_done(&products);
  pen_arguments_done(&a);
  return 0;
}
