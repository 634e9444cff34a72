/* session.c: from a model directory to a run that can step.
 *
 * Order: what the model is, how it is computed, where its bytes go, whether they
 * fit; only then memory.  Main thread.  Disadvantage: the model's own tables are
 * made before the check, since the workload's sizes come from them. */
#include "src/train/session.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"

#define IO_DEPTH_AUTO 4

int pen_session_config_path(const char *model, char *ret_path, size_t bytes,
                            bool *ret_is_config)
{
  struct stat st;
  *ret_is_config = stat(model, &st) == 0 && S_ISREG(st.st_mode);
  int n = snprintf(ret_path, bytes, "%s%s", model,
                   *ret_is_config ? "" : "/config.json");
  if (n < 0 || (size_t)n >= bytes)
    return pen_error_set(PEN_EUSAGE, "the path of %.64s... is too long", model);
  return 0;
}

int pen_session_load_config(const struct pen_model_settings *model,
                            struct pen_model_config *ret_config,
                            bool *ret_without_weights)
{
  char path[4096];
  *ret_without_weights = true;
  if (model->config) {
    *ret_config = *model->config;
    return 0;
  }
  int rc = pen_session_config_path(model->dir, path, sizeof path,
                                   ret_without_weights);
  return rc < 0 ? rc : pen_model_config_load(path, ret_config);
}

static enum pen_elem elem_of(enum pen_file_dtype dtype)
{
  return dtype == PEN_FILE_F32 || dtype == PEN_FILE_F64 ? PEN_ELEM_F32
                                                        : PEN_ELEM_BF16;
}

static int check_state(const struct pen_session *s)
{
  if (!s->state->has_half || s->elem == PEN_ELEM_BF16)
    return 0;
  return pen_error_set(PEN_EUSAGE, "--state-format %s keeps master weights as "
                       "bf16 weights and the bits these lack; weights are %s: "
                       "add --dtype bf16, or leave it at fp32",
                       s->state->name, pen_elem_name(s->elem));
}

/* The table of parameters from the config alone. */
static int open_config(struct pen_session *s,
                       const struct pen_model_settings *model,
                       const struct pen_session_shape *shape)
{
  s->elem = model->any_elem ? elem_of(s->config.dtype) : model->elem;
  if (model->untie)
    s->config.tied = false;
  int rc = check_state(s);
  return rc < 0 ? rc : pen_params_build(&s->config, shape->head_rows, 0, &s->params);
}

static int open_model(struct pen_session *s,
                      const struct pen_model_settings *model,
                      const struct pen_session_shape *shape, size_t max_length)
{
  bool is_config = false;
  int rc = pen_session_load_config(model, &s->config, &is_config);
  if (rc == 0)
    rc = pen_model_config_check_length(&s->config, max_length);
  if (rc == 0 && is_config && shape->config_only)
    return open_config(s, model, shape);
  if (rc == 0)
    rc = pen_hfdir_open(model->dir, model->lenient, &s->dir);
  if (rc < 0)
    return rc;
  s->elem = model->any_elem ? elem_of(pen_hfdir_dtype(s->dir)) : model->elem;
  rc = check_state(s);
  return rc < 0 ? rc : pen_params_open(&s->config, s->dir, shape->head_rows, model->untie, &s->params);
}

/* The library that a trial finds the fastest, in place of "auto". */
static int choose_gemm(struct pen_session *s,
                       const struct pen_session_shape *shape,
                       const char **gemm)
{
  struct pen_gemm_trial trial = {.elem = s->elem,
                                 .tokens = shape->max_tokens,
                                 .hidden = s->config.hidden_size,
                                 .ffn = s->config.intermediate_size};
  if (!s->gemm_choice.n || strcmp(*gemm, "auto") != 0)
    return 0;
  int rc = pen_gemm_choice_make(&trial, s->isa, s->pool, &s->gemm_choice);
  if (rc == 0)
    *gemm = s->gemm_choice.chosen->name;
  return rc;
}

