/* driver.c: forward over the blocks in order, backward in reverse.
 *
 * Buffers that a call must fill start as NaN, so that what it forgets shows.
 * Disadvantage: fails through cmocka, so only for test programs. */
#include "tests/model/driver.h"

#include "base/rng.h"
#include "kernels/cast.h"
#include "src/model/compute.h"

static void *buffer(size_t bytes)
{
  size_t all = (bytes + 64) / 64 * 64;
  void *p = aligned_alloc(64, all);
  assert_non_null(p);
  memset(p, 0xff, all);
  return p;
}

static void load_block(struct driver *d, size_t block)
{
  size_t n = d->workload->blocks[block].elems;
  float *wide = buffer(n * sizeof(float));
  if (d->dir)
    test_ok(pen_params_load_elems(d->params, d->dir, block, 0, n, wide));
  for (size_t i = 0; i < n && !d->dir; i++)
    wide[i] = (float)(pen_rng_double(1, block, i) - 0.5) / 4;
  d->grads[block] = buffer(n * sizeof(float));
  memset(d->grads[block], 0, n * sizeof(float));
  if (d->options.elem == PEN_ELEM_F32) {
    d->weights[block] = wide;
    return;
  }
  d->weights[block] = buffer(n * 2);
  pen_cast_f32_to_bf16_away(PEN_ISA_SCALAR, n, wide, d->weights[block]);
  free(wide);
}

void driver_open(struct driver *d, const char *path,
                 const struct driver_options *options)
{
  char config_path[4096];
  struct pen_model_config config;
  memset(d, 0, sizeof *d);
  d->options = *options;
  snprintf(config_path, sizeof config_path, "%s/config.json", path);
  test_ok(pen_model_config_load(config_path, &config));
  if (options->random_rows) {
    test_ok(pen_params_build(&config, options->head_rows, options->random_rows,
                             &d->params));
  } else {
    test_ok(pen_hfdir_open(path, false, &d->dir));
    test_ok(pen_params_open(&config, d->dir, options->head_rows, false,
                            &d->params));
  }
  test_ok(pen_pool_create(options->n_threads, "compute", &d->pool));
  test_ok(pen_pool_create(options->n_threads, "update", &d->update_pool));
  struct pen_model_options m = {
      .elem = options->elem, .gemm = options->gemm,
      .max_tokens = options->max_tokens, .max_micros = options->max_micros,
      .cache_tokens = options->cache_tokens,
      .max_positions = options->cache_tokens,
      .max_logit_rows = options->logits ? options->max_tokens : 0};
  test_ok(pen_isa_choose(NULL, &m.isa));
  test_ok(pen_model_create(d->params, &m, d->pool, d->update_pool, &d->model));
  d->workload = pen_model_workload(d->model);
  d->compute = pen_model_compute(d->model);
  d->weights = calloc(d->workload->n_blocks, sizeof *d->weights);
  d->grads = calloc(d->workload->n_blocks, sizeof *d->grads);
  for (size_t i = 0; i < d->workload->n_blocks; i++)
    load_block(d, i);
  d->logits = buffer(d->workload->logits_bytes);
  d->kept = buffer(d->workload->kept_bytes);
}

void driver_close(struct driver *d)
{
  for (size_t i = 0; i < d->workload->n_blocks; i++) {
    free(d->weights[i]);
    free(d->grads[i]);
  }
  free(d->weights);
  free(d->grads);
  free(d->logits);
  free(d->kept);
  pen_model_free(&d->model);
  pen_pool_free(&d->pool);
  pen_pool_free(&d->update_pool);
  pen_params_free(&d->params);
  pen_hfdir_close(&d->dir);
}

void driver_set(struct driver *d, size_t micro, size_t n_docs,
                const uint32_t *doc_begin, const uint32_t *ids,
                const int32_t *targets)
{
  size_t n = doc_begin[n_docs];
  uint32_t *positions = buffer(n * sizeof *positions);
  for (size_t i = 0; i < n_docs; i++)
    for (size_t t = doc_begin[i]; t < doc_begin[i + 1]; t++)
      positions[t] = (uint32_t)(t - doc_begin[i]);
  struct pen_model_micro m = {.n_tokens = n, .ids = ids,
                              .positions = positions, .targets = targets,
                              .n_docs = n_docs, .doc_begin = doc_begin};
  test_ok(pen_model_set_micro(d->model, micro, &m, d->options.logits));
  free(positions);
}

