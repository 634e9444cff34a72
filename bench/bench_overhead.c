/* bench_overhead.c: what a step costs besides arithmetic and transfers: the
 * schedule, its proof, lanes, tickets, pools, the store's tables, checksums of
 * what is written, commits.
 *
 * A run of many tiles on an engine that moves nothing, with a model that
 * computes nothing and blocks without a range for AdamW.  What stays are the
 * sums' clearing and memory's own traffic.  Beside it stands the least time of
 * a step of a model with as many parameters: six operations for each and token,
 * at the rate that our products reach in turn with it.  Disadvantage: a null
 * engine gives nothing to check, so checksums of what is read are not in it. */
#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/error.h"
#include "bench/arguments.h"
#include "bench/products.h"
#include "bench/report.h"
#include "io/store.h"
#include "kernels/stream.h"
#include "offload/run.h"

#define FLOPS_PER_WEIGHT 6.0 /* and token: forward 2, backward 4 */

static double walls[PEN_REPORT_RUNS_MAX], cpus[PEN_REPORT_RUNS_MAX],
    wall_shares[PEN_REPORT_RUNS_MAX], cpu_shares[PEN_REPORT_RUNS_MAX];

/* ---- a model that computes nothing ---- */

static int gather(void *ctx, size_t block, size_t micro, const void *w, void *x)
{
  return 0;
}

static int put_inputs(void *ctx, size_t micro, void *inputs)
{
  return 0;
}

static int forward(void *ctx, size_t block, size_t micro,
                   const struct pen_inputs *in, const void *w, const void *x,
                   void *y, void *saved, void *work)
{
  return 0;
}

static int backward(void *ctx, size_t block, size_t micro,
                    const struct pen_inputs *in, const void *w, const void *x,
                    const void *saved, void *d, float *grad, void *work)
{
  return 0;
}

static int head_begin(void *ctx, size_t micro, float *stats)
{
  return 0;
}

static int head_forward(void *ctx, size_t block, size_t micro,
                        const struct pen_inputs *in, const void *w,
                        const void *x, float *stats, void *saved,
                        void *work)
{
  return 0;
}

static int head_loss(void *ctx, size_t micro, const struct pen_inputs *in,
                     const float *stats, const void *balance, double *ret_loss)
{
  *ret_loss = 0;
  return 0;
}

static int head_backward(void *ctx, size_t block, size_t micro,
                         const struct pen_inputs *in, const void *w,
                         const void *x, const float *stats,
                         const void *saved, float *dx,
                         float *grad, void *work)
{
  return 0;
}

static int head_end(void *ctx, size_t micro, const float *dx, void *d)
{
  return 0;
}

static int scatter(void *ctx, size_t micro, const void *d, float *sums)
{
  return 0;
}

static int finish(void *ctx, size_t block, const float *grad,
                  void *stored, struct pen_finish_result *result)
{
  const struct pen_block *blocks = ctx;
  size_t n = (blocks[block].elems + PEN_NORM_CHUNK_ELEMS - 1) /
             PEN_NORM_CHUNK_ELEMS;
  for (size_t i = 0; i < n; i++)
    result->chunk_sumsq[i] = 0;
  *result->nonfinite = 0;
  return 0;
}

static int keep_rows(void *ctx, size_t block, const float *grad, void *stored,
                     float *kept)
{
  return 0;
}

static int finish_rows(void *ctx, size_t block, const float *sums, float *kept,
                       void *stored, struct pen_finish_result *result)
{
  return finish(ctx, block, sums, stored, result);
}

/* ---- the run ---- */

struct idle {
  struct pen_block *blocks; /* body, then one of the embedding and head */
  struct pen_workload workload;
  struct pen_compute compute;
  struct pen_layout layout;
  struct pen_run_plan plan;
  struct pen_store *store;
  struct pen_pool *pool;
  struct pen_run *run;
  uint64_t step;
};

