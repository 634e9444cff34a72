/* streams.c: arrays for passes, and threads over them. */
#include "bench/streams.h"

#include "base/error.h"
#include "bench/crew.h"
#include "bench/report.h"
#include "bench/streams_pass.h"
#include "kernels/isa.h"
#include "src/bench/bench.h"

const struct pen_streams_row *pen_streams_row(enum pen_streams_kind kind)
{
  return pen_isa_detect() >= PEN_ISA_AVX512 ? &pen_streams_wide[kind]
                                            : &pen_streams_plain[kind];
}

static void take(void **ret_array, size_t bytes)
{
  if (pen_bench_map(bytes, ret_array) < 0)
    pen_report_fail();
}

void pen_streams_init(struct pen_streams *ret_streams, size_t n)
{
  struct pen_streams *s = ret_streams;
  s->n = n / 32 * 32;
  take((void **)&s->p, s->n * sizeof *s->p);
  take((void **)&s->m, s->n * sizeof *s->m);
  take((void **)&s->v, s->n * sizeof *s->v);
  take((void **)&s->grad, s->n * sizeof *s->grad);
  take((void **)&s->weight, s->n * sizeof *s->weight);
}

void pen_streams_done(struct pen_streams *streams)
{
  struct pen_streams *s = streams;
  pen_bench_unmap((void **)&s->p, s->n * sizeof *s->p);
  pen_bench_unmap((void **)&s->m, s->n * sizeof *s->m);
  pen_bench_unmap((void **)&s->v, s->n * sizeof *s->v);
  pen_bench_unmap((void **)&s->grad, s->n * sizeof *s->grad);
  pen_bench_unmap((void **)&s->weight, s->n * sizeof *s->weight);
}

struct job {
  const struct pen_streams *streams;
  pen_streams_pass *pass;
};

static void run_part(void *ctx, size_t thread, size_t n_threads)
{
  const struct job *job = ctx;
  size_t lines = job->streams->n / 32;
  job->pass(job->streams, lines * thread / n_threads * 32,
            lines * (thread + 1) / n_threads * 32);
}

double pen_streams_run(const struct pen_streams *streams,
                       const struct pen_streams_row *row, size_t n_threads)
{
  struct job job = {streams, row->pass};
  return pen_crew_run(n_threads, run_part, &job);
}