static size_t first_of(size_t a, size_t b, size_t c)
{
  return a ? a : b ? b : c;
}

static int open_compute(struct pen_session *s, const char *gemm,
                        const struct pen_session_shape *shape)
{
  const struct pen_machine_settings *m = &s->machine;
  struct pen_division_wish wish = {
      .threads = first_of(m->threads, s->found.threads, m->described_cores),
      .update_threads =
          first_of(m->update_threads, s->found.update_threads, 0),
      .numa = m->numa && !m->described_cores};
  if (s->backend) { /* compute only puts work into the device's queue */
    if (!wish.update_threads)
      wish.update_threads =
          wish.threads ? wish.threads : pen_thread_usable_cpus();
    wish.threads = 1;
  }
  struct pen_model_options options = {.elem = s->elem,
                                      .gemm = gemm,
                                      .isa = s->isa,
                                      .state = s->state,
                                      .max_tokens = shape->max_tokens,
                                      .document_tokens = shape->document_tokens,
                                      .max_positions = shape->max_positions,
                                      .cache_tokens = shape->cache_tokens,
                                      .max_micros = shape->max_micros,
                                      .max_logit_rows = shape->max_logit_rows,
                                      .empty_tables = shape->config_only};
  if (s->backend) {
    options.ops = s->backend->ops[s->elem];
    options.device = s->backend->stream_device;
  }
  size_t bytes = 0;
  int rc = pen_topology_read(&s->topology);
  if (rc == 0 && shape->tries_gemm && !s->backend &&
      strcmp(gemm, "auto") == 0)
    rc = pen_gemm_choice_open(s->elem, &s->gemm_choice);
  if (rc == 0)
    rc = pen_division_make(&s->topology, &wish, &s->division);
  if (rc == 0)
    rc = pen_pool_create_teams(&s->division.compute, "compute", &s->pool);
  if (rc == 0)
    rc = pen_pool_create_teams(&s->division.update, "update", &s->update_pool);
  if (rc == 0)
    rc = choose_gemm(s, shape, &options.gemm);
  if (rc == 0)
    rc = pen_model_host_bytes(s->params, &options,
                              pen_pool_n_threads(s->pool), &bytes);
  if (rc == 0)
    rc = pen_model_create(s->params, &options, s->pool, s->update_pool,
                          &s->model);
  pen_memory_set(&s->memory, "model tables and scratch", PEN_TIER_HOST,
                 bytes);
  return rc;
}

static void close_compute(struct pen_session *s)
{
  pen_model_free(&s->model);
  pen_pool_free(&s->update_pool);
  pen_pool_free(&s->pool);
  pen_division_done(&s->division);
  pen_topology_done(&s->topology);
}

/* The model again, for as many threads as the search chose. */
static int take_threads(struct pen_session *s, const char *gemm,
                        const struct pen_session_shape *shape)
{
  if (!s->found.threads && !s->found.update_threads)
    return 0;
  close_compute(s);
  return open_compute(s, s->gemm_choice.n ? s->gemm_choice.chosen->name : gemm,
                      shape);
}

struct pen_simulate_options
pen_session_simulate_options(const struct pen_session *s,
                             const struct pen_machine *machine)
{
  const struct pen_machine_settings *m = &s->machine;
  const struct pen_search_result *f = &s->found; /* zeros: nothing was chosen */
  size_t threads = first_of(m->threads, f->threads, machine->cores);
  size_t update_threads = first_of(m->update_threads, f->update_threads, threads);
  return (struct pen_simulate_options){
      .demand = {.machine = machine,
                 .elem_bytes = pen_elem_bytes(s->elem),
                 .state = pen_state_number(s->state),
                 .threads = threads,
                 .update_threads = update_threads},
      .io_depth = s->io_depth,
      .apply = true};
}

