/* bench_adamw.c: AdamW on arrays far larger than the caches, in turn with the
 * same streams without arithmetic.
 *
 * "arrays": the kernel, p, m and v each an array of its own.  "tiles": as a run
 * updates, by pen_update_tile, tile after tile, each p, m and v together.
 * Disadvantage: the two lie in memory of their own, so it takes twice the
 * state. */
#include "bench/arguments.h"
#include "bench/report.h"
#include "bench/streams.h"
#include "base/clock.h"
#include "base/error.h"
#include "offload/update.h"
#include "src/bench/bench.h"

struct tiles {
  size_t n, elems; /* of a tile */
  struct pen_block block; /* holds all tiles, all decayed */
  struct pen_block_range range;
  struct pen_workload workload;
  float *state; /* [n, 3, elems] */
};

static double rates[3][PEN_REPORT_RUNS_MAX]; /* roof, arrays, tiles */

static void init_tiles(const struct pen_arguments *a, size_t n_elements,
                       struct tiles *t)
{
  *t = (struct tiles){.elems = a->tile_size < n_elements ? a->tile_size
                                                         : n_elements};
  t->elems -= t->elems % PEN_STATE_GROUP_ELEMS;
  t->n = n_elements / t->elems;
  t->range = (struct pen_block_range){0, t->n * t->elems, true};
  t->block = (struct pen_block){.name = "all", .elems = t->n * t->elems,
                                .ranges = &t->range, .n_ranges = 1};
  t->workload = (struct pen_workload){.blocks = &t->block, .n_blocks = 1,
                                      .weight_elem_bytes = sizeof(uint16_t),
                                      .state = &pen_state_fp32};
  if (pen_bench_map(t->n * t->elems * 3 * sizeof(float), (void **)&t->state) < 0)
    pen_report_fail();
}

static double update_tiles(struct pen_pool *pool, const struct tiles *t,
                           const struct pen_bench_adamw *job)
{
  uint64_t begin_ns = pen_clock_ns();
  for (size_t i = 0; i < t->n; i++) {
    struct pen_tile tile = {.begin = i * t->elems, .elems = t->elems};
    struct pen_update update = {.isa = job->isa,
                                .params = &job->params,
                                .workload = &t->workload,
                                .tile = &tile,
                                .state = t->state + i * 3 * t->elems,
                                .grad = job->grad + tile.begin,
                                .weight = job->weight + tile.begin};
    pen_update_tile(pool, &update);
  }
  return (double)(pen_clock_ns() - begin_ns) * 1e-9;
}

static void measure(const struct pen_arguments *a, struct pen_pool *pool,
                    const struct pen_streams *s, struct pen_bench_adamw *job,
                    const struct tiles *t)
{
  const struct pen_streams_row *roof = pen_streams_row(PEN_STREAMS_ADAMW);
  for (size_t i = 0; i <= a->repeats; i++) {
    size_t at = i ? i - 1 : 0; /* the first does not count */
    rates[0][at] = (double)s->n / pen_streams_run(s, roof, a->threads);
    rates[1][at] = (double)job->n / pen_bench_adamw_pass(pool, job);
    rates[2][at] = (double)t->range.end / update_tiles(pool, t, job);
  }
}

static void report_all(struct pen_report *report, const struct pen_arguments *a,
                       const struct pen_bench_adamw *job, const struct tiles *t)
{
  static const char *const names[] = {"roof_memory.adamw", "bench_adamw.arrays",
                                      "bench_adamw.tiles"};
  struct pen_report_series series[3];
  for (int i = 0; i < 3; i++)
    series[i] = (struct pen_report_series){names[i], "parameters/s", rates[i],
                                           a->repeats};
  for (int i = 1; i < 3; i++) { /* the roof stands in the others' lines */
    pen_report_begin(report, names[i]);
    pen_json_put_u64(&report->writer, "elements", i == 2 ? t->range.end : job->n);
    pen_json_put_u64(&report->writer, "threads", a->threads);
    pen_json_put_string(&report->writer, "isa", pen_isa_name(job->isa));
    if (i == 2)
      pen_json_put_u64(&report->writer, "tile_elements", t->elems);
    pen_report_end(report, &series[i], &series[0]);
  }
}

int main(int argc, char **argv)
{
  struct pen_arguments a;
  struct pen_report report;
  struct pen_streams s;
  struct pen_bench_adamw job;
  struct pen_pool *pool = NULL;
  struct tiles tiles;
  enum pen_isa isa;
  pen_arguments_parse(PEN_BENCH_ADAMW, argc, argv, &a);
  pen_report_init(&report, argc, argv);
  if (pen_isa_choose(NULL, &isa) < 0 || pen_bench_adamw_init(isa, &job) < 0 ||
      pen_pool_create(a.threads, "bench", &pool) < 0)
    pen_report_fail();
  pen_streams_init(&s, a.elements);
  job.n = s.n, job.p = s.p, job.m = s.m, job.v = s.v;
  job.grad = s.grad, job.weight = s.weight;
  init_tiles(&a, s.n, &tiles);
  measure(&a, pool, &s, &job, &tiles);
  report_all(&report, &a, &job, &tiles);
  pen_bench_unmap((void **)&tiles.state, tiles.range.end * 3 * sizeof(float));
  pen_pool_free(&pool);
  pen_streams_done(&s);
  pen_arguments_done(&a);
  return 0;
}
