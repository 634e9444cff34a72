/* products.h: the products of a training step, by model, and the libraries'
 * ways to make them. */
#ifndef PEN_BENCH_PRODUCTS_H
#define PEN_BENCH_PRODUCTS_H

#include <stddef.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "bench/rival.h"

#define PEN_PRODUCTS_RIVALS_MAX 8

/* A product and its matrices, which all products share. */
struct pen_product {
  const char *model, *linear, *pass; /* "forward", "dx", "dw" */
  struct pen_gemm gemm;
};

/* A list of the model's products at a number of tokens; memory is the list's
 * own.  Ends the program where there is none. */
struct pen_products {
  struct pen_product *items;
  size_t n;
  void *a, *b, *c;
  size_t a_bytes, b_bytes, c_bytes;
};
void pen_products_init(struct pen_products *ret_products,
                       const struct pen_arguments *arguments);
void pen_products_done(struct pen_products *products);

/* The ways that can make this product, begun. */
struct pen_product_ways {
  size_t n;
  const struct pen_rival *rival[PEN_PRODUCTS_RIVALS_MAX];
  void *job[PEN_PRODUCTS_RIVALS_MAX];
};
void pen_product_ways_begin(const struct pen_product *product, size_t n_threads,
                            struct pen_product_ways *ret_ways);
void pen_product_ways_end(struct pen_product_ways *ways);
/* FLOP/s of calls that follow one another as in a step, after a rest and some
 * calls that do not count. */
double pen_product_time(const struct pen_arguments *a,
                        const struct pen_product *product,
                        void (*run)(void *ctx), void *ctx);
double pen_product_ways_time(const struct pen_arguments *a,
                             const struct pen_product *product,
                             const struct pen_product_ways *ways, size_t way);

/* What tells one product from the others. */
void pen_product_put(struct pen_report *report,
                     const struct pen_product *product, size_t n_threads);

#endif
