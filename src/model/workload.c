/* workload.c: making a model: one allocation, laid out once.
 *
 * Main thread.  Invariant: the sizing function and the creating one run the same
 * layout code, so the plan's number is the allocation's.  Disadvantage: what a
 * run never uses (rows of logits, say) is laid out where options allow it. */
#include "src/model/workload.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/size.h"
#include "kernels/bf16.h"
#include "src/model/compute.h"
#include "src/model/costs.h"
#include "src/model/head.h"
#include "src/model/rope.h"

#define ALIGN ((size_t)64)

/* ---- memory ---- */

/* Hands out pieces of one allocation; with base NULL it only counts. */
struct carver {
  char *base;
  size_t used;
  bool overflow;
};

static void *carve(struct carver *c, size_t count, size_t each)
{
  size_t bytes, end, begin = c->used;
  if (!pen_size_mul(count, each, &bytes) ||
      !pen_size_round_up(bytes, ALIGN, &bytes) ||
      !pen_size_add(begin, bytes, &end)) {
    c->overflow = true;
    return NULL;
  }
  c->used = end;
  return c->base ? c->base + begin : NULL;
}

/* Bytes of a layer's keys, and of its values. */
static size_t layer_cache_bytes(const struct pen_params *params,
                                const struct pen_model_options *o)
{
  const struct pen_model_config *c = &params->config;
  return pen_attention_cache_elems(o->cache_tokens, c->n_kv_heads,
                                   c->head_dim) *
         pen_elem_bytes(o->elem);
}

/* Of the embedding, that a step can take at most. */
static size_t step_rows(const struct pen_params *params,
                        const struct pen_model_options *o)
{
  size_t tokens;
  if (!pen_size_mul(o->max_tokens, o->max_micros, &tokens) ||
      tokens > params->vocab_rows)
    return params->vocab_rows;
  return tokens;
}

static void lay_out(struct pen_model *m, const struct pen_params *params,
                    size_t n_threads, struct carver *c)
{
  const struct pen_model_options *o = &m->options;
  const struct pen_rope_config *rope = &params->config.rope;
  size_t tokens = o->max_tokens, half = rope->dim / 2;
  struct pen_compute_micro *micros =
      carve(c, o->max_micros, sizeof *m->micros);
  m->micros = micros;
  for (size_t i = 0; i < o->max_micros && !c->overflow; i++) {
    struct pen_compute_micro b = {.tokens = 0};
    b.ids = carve(c, tokens, sizeof *b.ids);
    b.places = carve(c, tokens, sizeof *b.places);
    b.positions = carve(c, tokens, sizeof *b.positions);
    b.first_key = carve(c, tokens, sizeof *b.first_key);
    b.first_in_window = carve(c, tokens, sizeof *b.first_in_window);
    b.targets = carve(c, tokens, sizeof *b.targets);
    b.logit_rows = carve(c, o->max_logit_rows, sizeof *b.logit_rows);
    if (micros)
      micros[i] = b;
  }
  m->rows.ids = carve(c, step_rows(params, o), sizeof *m->rows.ids);
  m->rows.places = carve(c, params->vocab_rows, sizeof *m->rows.places);
  size_t table = 0;
  if (!pen_size_mul(pen_rope_rows(rope, pen_compute_positions(&params->config, o)), half, &table))
    c->overflow = true;
  size_t tables_begin = c->used;
  m->cosines = carve(c, table, sizeof *m->cosines);
  m->sines_at = c->used - tables_begin;
  m->sines = carve(c, table, sizeof *m->sines);
  m->workload.tables = m->cosines;
  m->workload.tables_bytes = c->used - tables_begin;
  if (!o->ops)
    m->stream.scratch = carve(c, n_threads, PEN_STREAM_SCRATCH_BYTES);
}

/* Where a micro-batch's arrays lie in its inputs. */
static void lay_out_inputs(struct pen_model *m)
{
  const struct pen_model_options *o = &m->options;
  struct carver c = {NULL, 0, false}; /* counted before, with more per token */
  m->positions_at = c.used;
  carve(&c, o->max_tokens, sizeof *m->micros->positions);
  m->first_key_at = c.used;
  carve(&c, o->max_tokens, sizeof *m->micros->first_key);
  m->first_in_window_at = c.used;
  carve(&c, o->max_tokens, sizeof *m->micros->first_in_window);
  m->targets_at = c.used;
  carve(&c, o->max_tokens, sizeof *m->micros->targets);
  m->logit_rows_at = c.used;
  carve(&c, o->max_logit_rows, sizeof *m->micros->logit_rows);
  m->workload.inputs_bytes = c.used;
}

static int count_bytes(const struct pen_params *params,
                       const struct pen_model_options *options,
                       size_t n_threads, size_t *ret_bytes)
{
  struct pen_model m = {.options = *options};
  struct carver c = {NULL, 0, false};
  lay_out(&m, params, n_threads, &c);
  if (c.overflow)
    return pen_error_set(-EOVERFLOW,
                         "cannot count the memory of %zu micro-batches of %zu "
                         "tokens",
                         options->max_micros, options->max_tokens);
  *ret_bytes = c.used;
  return 0;
}

int pen_model_host_bytes(const struct pen_params *params,
                         const struct pen_model_options *options,
                         size_t n_threads, size_t *ret_bytes)
{
  size_t bytes;
  int r = count_bytes(params, options, n_threads, &bytes);
  if (r)
    return r;
  *ret_bytes = bytes + sizeof(struct pen_model) + ALIGN;
  return 0;
}

/* ---- making ---- */

static size_t max_size(size_t a, size_t b)
{
  return a > b ? a : b;
}

