/* rival_onednn.c: oneDNN's matmul on whole matrices with its own threads, or on
 * panels of rows with one thread each; in the layouts that are there, or in
 * those that it asks for.
 *
 * "packed": B was brought into its layout before, as weights can be that are
 * used again; "repacked": each time.  Any failure means that this way cannot.
 * Disadvantage: A and C always stay in plain layouts. */
#include "bench/rival.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

#include "bench/crew.h"

enum packing { PLAIN, PACKED, REPACKED };

#define PANELS_MAX 64

struct panel {
  dnnl_primitive_t product, pack; /* pack: B to its layout */
  dnnl_memory_t a, b, packed, c;
  dnnl_stream_t stream;
};

struct job {
  size_t n_panels, n_threads; /* threads of the library for each panel */
  enum packing packing;
  dnnl_engine_t engine;
  void (*set_num_threads)(int);
  struct panel panels[PANELS_MAX];
};

static bool good(dnnl_status_t status)
{
  return status == dnnl_success;
}

/* [rows, cols] as it lies in memory; any: as the library likes. */
static bool describe(dnnl_memory_desc_t *md, size_t rows, size_t cols,
                     size_t ld, bool trans, enum pen_elem elem, bool any)
{
  dnnl_dims_t dims = {(dnnl_dim_t)rows, (dnnl_dim_t)cols};
  dnnl_dims_t strides = {trans ? 1 : (dnnl_dim_t)ld,
                         trans ? (dnnl_dim_t)ld : 1};
  dnnl_data_type_t type = elem == PEN_ELEM_BF16 ? dnnl_bf16 : dnnl_f32;
  return good(any ? dnnl_memory_desc_init_by_tag(md, 2, dims, type,
                                                 dnnl_format_tag_any)
                  : dnnl_memory_desc_init_by_strides(md, 2, dims, type,
                                                     strides));
}

static dnnl_primitive_attr_t attributes(const struct pen_gemm *g)
{
  dnnl_primitive_attr_t attr = NULL;
  dnnl_post_ops_t ops = NULL;
  if (good(dnnl_primitive_attr_create(&attr)) && g->accumulate &&
      good(dnnl_post_ops_create(&ops))) {
    dnnl_post_ops_append_sum(ops, 1);
    dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_post_ops_destroy(ops);
  }
  return attr;
}

static bool make_pack(struct job *job, struct panel *p,
                      const dnnl_memory_desc_t *from,
                      const dnnl_memory_desc_t *to)
{
  dnnl_primitive_desc_t pd;
  if (!good(dnnl_memory_create(&p->packed, to, job->engine,
                               DNNL_MEMORY_ALLOCATE)) ||
      !good(dnnl_reorder_primitive_desc_create(&pd, from, job->engine, to,
                                               job->engine, NULL)))
    return false;
  bool made = good(dnnl_primitive_create(&p->pack, pd));
  dnnl_primitive_desc_destroy(pd);
  return made;
}

static void pack(const struct panel *p)
{
  dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, p->b}, {DNNL_ARG_TO, p->packed}};
  dnnl_primitive_execute(p->pack, p->stream, 2, args);
  dnnl_stream_wait(p->stream);
}

static bool make_panel(struct job *job, struct panel *p,
                       const struct pen_gemm *g)
{
  dnnl_memory_desc_t a, b, want_b, c;
  dnnl_matmul_desc_t desc;
  dnnl_primitive_desc_t pd = NULL;
  bool any = job->packing != PLAIN;
  if (!describe(&a, g->m, g->k, g->lda, g->a_trans, g->ab_elem, false) ||
      !describe(&b, g->k, g->n, g->ldb, g->b_trans, g->ab_elem, false) ||
      !describe(&want_b, g->k, g->n, g->ldb, g->b_trans, g->ab_elem, any) ||
      !describe(&c, g->m, g->n, g->ldc, false, g->c_elem, false) ||
      !good(dnnl_matmul_desc_init(&desc, &a, &want_b, NULL, &c)) ||
      !good(dnnl_stream_create(&p->stream, job->engine,
                               dnnl_stream_default_flags)))
    return false;
  dnnl_primitive_attr_t attr = attributes(g);
  bool made = attr && good(dnnl_primitive_desc_create(&pd, &desc, attr,
                                                      job->engine, NULL));
  dnnl_primitive_attr_destroy(attr);
  if (!made)
    return false;
  want_b = *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
  made = good(dnnl_primitive_create(&p->product, pd)) &&
         good(dnnl_memory_create(&p->a, &a, job->engine, (void *)(uintptr_t)g->a)) &&
         good(dnnl_memory_create(&p->b, &b, job->engine, (void *)(uintptr_t)g->b)) &&
         good(dnnl_memory_create(&p->c, &c, job->engine, g->c));
  dnnl_primitive_desc_destroy(pd);
  if (made && any)
    made = make_pack(job, p, &b, &want_b);
  if (made && any)
    pack(p);
  return made;
}

