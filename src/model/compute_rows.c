/* compute_rows.c: the rows of the embedding that a step's tokens take, made and
 * finished by the host.
 *
 * On the update lane, with a stream of its own: what it shares with the compute lane
 * is constant during a step.  Nothing here allocates.  Disadvantage: a row is looked
 * for by its number in the step, block by block. */
#include <string.h>

#include "kernels/gradient.h"
#include "src/model/compute.h"

static int gather(void *ctx, size_t block, size_t micro, const void *w, void *x)
{
  struct pen_model *m = ctx;
  const struct pen_compute_micro *b = &m->micros[micro];
  const struct pen_param_block *info = &m->params->infos[block];
  m->host_ops->embed(&m->update_stream, b->ids, b->tokens, info->row_begin,
                     info->rows, m->params->config.hidden_size, m->embed_scale, w, x);
  return pen_stream_take_status(&m->update_stream);
}

static int gather_ahead(void *ctx, size_t micro, const void *rows, void *x)
{
  struct pen_model *m = ctx;
  const struct pen_compute_micro *b = &m->micros[micro];
  m->host_ops->embed(&m->update_stream, b->places, b->tokens, 0, m->rows.n,
                     m->params->config.hidden_size, m->embed_scale, rows, x);
  return pen_stream_take_status(&m->update_stream);
}

static void step_rows(void *ctx, size_t block, struct pen_step_rows *ret_rows)
{
  struct pen_model *m = ctx;
  const struct pen_param_block *info = &m->params->infos[block];
  *ret_rows = (struct pen_step_rows){.ids = m->rows.ids,
                                     .n = m->rows.n,
                                     .begin = info->row_begin,
                                     .end = info->row_begin + info->rows,
                                     .width = m->params->config.hidden_size};
}

static int scatter(void *ctx, size_t micro, const void *d, float *sums)
{
  struct pen_model *m = ctx;
  const struct pen_compute_micro *b = &m->micros[micro];
  m->host_ops->embed_backward(&m->update_stream, b->places, b->tokens, 0,
                              m->rows.n, m->params->config.hidden_size,
                              m->embed_scale, d, sums);
  return pen_stream_take_status(&m->update_stream);
}

/* The i-th of the step's rows, if it lies in the block. */
struct step_row {
  bool is_here;
  size_t begin; /* its first element in the block */
  size_t place; /* its first number in arrays of the step's rows */
};

static struct step_row step_row(const struct pen_model *m, size_t block, size_t i)
{
  const struct pen_param_block *info = &m->params->infos[block];
  size_t dim = m->params->config.hidden_size, id = m->rows.ids[i];
  return (struct step_row){
      id >= info->row_begin && id < info->row_begin + info->rows,
      (id - info->row_begin) * dim, i * dim};
}

static int keep_rows(void *ctx, size_t block, const float *grad, void *stored,
                     float *kept)
{
  struct pen_model *m = ctx;
  size_t dim = m->params->config.hidden_size;
  m->host_ops->from_f32(&m->update_stream, m->params->blocks[block].elems, grad,
                        stored);
  for (size_t i = 0; i < m->rows.n; i++) {
    struct step_row row = step_row(m, block, i);
    if (row.is_here)
      memcpy(kept + row.place, grad + row.begin, dim * sizeof *kept);
  }
  return pen_stream_take_status(&m->update_stream);
}

static int finish_rows(void *ctx, size_t block, const float *sums, float *kept,
                       void *stored, struct pen_finish_result *result)
{
  struct pen_model *m = ctx;
  size_t dim = m->params->config.hidden_size;
  size_t elem = pen_elem_bytes(m->options.elem);
  if (!kept)
    memset(stored, 0, m->params->blocks[block].elems * elem);
  for (size_t i = 0; i < m->rows.n; i++) {
    struct step_row row = step_row(m, block, i);
    if (!row.is_here)
      continue;
    if (kept)
      pen_gradient_accumulate(m->options.isa, dim, kept + row.place,
                              sums + row.place);
    m->host_ops->from_f32(&m->update_stream, dim,
                          (kept ? kept : sums) + row.place,
                          (char *)stored + row.begin * elem);
  }
  m->host_ops->gradient_finish(&m->update_stream,
                               m->params->blocks[block].elems,
                               PEN_NORM_CHUNK_ELEMS, NULL, stored,
                               result->chunk_sumsq, result->nonfinite);
  return pen_stream_take_status(&m->update_stream);
}

void pen_compute_init_rows(struct pen_compute *compute)
{
  compute->gather = gather;
  compute->gather_ahead = gather_ahead;
  compute->rows = step_rows;
  compute->scatter = scatter;
  compute->keep_rows = keep_rows;
  compute->finish_rows = finish_rows;
}
