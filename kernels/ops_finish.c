/* ops_finish.c: the host's gradient_finish: chunks of a gradient on the stream's
 * pool, each by the kernels of gradient.h.
 *
 * Disadvantage: a gradient of one chunk keeps all but one worker idle. */
#include "kernels/ops_finish.h"

#include <stdatomic.h>

#include "kernels/elem.h"
#include "kernels/gradient.h"

struct finish_args {
  enum pen_isa isa;
  enum pen_elem elem;
  size_t n, chunk_elems;
  const float *grad;
  void *stored;
  double *chunk_sumsq;
  atomic_uint_fast64_t nonfinite; /* added to by workers, read after them */
};

static void finish_chunk(void *ctx, size_t item, size_t worker)
{
  struct finish_args *g = ctx;
  (void)worker;
  size_t begin = item * g->chunk_elems, n = g->n - begin;
  const float *grad = g->grad ? g->grad + begin : NULL;
  uint64_t bad;
  if (n > g->chunk_elems)
    n = g->chunk_elems;
  if (g->elem == PEN_ELEM_BF16)
    bad = pen_gradient_finish_bf16(g->isa, n, g->chunk_elems, grad,
                                   (uint16_t *)g->stored + begin,
                                   g->chunk_sumsq + item);
  else
    bad = pen_gradient_finish_f32(g->isa, n, g->chunk_elems, grad,
                                  (float *)g->stored + begin,
                                  g->chunk_sumsq + item);
  atomic_fetch_add(&g->nonfinite, bad);
}

static void finish(struct pen_stream *s, struct finish_args *g,
                   uint64_t *nonfinite)
{
  size_t chunks = (g->n + g->chunk_elems - 1) / g->chunk_elems;
  g->isa = s->isa;
  pen_stream_run(s, chunks, finish_chunk, g);
  *nonfinite = atomic_load(&g->nonfinite);
}

void pen_ops_finish_bf16(struct pen_stream *s, size_t n, size_t chunk_elems,
                         const float *grad, void *stored, double *chunk_sumsq,
                         uint64_t *nonfinite)
{
  struct finish_args g = {.elem = PEN_ELEM_BF16, .n = n,
                          .chunk_elems = chunk_elems, .grad = grad,
                          .stored = stored, .chunk_sumsq = chunk_sumsq};
  finish(s, &g, nonfinite);
}

void pen_ops_finish_f32(struct pen_stream *s, size_t n, size_t chunk_elems,
                        const float *grad, void *stored, double *chunk_sumsq,
                        uint64_t *nonfinite)
{
  struct finish_args g = {.elem = PEN_ELEM_F32, .n = n,
                          .chunk_elems = chunk_elems, .grad = grad,
                          .stored = stored, .chunk_sumsq = chunk_sumsq};
  finish(s, &g, nonfinite);
}
