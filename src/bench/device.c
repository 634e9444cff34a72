/* device.c: what a device of its own can do: its link each way and both at once,
 * its memory, its products; through the calls that a run makes.
 *
 * Times are the device's own, between marks.  Operands are random: products of zeros take less power and are faster.  Main thread.
 * Disadvantage: square products alone; a layer's may be slower. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/backend.h"
#include "src/bench/link.h"

#define WIDTH_MAX ((size_t)8192)
#define WIDTH_STEP ((size_t)64)
#define WARM_SECONDS 0.1 /* an idle device takes a while to its clock */
#define PRODUCT_BYTES 4 /* of the widest elements, of each of three matrices */

struct device_bench {
  const struct pen_bench_options *o;
  struct pen_bench_table *table;
  struct pen_backend *backend;
  const struct pen_device *device;
  size_t bytes; /* of the arena and of host memory each: two halves */
  char *arena, *host, *pageable;
};

/* ---- timing ---- */

static int begin(const struct device_bench *b, enum pen_device_queue queue)
{
  return b->device->marks->begin(b->device, queue, 0);
}

/* ret_seconds NULL: what did not begin with begin(). */
static int end(const struct device_bench *b, enum pen_device_queue queue,
               double *ret_seconds)
{
  uint64_t ns = 0;
  int rc = b->device->marks->set(b->device, queue, 0);
  if (rc == 0)
    rc = b->device->marks->sync(b->device, queue, 0, ret_seconds ? &ns : NULL);
  if (ret_seconds)
    *ret_seconds = fmax((double)ns, 1) * 1e-9;
  return rc;
}

/* ---- the link ---- */

static struct pen_bench_link link_of(const struct device_bench *b)
{
  return (struct pen_bench_link){.device = b->device, .arena = b->arena,
                                 .host = b->host, .pageable = b->pageable,
                                 .bytes = b->bytes};
}

static int measure_link(const struct device_bench *b, struct pen_machine *m)
{
  struct pen_bench_link link = link_of(b);
  int rc = pen_bench_link_pinned(b->o, &link, b->table, m);
  return rc < 0 ? rc : pen_bench_link_pageable(b->o, &link, b->table, m);
}

/* ---- memory and products ---- */

static int time_add(const struct device_bench *b, struct pen_stream *s,
                    size_t n, double *ret_seconds)
{
  uint16_t *a = (uint16_t *)b->arena;
  int rc = begin(b, PEN_DEVICE_COMPUTE);
  if (rc < 0)
    return rc;
  b->backend->ops[PEN_ELEM_BF16]->add(s, n, a, a + n, a + 2 * n);
  rc = pen_stream_take_status(s);
  return rc < 0 ? rc : end(b, PEN_DEVICE_COMPUTE, ret_seconds);
}

/* Two arrays read and one written. */
static int measure_memory(const struct device_bench *b, struct pen_stream *s,
                          struct pen_machine *m)
{
  double seconds[PEN_BENCH_RUNS_MAX], warm;
  size_t n = b->bytes / (3 * sizeof(uint16_t)) / 64 * 64;
  int rc = time_add(b, s, n, &warm);
  for (size_t i = 0; rc == 0 && i < b->o->n_runs; i++)
    rc = time_add(b, s, n, &seconds[i]);
  if (rc == 0)
    m->device_memory =
        pen_bench_add(b->table, "bytes/s", 3.0 * sizeof(uint16_t) * (double)n,
                      seconds, b->o->n_runs, PEN_BENCH_NO_CEILING,
                      "device memory, 2 reads, 1 write");
  return rc;
}

/* The three products of a weight: forward, and backward to input and weight. */
static const struct {
  const char *name;
  bool a_trans, b_trans, to_sum;
} products[] = {{"forward", false, true, false},
                {"backward, to its input", false, false, false},
                {"backward, to its weight", true, false, true}};
enum { N_PRODUCTS = sizeof products / sizeof *products };

static int time_product(const struct device_bench *b, struct pen_stream *s,
                        const struct pen_gemm *g, double *ret_seconds)
{
  int rc = begin(b, PEN_DEVICE_COMPUTE);
  if (rc < 0)
    return rc;
  b->backend->ops[g->ab_elem]->gemm(s, g);
  rc = pen_stream_take_status(s);
  return rc < 0 ? rc : end(b, PEN_DEVICE_COMPUTE, ret_seconds);
}

