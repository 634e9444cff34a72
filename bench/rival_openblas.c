/* rival_openblas.c: OpenBLAS on whole fp32 matrices with its own threads, or on
 * panels of rows with one thread each.
 *
 * The library is the one that kernels/gemm_openblas.c loads with the right core
 * type; its number of threads is put back to one, as that file left it.
 * Disadvantage: packaged builds have no bf16 products, so it has none here. */
#include "bench/rival.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "bench/crew.h"

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; /* the standard's */
typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k,
                      float alpha, const float *a, int lda, const float *b,
                      int ldb, float beta, float *c, int ldc);

struct job {
  struct pen_gemm g;
  size_t n_panels, n_threads;
  sgemm_fn *sgemm;
  void (*set_num_threads)(int);
};

static void end(void *job)
{
  free(job);
}

static void *begin(const struct pen_rival *rival, const struct pen_gemm *g,
                   size_t n_threads)
{
  struct job *job = calloc(1, sizeof *job);
  bool can = job && g->ab_elem == PEN_ELEM_F32 && g->c_elem == PEN_ELEM_F32 &&
             pen_gemm_openblas.open(PEN_ELEM_F32) == 0;
  void *library = can ? dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) {
    pen_error_clear();
    free(job);
    return NULL;
  }
  void *symbols[] = {dlsym(library, "cblas_sgemm"),
                     dlsym(library, "openblas_set_num_threads")};
  memcpy(&job->sgemm, &symbols[0], sizeof symbols[0]);
  memcpy(&job->set_num_threads, &symbols[1], sizeof symbols[1]);
  job->g = *g;
  job->n_panels = rival->panels ? n_threads : 1;
  job->n_threads = rival->panels ? 1 : n_threads;
  return job;
}

static void run_panel(void *ctx, size_t thread, size_t n_threads)
{
  const struct job *job = ctx;
  const struct pen_gemm *g = &job->g;
  size_t first = g->m * thread / n_threads;
  size_t end_row = g->m * (thread + 1) / n_threads;
  job->sgemm(ROW_MAJOR, g->a_trans ? TRANS : NO_TRANS,
             g->b_trans ? TRANS : NO_TRANS, (int)(end_row - first), (int)g->n,
             (int)g->k, 1,
             (const float *)g->a + first * (g->a_trans ? 1 : g->lda),
             (int)g->lda, g->b, (int)g->ldb, g->accumulate ? 1 : 0,
             (float *)g->c + first * g->ldc, (int)g->ldc);
}

static void run(void *opaque)
{
  struct job *job = opaque;
  job->set_num_threads((int)job->n_threads);
  pen_crew_run(job->n_panels, run_panel, job);
  job->set_num_threads(1);
}

static const struct pen_rival rivals[] = {
    {"openblas", begin, run, end, false, 0},
    {"openblas-panels", begin, run, end, true, 0},
};

const struct pen_rival *pen_rival_openblas(size_t number)
{
  return number < sizeof rivals / sizeof *rivals ? &rivals[number] : NULL;
}