static int open_engine(struct pen_session *s)
{
  s->io_depth = s->machine.io_depth ? s->machine.io_depth : IO_DEPTH_AUTO;
  if (!s->machine.n_nvme_dirs)
    return 0;
  return pen_engine_parse(s->machine.io_engine, &s->engine);
}

int pen_session_open(struct pen_session *session,
                     const struct pen_model_settings *model,
                     const struct pen_machine_settings *machine,
                     const struct pen_session_shape *shape, size_t max_length)
{
  *session = (struct pen_session){.machine = *machine,
                                  .max_tokens = shape->max_tokens};
  session->state = model->state ? model->state : &pen_state_fp32;
  int rc = pen_isa_choose(machine->isa, &session->isa);
  if (rc == 0 && machine->require_simd && session->isa == PEN_ISA_SCALAR)
    rc = pen_error_set(PEN_EUNSUPPORTED,
                       "--require-simd: this machine runs only the scalar "
                       "kernels");
  if (rc == 0)
    rc = open_engine(session);
  if (rc == 0)
    rc = open_model(session, model, shape, max_length);
  if (rc == 0)
    rc = pen_session_open_backend(session, model->gemm, model->tf32);
  if (rc == 0)
    rc = open_compute(session, model->gemm, shape);
  if (rc == 0)
    rc = pen_session_place(session, shape);
  if (rc == 0)
    rc = take_threads(session, model->gemm, shape);
  return rc;
}

int pen_session_start(struct pen_session *session, struct pen_store *store,
                      struct pen_trace *trace,
                      const struct pen_run_hooks *hooks)
{
  struct pen_run_options options = {
      .workload = pen_model_workload(session->model),
      .compute = pen_model_compute(session->model),
      .layout = &session->layout,
      .device = session->backend ? session->backend->device
                : session->layout.placement.unified
                    ? &pen_device_host_unified
                    : &pen_device_host_discrete,
      .store = store,
      .update_pool = session->update_pool,
      .division = &session->division,
      .trace = trace,
      .isa = session->isa,
      .io_depth = session->io_depth};
  if (hooks)
    options.hooks = *hooks;
  int rc = pen_run_create(&options, &session->plan, &session->run);
  if (rc == 0) /* last: what this thread starts would inherit it */
    pen_division_enter(&session->division, PEN_LANE_COMPUTE);
  return rc;
}

int pen_session_load_tile(struct pen_session *session, uint32_t tile,
                          size_t begin, size_t n, float *p, float *m, float *v)
{
  const struct pen_tile *t = &session->layout.tiles[tile];
  memset(m, 0, n * sizeof *m);
  memset(v, 0, n * sizeof *v);
  return pen_params_load_elems(session->params, session->dir, t->block,
                               t->begin + begin, n, p);
}

static int load_tile(void *ctx, uint32_t tile, size_t begin, size_t n,
                     float *p, float *m, float *v)
{
  return pen_session_load_tile(ctx, tile, begin, n, p, m, v);
}

int pen_session_load(struct pen_session *session)
{
  return pen_run_load(session->run, load_tile, session);
}

void pen_session_close(struct pen_session *session)
{
  pen_run_free(&session->run);
  pen_layout_done(&session->layout);
  pen_division_enter(&session->division, PEN_LANE_READ); /* anywhere again */
  close_compute(session);
  pen_backend_close(&session->backend);
  pen_params_free(&session->params);
  pen_hfdir_close(&session->dir);
}

int pen_session_set_micro(struct pen_session *session, size_t micro,
                          const struct pen_batch *batch,
                          enum pen_model_logits logits)
{
  struct pen_model_micro view = {.n_tokens = batch->n_tokens,
                                 .ids = batch->ids,
                                 .positions = batch->positions,
                                 .targets = batch->targets,
                                 .n_docs = batch->n_docs,
                                 .doc_begin = batch->doc_begin};
  return pen_model_set_micro(session->model, micro, &view, logits);
}