static void end(void *opaque)
{
  struct job *job = opaque;
  for (size_t i = 0; i < job->n_panels; i++) {
    struct panel *p = &job->panels[i];
    dnnl_memory_t memories[] = {p->a, p->b, p->packed, p->c};
    dnnl_primitive_destroy(p->product);
    dnnl_primitive_destroy(p->pack);
    for (int k = 0; k < 4; k++)
      dnnl_memory_destroy(memories[k]);
    dnnl_stream_destroy(p->stream);
  }
  dnnl_engine_destroy(job->engine);
  free(job);
}

/* Rows [first, end) of A and C. */
static struct pen_gemm rows_of(const struct pen_gemm *g, size_t first, size_t end)
{
  struct pen_gemm part = *g;
  part.m = end - first;
  part.a = (const char *)g->a +
           first * (g->a_trans ? 1 : g->lda) * pen_elem_bytes(g->ab_elem);
  part.c = (char *)g->c + first * g->ldc * pen_elem_bytes(g->c_elem);
  return part;
}

static void *begin(const struct pen_rival *rival, const struct pen_gemm *g,
                   size_t n_threads)
{
  struct job *job = calloc(1, sizeof *job);
  void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
  if (!job)
    return NULL;
  memcpy(&job->set_num_threads, &symbol, sizeof symbol);
  job->packing = (enum packing)rival->packing;
  job->n_panels = rival->panels ? n_threads : 1;
  job->n_threads = rival->panels ? 1 : n_threads;
  bool made = symbol && job->n_panels <= PANELS_MAX && job->n_panels <= g->m &&
              good(dnnl_engine_create(&job->engine, dnnl_cpu, 0));
  if (made)
    job->set_num_threads((int)job->n_threads);
  for (size_t i = 0; made && i < job->n_panels; i++) {
    struct pen_gemm part = rows_of(g, g->m * i / job->n_panels,
                                   g->m * (i + 1) / job->n_panels);
    made = make_panel(job, &job->panels[i], &part);
  }
  if (made)
    return job;
  end(job);
  return NULL;
}

static void run_panel(void *ctx, size_t thread, size_t n_threads)
{
  const struct job *job = ctx;
  const struct panel *p = &job->panels[thread];
  bool packed = job->packing != PLAIN;
  dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->a},
                            {DNNL_ARG_WEIGHTS, packed ? p->packed : p->b},
                            {DNNL_ARG_DST, p->c}};
  (void)n_threads;
  job->set_num_threads((int)job->n_threads);
  if (job->packing == REPACKED)
    pack(p);
  dnnl_primitive_execute(p->product, p->stream, 3, args);
  dnnl_stream_wait(p->stream);
}

static void run(void *opaque)
{
  struct job *job = opaque;
  pen_crew_run(job->n_panels, run_panel, job);
}

static const struct pen_rival rivals[] = {
    {"onednn", begin, run, end, false, PLAIN},
    {"onednn-packed", begin, run, end, false, PACKED},
    {"onednn-repacked", begin, run, end, false, REPACKED},
    {"onednn-panels", begin, run, end, true, PLAIN},
    {"onednn-panels-packed", begin, run, end, true, PACKED},
};

const struct pen_rival *pen_rival_onednn(size_t number)
{
  return number < sizeof rivals / sizeof *rivals ? &rivals[number] : NULL;
}