/* *ret_rate: of all three one after the other. */
static int measure_products(const struct device_bench *b, struct pen_stream *s,
                            enum pen_elem elem, double *ret_rate)
{
  size_t width = (size_t)sqrt((double)b->bytes / (3 * PRODUCT_BYTES));
  width = width > WIDTH_MAX ? WIDTH_MAX : width / WIDTH_STEP * WIDTH_STEP;
  double flops = 2.0 * (double)width * (double)width * (double)width, all = 0;
  char *at = b->arena;
  size_t matrix = width * width * PRODUCT_BYTES;
  for (size_t k = 0; k < N_PRODUCTS; k++) {
    struct pen_gemm g = {.m = width, .n = width, .k = width,
                         .a = at, .lda = width, .a_trans = products[k].a_trans,
                         .b = at + matrix, .ldb = width,
                         .b_trans = products[k].b_trans, .ab_elem = elem,
                         .c = at + 2 * matrix, .ldc = width,
                         .c_elem = products[k].to_sum ? PEN_ELEM_F32 : elem,
                         .accumulate = products[k].to_sum};
    double seconds[PEN_BENCH_RUNS_MAX], warm = 0;
    int rc = 0;
    for (double been = 0; rc == 0 && been < WARM_SECONDS; been += warm)
      rc = time_product(b, s, &g, &warm);
    for (size_t i = 0; rc == 0 && i < b->o->n_runs; i++)
      rc = time_product(b, s, &g, &seconds[i]);
    if (rc < 0)
      return rc;
    all += 1 / pen_bench_add(b->table, "FLOP/s", flops, seconds, b->o->n_runs,
                             PEN_BENCH_NO_CEILING, "device, %s product of %zu, %s",
                             pen_elem_name(elem), width, products[k].name);
  }
  *ret_rate = N_PRODUCTS / all;
  return 0;
}

static int measure(const struct device_bench *b, struct pen_machine *m)
{
  struct pen_stream s = {.device = b->backend->stream_device};
  struct pen_bench_link link = link_of(b);
  int rc = pen_bench_link_pinned(b->o, &link, b->table, m);
  if (rc == 0)
    rc = measure_memory(b, &s, m);
  if (rc == 0)
    rc = measure_products(b, &s, PEN_ELEM_BF16, &m->device_bf16);
  return rc < 0 ? rc : measure_products(b, &s, PEN_ELEM_F32, &m->device_fp32);
}

/* ---- what is measured on ---- */

/* Every 16 bits one of +-[0.5, 1) in bf16; as fp32 they are such numbers too. */
static void fill(char *memory, size_t bytes)
{
  uint16_t *x = (uint16_t *)memory;
  uint32_t r = 1;
  for (size_t i = 0; i < bytes / sizeof *x; i++) {
    r = r * 1664525u + 1013904223u;
    x[i] = (uint16_t)((r >> 16 & 0x807f) | 0x3f00);
  }
}

static int bring(const struct device_bench *b)
{
  fill(b->host, b->bytes);
  int rc = b->device->upload(b->device, b->arena, b->host, b->bytes);
  return rc < 0 ? rc : end(b, PEN_DEVICE_UPLOAD, NULL);
}

static int pin(const struct device_bench *b)
{
  size_t pinned = 0;
  int rc = b->device->pin(b->device, b->host, b->bytes, &pinned);
  if (rc == 0 && pinned < b->bytes)
    rc = pen_error_set(PEN_ENOFIT,
                       "the system pins only %zu of %zu bytes of RAM, so that "
                       "copies are slow; raise the limit of locked memory",
                       pinned, b->bytes);
  return rc;
}

static void name_device(const struct pen_backend *backend,
                        struct pen_machine *m)
{
  const char *comma = strchr(backend->about, ','); /* "CUDA device 0, NAME ..." */
  snprintf(m->device, sizeof m->device, "%.*s", (int)sizeof m->device - 1,
           comma ? comma + 2 : backend->about);
  char *bracket = strstr(m->device, " (");
  if (bracket)
    *bracket = '\0';
  m->device_bytes = (double)(backend->device_bytes + backend->workspace_bytes);
}

/* Opens the device, takes what is measured on, and lets `fn` measure. */
static int with_device(const struct pen_bench_options *options, uint64_t number,
                       struct pen_bench_table *table, struct pen_machine *machine,
                       int (*fn)(const struct device_bench *b,
                                 struct pen_machine *m))
{
  struct device_bench b = {.o = options, .table = table};
  struct pen_machine m = *machine;
  void *arena = NULL, *host = NULL, *pageable = NULL;
  int rc = pen_backend_open("cuda", number, &b.backend);
  if (rc < 0)
    return rc;
  b.device = b.backend->device;
  b.bytes = options->bytes;
  if (b.bytes > b.backend->device_bytes / 2)
    b.bytes = (size_t)b.backend->device_bytes / 2;
  b.bytes = b.bytes / 8192 * 8192;
  rc = b.device->alloc(b.device, b.bytes, &arena);
  if (rc == 0)
    rc = pen_bench_map(b.bytes, &host);
  if (rc == 0)
    rc = pen_bench_map(b.bytes, &pageable);
  b.arena = arena;
  b.host = host;
  b.pageable = pageable;
  if (rc == 0)
    rc = pin(&b);
  if (rc == 0)
    rc = bring(&b);
  if (rc == 0)
    rc = fn(&b, &m);
  name_device(b.backend, &m);
  b.device->unpin(b.device);
  pen_bench_unmap(&host, b.bytes);
  pen_bench_unmap(&pageable, b.bytes);
  b.device->free(b.device, &arena, b.bytes);
  pen_backend_close(&b.backend);
  if (rc == 0)
    *machine = m;
  return rc;
}

int pen_bench_device(const struct pen_bench_options *options, uint64_t number,
                     struct pen_bench_table *table, struct pen_machine *machine)
{
  return with_device(options, number, table, machine, measure);
}

int pen_bench_device_link(const struct pen_bench_options *options,
                          uint64_t number, struct pen_bench_table *table,
                          struct pen_machine *machine)
{
  return with_device(options, number, table, machine, measure_link);
}