/* tiles spread evenly over `n` blocks of the body; one is the head's. */
static void make_workload(struct idle *idle, const struct pen_arguments *a)
{
  size_t n = a->blocks, left = a->tiles - 1;
  if (left < n) {
    pen_error_set(PEN_EUSAGE, "%zu tiles leave some of %zu blocks and the head "
                  "without one; give more --tiles", (size_t)a->tiles, n);
    pen_report_fail();
  }
  idle->blocks = calloc(n + 1, sizeof *idle->blocks);
  if (!idle->blocks) {
    pen_error_set(PEN_ENOFIT, "no memory for %zu blocks", n);
    pen_report_fail();
  }
  for (size_t b = 0; b <= n; b++) {
    size_t tiles = b == n ? 1 : left / n + (b < left % n);
    idle->blocks[b] = (struct pen_block){.name = "idle",
                                         .elems = tiles * a->tile_size};
  }
  idle->workload = (struct pen_workload){
      .blocks = idle->blocks, .n_blocks = n + 1,
      .rows_begin = n, .rows_end = n + 1, .body_end = n,
      .head_begin = n, .head_end = n + 1,
      .weight_elem_bytes = sizeof(uint16_t), .state = &pen_state_fp32,
      .n_micros_max = 1,
      .act_bytes = 4096, .dhead_bytes = 4096, .stats_bytes = 4096,
      .work_bytes = 4096, .inputs_bytes = 64, .rows_bytes = 4096};
  idle->compute = (struct pen_compute){
      .ctx = idle->blocks, .gather = gather, .put_inputs = put_inputs,
      .forward = forward, .backward = backward, .head_begin = head_begin,
      .head_forward = head_forward, .head_loss = head_loss,
      .head_backward = head_backward, .head_end = head_end,
      .scatter = scatter, .keep_rows = keep_rows, .finish = finish,
      .finish_rows = finish_rows};
}

static int open_store(struct idle *idle)
{
  static const char *const dirs[] = {"nowhere"};
  struct pen_store_options o = {.dirs = dirs, .n_dirs = 1,
                                .engine = pen_engine_find("null"),
                                .tile_bytes = idle->layout.tile_bytes,
                                .n_tiles = idle->layout.n_store_tiles,
                                .n_extents = 2 * idle->layout.n_store_tiles};
  return pen_store_create(&o, true, &idle->store);
}

/* State stays as it is: zero. */
static int load(void *ctx, uint32_t tile, size_t begin, size_t n, float *p,
                float *m, float *v)
{
  return 0;
}

static void start(struct idle *idle, const struct pen_arguments *a,
                  enum pen_isa isa)
{
  const struct pen_placement placement = {
      .unified = true, .weights_host_bytes = PEN_ALL_BYTES,
      .gradients_host_bytes = PEN_ALL_BYTES,
      .activations_host_bytes = PEN_ALL_BYTES, .group_size = 1,
      .tile_elems = a->tile_size, .weight_slots = 3, .gradient_slots = 2,
      .tile_slots = 4, .activation_slots = 4};
  *idle = (struct idle){.step = 0};
  make_workload(idle, a);
  int rc = pen_layout_init(&idle->layout, &idle->workload, &placement);
  if (rc == 0)
    rc = pen_run_plan(&idle->workload, &idle->layout, true, &idle->plan);
  if (rc == 0)
    rc = open_store(idle);
  if (rc == 0)
    rc = pen_pool_create(a->threads, "update", &idle->pool);
  struct pen_run_options o = {.workload = &idle->workload,
                              .compute = &idle->compute,
                              .layout = &idle->layout,
                              .device = &pen_device_host_unified,
                              .store = idle->store,
                              .update_pool = idle->pool,
                              .isa = isa,
                              .io_depth = 8};
  if (rc == 0)
    rc = pen_run_create(&o, &idle->plan, &idle->run);
  if (rc == 0)
    rc = pen_run_load(idle->run, load, NULL);
  if (rc < 0)
    pen_report_fail();
}

static void stop(struct idle *idle)
{
  pen_run_free(&idle->run);
  pen_pool_free(&idle->pool);
  pen_store_close(&idle->store);
  pen_layout_done(&idle->layout);
  free(idle->blocks);
}

