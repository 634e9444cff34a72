/* products.c: shapes from two models, and the timing of libraries on them.
 *
 * dX is a product with the weight as it lies, dW one with the gradient turned,
 * added to fp32 sums.  The head's logits are made in chunks of its ids, as a
 * step does.  Disadvantage: the same memory every time, so what fits a cache
 * is found in it, by all alike. */
#include "bench/products.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "src/bench/bench.h"
#include "src/model/head.h"

static const struct {
  const char *model;
  const char *linear;
  size_t in, out;
} linears[] = {
    {"llama-1b", "qkv", 2048, 3072},    {"llama-1b", "o", 2048, 2048},
    {"llama-1b", "gate", 2048, 8192},   {"llama-1b", "down", 8192, 2048},
    {"llama-1b", "head", 2048, PEN_HEAD_CHUNK_IDS},
    {"smollm2-135m", "qkv", 576, 960},  {"smollm2-135m", "o", 576, 576},
    {"smollm2-135m", "gate", 576, 1536}, {"smollm2-135m", "down", 1536, 576},
    {"smollm2-135m", "head", 576, PEN_HEAD_CHUNK_IDS},
};

#define N_LINEARS (sizeof linears / sizeof *linears)

static size_t larger(size_t a, size_t b)
{
  return a > b ? a : b;
}

static void add(struct pen_products *p, const char *pass, size_t linear,
                struct pen_gemm gemm)
{
  size_t ab = pen_elem_bytes(gemm.ab_elem), c = pen_elem_bytes(gemm.c_elem);
  p->a_bytes = larger(p->a_bytes, gemm.m * gemm.k * ab);
  p->b_bytes = larger(p->b_bytes, gemm.n * gemm.k * ab);
  p->c_bytes = larger(p->c_bytes, gemm.m * gemm.n * c);
  p->items[p->n++] = (struct pen_product){linears[linear].model,
                                          linears[linear].linear, pass, gemm};
}

static void add_linear(struct pen_products *p, size_t linear, size_t tokens,
                       enum pen_elem elem)
{
  size_t in = linears[linear].in, out = linears[linear].out;
  bool head = strcmp(linears[linear].linear, "head") == 0;
  enum pen_elem wide = head ? PEN_ELEM_F32 : elem;
  add(p, "forward", linear,
      (struct pen_gemm){.m = tokens, .n = out, .k = in, .lda = in, .ldb = in,
                        .b_trans = true, .ab_elem = elem, .ldc = out,
                        .c_elem = wide});
  add(p, "dx", linear,
      (struct pen_gemm){.m = tokens, .n = in, .k = out, .lda = out, .ldb = in,
                        .ab_elem = elem, .ldc = in, .c_elem = wide,
                        .accumulate = head});
  add(p, "dw", linear,
      (struct pen_gemm){.m = out, .n = in, .k = tokens, .lda = out,
                        .a_trans = true, .ldb = in, .ab_elem = elem, .ldc = in,
                        .c_elem = PEN_ELEM_F32, .accumulate = true});
}

static void take(size_t bytes, void **ret_memory)
{
  if (pen_bench_map(bytes, ret_memory) < 0)
    pen_report_fail();
}

void pen_products_init(struct pen_products *ret_products,
                       const struct pen_arguments *arguments)
{
  struct pen_products *p = ret_products;
  enum pen_elem elem = (enum pen_elem)arguments->dtype;
  *p = (struct pen_products){.items = calloc(3 * N_LINEARS, sizeof *p->items)};
  if (!p->items) {
    pen_error_set(PEN_ENOFIT, "no memory for a list of products");
    pen_report_fail();
  }
  for (size_t i = 0; i < N_LINEARS; i++)
    if (strcmp(arguments->model, linears[i].model) == 0)
      add_linear(p, i, arguments->tokens, elem);
  take(p->a_bytes, &p->a);
  take(p->b_bytes, &p->b);
  take(p->c_bytes, &p->c);
  for (size_t i = 0; i < p->n; i++) {
    p->items[i].gemm.a = p->a;
    p->items[i].gemm.b = p->b;
    p->items[i].gemm.c = p->c;
  }
}