void driver_set_cached(struct driver *d, size_t first, size_t n,
                       const uint32_t *ids)
{
  uint32_t doc_begin[] = {0, (uint32_t)n};
  uint32_t *positions = buffer(n * sizeof *positions);
  for (size_t t = 0; t < n; t++)
    positions[t] = (uint32_t)(first + t);
  struct pen_model_micro m = {.n_tokens = n, .ids = ids,
                              .positions = positions, .n_docs = 1,
                              .doc_begin = doc_begin, .cached = true};
  test_ok(pen_model_set_micro(d->model, 0, &m, d->options.logits));
  free(positions);
}

/* What one micro-batch needs on its way. */
struct pass {
  void **acts;  /* [body blocks + 1]: input of each, output of the last */
  void **saved; /* [n_blocks]; NULL entries: recompute */
  float *stats;
  void *work;
  struct pen_inputs in;
  void **routes; /* [n_blocks]; of blocks with experts */
  uint32_t **counts;
  void *mix, *balance;
};

/* ---- blocks with experts: only those that tokens go to ---- */

static void forward_experts(struct driver *d, size_t micro, struct pass *p,
                            size_t b, const void *x, void *y)
{
  const struct pen_compute *c = d->compute;
  const struct pen_block *block = &d->workload->blocks[b];
  size_t n = pen_block_n_experts(block);
  p->routes[b] = buffer(d->workload->routes_bytes);
  p->counts[b] = buffer(n * sizeof **p->counts);
  memset(p->mix, 0xff, d->workload->mix_bytes);
  test_ok(c->route(c->ctx, b, micro, &p->in, d->weights[b], x, p->routes[b],
                   p->counts[b], p->mix, p->work, p->balance));
  for (size_t e = 0; e < n; e++)
    if (p->counts[b][e])
      test_ok(c->expert(c->ctx, block->experts_begin + e, micro, p->counts[b],
                        d->weights[block->experts_begin + e], p->routes[b],
                        p->mix, p->work));
  test_ok(c->join(c->ctx, b, micro, x, p->mix, y));
}

static void backward_experts(struct driver *d, size_t micro, struct pass *p,
                             size_t b, const void *x, void *grad)
{
  const struct pen_compute *c = d->compute;
  const struct pen_block *block = &d->workload->blocks[b];
  memset(p->mix, 0xff, d->workload->mix_bytes);
  test_ok(c->join_backward(c->ctx, b, micro, &p->in, d->weights[b], x, p->mix,
                           p->work));
  for (size_t e = 0; e < pen_block_n_experts(block); e++) {
    size_t expert = block->experts_begin + e;
    memset(p->work, 0xff, d->workload->work_bytes);
    if (p->counts[b][e])
      test_ok(c->expert_backward(c->ctx, expert, micro, p->counts[b],
                                 d->weights[expert], p->routes[b], grad,
                                 p->mix, d->grads[expert], p->work));
  }
  memset(p->work, 0xff, d->workload->work_bytes);
  test_ok(c->route_backward(c->ctx, b, micro, &p->in, d->weights[b], x,
                            p->routes[b], p->mix, grad, d->grads[b], p->work,
                            p->balance));
}