static void fill_workload(struct pen_model *m)
{
  const struct pen_model_options *o = &m->options;
  const struct pen_model_config *config = &m->params->config;
  size_t tokens = o->max_tokens, hidden = config->hidden_size;
  struct pen_workload *w = &m->workload;
  pen_params_workload(m->params, w);
  pen_costs_fill(m->params, o->document_tokens > 0 ? o->document_tokens
                                                   : (double)tokens);
  for (size_t i = 0; i < w->n_blocks; i++)
    m->params->blocks[i].saved_bytes =
        pen_workload_is_head(w, i)
            ? pen_head_saved_bytes(m->params->infos[i].rows_valid, tokens)
        : i < w->head_begin ? m->layers[m->params->infos[i].kind].saved_bytes
                            : 0;
  w->weight_elem_bytes = pen_elem_bytes(o->elem);
  w->state = o->state;
  w->n_micros_max = o->max_micros;
  w->act_bytes = tokens * hidden * pen_elem_bytes(o->elem);
  w->rows_bytes = step_rows(m->params, o) * hidden * sizeof(float);
  w->dhead_bytes = tokens * hidden * sizeof(float);
  w->stats_bytes = tokens * PEN_XENT_ROWS * sizeof(float);
  w->kept_bytes = 2 * config->n_layers * m->cache_bytes;
  w->work_bytes = pen_head_work_bytes(o->elem, hidden, tokens);
  for (size_t kind = 0; kind < PEN_N_BLOCK_KINDS; kind++)
    w->work_bytes = max_size(w->work_bytes, m->layers[kind].work_bytes);
  w->mix_bytes = m->mixture.mix_bytes;
  w->routes_bytes = m->mixture.routes_bytes;
  w->balance_bytes = m->mixture.balance_bytes;
  w->logits_bytes = o->max_logit_rows * config->vocab_size * sizeof(float);
}

static int check_options(const struct pen_params *params,
                         const struct pen_model_options *o)
{
  const struct pen_model_config *c = &params->config;
  if (!o->max_tokens || !o->max_micros || o->max_tokens > UINT32_MAX ||
      c->vocab_size > INT32_MAX)
    return pen_error_set(PEN_EUSAGE,
                         "cannot make a model for %zu micro-batches of %zu "
                         "tokens of %zu: all must be positive and below 2^31",
                         o->max_micros, o->max_tokens, c->vocab_size);
  const struct pen_ops *ops = o->ops ? o->ops : pen_ops_host(o->isa, o->elem);
  return ops->check_shape(c->n_heads, c->n_kv_heads, c->head_dim);
}

/* Rounded to the weights' type, as transformers does. */
static float embed_scale(const struct pen_model_config *config,
                         enum pen_elem elem)
{
  float scale = (float)sqrt((double)config->hidden_size);
  if (!config->family->scales_embedding)
    return 1;
  return elem == PEN_ELEM_BF16 ? pen_bf16_to_f32(pen_bf16_from_f32(scale))
                               : scale;
}

static int make(struct pen_model *m, struct pen_pool *pool,
                struct pen_pool *update_pool)
{
  const struct pen_model_options *o = &m->options;
  const struct pen_model_config *config = &m->params->config;
  size_t n_threads = pen_pool_n_threads(pool), bytes;
  int r = check_options(m->params, o);
  if (!r && !o->ops)
    r = pen_gemm_find(o->gemm, o->elem, &m->stream.gemm);
  if (!r)
    r = count_bytes(m->params, o, n_threads, &bytes);
  if (r)
    return r;
  m->memory = aligned_alloc(ALIGN, bytes);
  if (!m->memory)
    return pen_error_set(-ENOMEM, "cannot allocate %zu bytes of model tables",
                         bytes);
  struct carver c = {m->memory, 0, false};
  lay_out(m, m->params, n_threads, &c);
  lay_out_inputs(m);
  memset(m->rows.places, 0, m->params->vocab_rows * sizeof *m->rows.places);
  if (!o->empty_tables)
    pen_rope_fill(&config->rope, pen_compute_positions(config, o), m->cosines, m->sines);
  m->embed_scale = embed_scale(config, o->elem);
  m->cache_bytes = layer_cache_bytes(m->params, o);
  m->stream.pool = pool;
  m->stream.isa = o->isa;
  m->update_stream = (struct pen_stream){.pool = update_pool, .isa = o->isa};
  m->stream.device = o->device;
  m->host_ops = pen_ops_host(o->isa, o->elem);
  m->ops = o->ops ? o->ops : m->host_ops;
  for (size_t kind = 0; kind < PEN_N_BLOCK_KINDS; kind++)
    pen_layer_init(&m->layers[kind], m->params, kind, o->elem, o->max_tokens);
  pen_mixture_init(&m->mixture, m->params, o->elem, o->max_tokens);
  fill_workload(m);
  pen_compute_init(m);
  return 0;
}

int pen_model_create(struct pen_params *params,
                     const struct pen_model_options *options,
                     struct pen_pool *pool, struct pen_pool *update_pool,
                     struct pen_model **ret_model)
{
  struct pen_model *m = calloc(1, sizeof *m);
  if (!m)
    return pen_error_set(-ENOMEM, "cannot allocate a model");
  m->params = params;
  m->options = *options;
  int r = make(m, pool, update_pool);
  if (r)
    pen_model_free(&m);
  else
    *ret_model = m;
  return r;
}

void pen_model_free(struct pen_model **model)
{
  if (*model)
    free((*model)->memory);
  free(*model);
  *model = NULL;
}

const struct pen_workload *pen_model_workload(const struct pen_model *model)
{
  return &model->workload;
}

const struct pen_compute *pen_model_compute(const struct pen_model *model)
{
  return &model->compute;
}

const struct pen_gemm_library *pen_model_gemm(const struct pen_model *model)
{
  return model->stream.gemm;
}