static double cpu_seconds(void)
{
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void step(struct idle *idle, double *ret_wall, double *ret_cpu)
{
  struct pen_shape shape = {.kind = PEN_STEP_TRAIN, .n_micros = 1,
                            .n_tokens = 1};
  struct pen_run_update update = {.apply = true, .commit = true,
                                  .step = idle->step++};
  struct pen_run_result result;
  double cpu = cpu_seconds();
  uint64_t begin_ns = pen_clock_ns();
  if (pen_run_step(idle->run, &shape, &update, &result) < 0)
    pen_report_fail();
  *ret_wall = (double)(pen_clock_ns() - begin_ns) * 1e-9;
  *ret_cpu = cpu_seconds() - cpu;
}

/* ---- the step of a real model ---- */

struct product {
  struct pen_stream stream;
  struct pen_products all;
};

static void run_product(void *ctx)
{
  struct product *p = ctx;
  pen_gemm_run(&p->stream, &p->all.items[0].gemm);
}

static void open_product(struct product *p, const struct pen_arguments *a)
{
  *p = (struct product){.stream = {.isa = PEN_ISA_SCALAR}};
  if (pen_isa_choose(NULL, &p->stream.isa) < 0 ||
      pen_gemm_find(a->gemm, (enum pen_elem)a->dtype, &p->stream.gemm) < 0 ||
      pen_pool_create(a->threads, "compute", &p->stream.pool) < 0)
    pen_report_fail();
  p->stream.scratch = aligned_alloc(64, a->threads * PEN_STREAM_SCRATCH_BYTES);
  if (!p->stream.scratch) {
    pen_error_set(PEN_ENOFIT, "no memory for scratch");
    pen_report_fail();
  }
  pen_products_init(&p->all, a);
}

static void close_product(struct product *p)
{
  pen_products_done(&p->all);
  free(p->stream.scratch);
  pen_pool_free(&p->stream.pool);
}

/* Seconds, at least. */
static double real_step(struct product *p, const struct pen_arguments *a)
{
  double parameters = (double)a->tiles * (double)a->tile_size;
  double rate = pen_product_time(a, &p->all.items[0], run_product, p);
  if (pen_stream_take_status(&p->stream) < 0)
    pen_report_fail();
  return FLOPS_PER_WEIGHT * parameters * (double)a->tokens / rate;
}

/* ---- */

static void measure(const struct pen_arguments *a, struct idle *idle,
                    struct product *product)
{
  double wall, cpu;
  for (int i = 0; i < 2; i++) /* the first has no update */
    step(idle, &wall, &cpu);
  for (size_t i = 0; i < a->repeats; i++) {
    double real = real_step(product, a);
    step(idle, &walls[i], &cpus[i]);
    wall_shares[i] = 100 * walls[i] / real;
    cpu_shares[i] = 100 * cpus[i] / (real * (double)a->threads);
  }
}

static void report_one(struct pen_report *report, const struct pen_arguments *a,
                       const char *name, const char *unit, const double *values)
{
  struct pen_report_series series = {"", unit, values, a->repeats};
  pen_report_begin(report, name);
  pen_json_put_u64(&report->writer, "tiles", a->tiles);
  pen_json_put_u64(&report->writer, "tile_elements", a->tile_size);
  pen_json_put_u64(&report->writer, "blocks", a->blocks);
  pen_json_put_u64(&report->writer, "tokens", a->tokens);
  pen_json_put_u64(&report->writer, "threads", a->threads);
  pen_report_end(report, &series, NULL);
}

int main(int argc, char **argv)
{
  struct pen_arguments a;
  struct pen_report report;
  struct idle idle;
  struct product product;
  pen_arguments_parse(PEN_BENCH_OVERHEAD, argc, argv, &a);
  pen_report_init(&report, argc, argv);
  open_product(&product, &a);
  start(&idle, &a, product.stream.isa);
  measure(&a, &idle, &product);
  report_one(&report, &a, "bench_overhead.wall", "s", walls);
  report_one(&report, &a, "bench_overhead.cpu", "s", cpus);
  report_one(&report, &a, "bench_overhead.wall_share", "%", wall_shares);
  report_one(&report, &a, "bench_overhead.cpu_share", "%", cpu_shares);
  stop(&idle);
  close_product(&product);
  pen_arguments_done(&a);
  return 0;
}