static double forward(struct driver *d, size_t micro, struct pass *p)
{
  const struct pen_workload *w = d->workload;
  const struct pen_compute *c = d->compute;
  size_t n = w->body_end - w->body_begin;
  double loss;
  p->acts = calloc(n + 1, sizeof *p->acts);
  p->saved = calloc(w->n_blocks, sizeof *p->saved);
  for (size_t b = 0; b < w->n_blocks; b++)
    if (!d->options.recompute && w->blocks[b].saved_bytes)
      p->saved[b] = buffer(w->blocks[b].saved_bytes);
  p->stats = buffer(w->stats_bytes);
  p->work = buffer(w->work_bytes);
  p->routes = calloc(w->n_blocks, sizeof *p->routes);
  p->counts = calloc(w->n_blocks, sizeof *p->counts);
  p->mix = buffer(w->mix_bytes);
  p->balance = w->balance_bytes ? buffer(w->balance_bytes) : NULL;
  void *inputs = buffer(w->inputs_bytes);
  test_ok(c->put_inputs(c->ctx, micro, inputs));
  p->in = (struct pen_inputs){w->tables, inputs, d->kept};
  p->acts[0] = buffer(w->act_bytes);
  for (size_t b = w->rows_begin; b < w->rows_end; b++)
    test_ok(c->gather(c->ctx, b, micro, d->weights[b], p->acts[0]));
  for (size_t i = 0; i < n; i++) {
    size_t b = w->body_begin + i;
    p->acts[i + 1] = buffer(w->act_bytes);
    if (pen_block_n_experts(&w->blocks[b])) {
      forward_experts(d, micro, p, b, p->acts[i], p->acts[i + 1]);
      continue;
    }
    test_ok(c->forward(c->ctx, b, micro, &p->in, d->weights[b], p->acts[i],
                       p->acts[i + 1], p->saved[b], p->work));
  }
  test_ok(c->head_begin(c->ctx, micro, p->stats));
  for (size_t b = w->head_begin; b < w->head_end; b++) {
    test_ok(c->head_forward(c->ctx, b, micro, &p->in, d->weights[b],
                            p->acts[n], p->stats, p->saved[b], p->work));
    if (d->options.logits)
      test_ok(c->head_logits(c->ctx, b, micro, &p->in, d->weights[b],
                             p->acts[n], d->logits, p->work));
  }
  test_ok(c->head_loss(c->ctx, micro, &p->in, p->stats, p->balance, &loss));
  return loss;
}

/* Adds the gradients of the step's rows to those of their blocks. */
static void scatter(struct driver *d, size_t micro, const void *grad)
{
  const struct pen_workload *w = d->workload;
  const struct pen_param_block *infos = d->model->params->infos;
  size_t dim = d->model->params->config.hidden_size;
  float *sums = buffer(w->rows_bytes);
  memset(sums, 0, w->rows_bytes);
  test_ok(d->compute->scatter(d->compute->ctx, micro, grad, sums));
  for (size_t i = 0; i < d->model->rows.n; i++) {
    size_t b = w->rows_begin, id = d->model->rows.ids[i];
    while (id >= infos[b].row_begin + infos[b].rows)
      b++;
    float *row = d->grads[b] + (id - infos[b].row_begin) * dim;
    for (size_t k = 0; k < dim; k++)
      row[k] += sums[i * dim + k];
  }
  free(sums);
}

static void backward(struct driver *d, size_t micro, struct pass *p)
{
  const struct pen_workload *w = d->workload;
  const struct pen_compute *c = d->compute;
  size_t n = w->body_end - w->body_begin;
  float *dx = buffer(w->dhead_bytes);
  void *grad = buffer(w->act_bytes);
  for (size_t b = w->head_begin; b < w->head_end; b++)
    test_ok(c->head_backward(c->ctx, b, micro, &p->in, d->weights[b],
                             p->acts[n], p->stats, p->saved[b], dx,
                             d->grads[b], p->work));
  test_ok(c->head_end(c->ctx, micro, dx, grad));
  for (size_t i = n; i-- > 0;) {
    size_t b = w->body_begin + i;
    memset(p->work, 0xff, w->work_bytes);
    if (pen_block_n_experts(&w->blocks[b])) {
      backward_experts(d, micro, p, b, p->acts[i], grad);
      continue;
    }
    test_ok(c->backward(c->ctx, b, micro, &p->in, d->weights[b],
                        p->acts[i], p->saved[b], grad, d->grads[b], p->work));
  }
  scatter(d, micro, grad);
  free(dx);
  free(grad);
}

static void pass_free(struct driver *d, struct pass *p)
{
  size_t n = d->workload->body_end - d->workload->body_begin;
  for (size_t i = 0; i <= n; i++)
    free(p->acts[i]);
  for (size_t b = 0; b < d->workload->n_blocks; b++) {
    free(p->saved[b]);
    free(p->routes[b]);
    free(p->counts[b]);
  }
  free(p->routes);
  free(p->counts);
  free(p->mix);
  free(p->balance);
  free(p->acts);
  free(p->saved);
  free(p->stats);
  free(p->work);
  free((void *)(uintptr_t)p->in.micro);
}

double driver_forward(struct driver *d, size_t micro)
{
  struct pass p;
  double loss = forward(d, micro, &p);
  pass_free(d, &p);
  return loss;
}

double driver_train(struct driver *d, size_t micro)
{
  struct pass p;
  double loss = forward(d, micro, &p);
  backward(d, micro, &p);
  pass_free(d, &p);
  return loss;
}