void pen_products_done(struct pen_products *products)
{
  pen_bench_unmap(&products->a, products->a_bytes);
  pen_bench_unmap(&products->b, products->b_bytes);
  pen_bench_unmap(&products->c, products->c_bytes);
  free(products->items);
  *products = (struct pen_products){.n = 0};
}

static void begin_ways(const struct pen_product *product, size_t n_threads,
                       const struct pen_rival *(*list)(size_t number),
                       struct pen_product_ways *ways)
{
  const struct pen_rival *rival;
  for (size_t i = 0; (rival = list(i)) && ways->n < PEN_PRODUCTS_RIVALS_MAX;
       i++) {
    ways->rival[ways->n] = rival;
    ways->job[ways->n] = rival->begin(rival, &product->gemm, n_threads);
    ways->n += ways->job[ways->n] != NULL;
  }
}

void pen_product_ways_begin(const struct pen_product *product, size_t n_threads,
                            struct pen_product_ways *ret_ways)
{
  ret_ways->n = 0;
  begin_ways(product, n_threads, pen_rival_onednn, ret_ways);
  begin_ways(product, n_threads, pen_rival_openblas, ret_ways);
  if (!ret_ways->n) {
    bool bf16 = product->gemm.ab_elem == PEN_ELEM_BF16;
    pen_error_set(-PEN_EUNSUPPORTED, "no product library makes %s %s of %s in "
                  "%s here: %s", product->linear, product->pass, product->model,
                  pen_elem_name(product->gemm.ab_elem),
                  bf16 ? "install libdnnl and use a processor with AVX512-BF16, "
                         "or give --dtype fp32"
                       : "install libdnnl or libopenblas0");
    pen_report_fail();
  }
}

void pen_product_ways_end(struct pen_product_ways *ways)
{
  for (size_t i = 0; i < ways->n; i++)
    ways->rival[i]->end(ways->job[i]);
  ways->n = 0;
}

double pen_product_time(const struct pen_arguments *a,
                        const struct pen_product *product,
                        void (*run)(void *ctx), void *ctx)
{
  const struct pen_gemm *g = &product->gemm;
  double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
  size_t calls = (size_t)(a->sample_flops / flops) + 1;
  /* OpenMP's threads spin for milliseconds after their work, and would take
   * from what runs next. */
  usleep((useconds_t)(a->rest_ms * 1000));
  for (size_t i = 0; i < (calls + 1) / 2; i++)
    run(ctx);
  uint64_t begin_ns = pen_clock_ns();
  for (size_t i = 0; i < calls; i++)
    run(ctx);
  double seconds = (double)(pen_clock_ns() - begin_ns) * 1e-9;
  return (double)calls * flops / seconds;
}

double pen_product_ways_time(const struct pen_arguments *a,
                             const struct pen_product *product,
                             const struct pen_product_ways *ways, size_t way)
{
  return pen_product_time(a, product, ways->rival[way]->run, ways->job[way]);
}

void pen_product_put(struct pen_report *report,
                     const struct pen_product *product, size_t n_threads)
{
  const struct pen_gemm *g = &product->gemm;
  struct pen_json_writer *w = &report->writer;
  pen_json_put_string(w, "model", product->model);
  pen_json_put_string(w, "linear", product->linear);
  pen_json_put_string(w, "pass", product->pass);
  pen_json_put_string(w, "dtype", pen_elem_name(g->ab_elem));
  pen_json_put_u64(w, "m", g->m);
  pen_json_put_u64(w, "n", g->n);
  pen_json_put_u64(w, "k", g->k);
  pen_json_put_u64(w, "threads", n_threads);
}
