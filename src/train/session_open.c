/* session_open.c: from a model directory to a run that can step.
 *
 * Order: what the model is, how it is computed, where its bytes go, whether they
 * fit; only then memory.  Main thread.  Disadvantage: the model's own tables are
 * made before the check, since the workload's sizes come from them. */
#include <string.h>

#include "base/error.h"
#include "base/thread.h"
#include "src/train/session.h"

#define IO_DEPTH_AUTO 4

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

static int open_compute(struct pen_session *s, const char *gemm,
                        const struct pen_session_shape *shape)
{
  const struct pen_machine_settings *m = &s->machine;
  struct pen_division_wish wish = {
      .threads = pen_session_threads(s, m->described_cores),
      .update_threads = pen_session_update_threads(s, 0),
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

/* The model again, for as many threads as the search chose. */
static int take_threads(struct pen_session *s, const char *gemm,
                        const struct pen_session_shape *shape)
{
  if (!s->found.threads && !s->found.update_threads)
    return 0;
  pen_session_close_compute(s);
  return open_compute(s, s->gemm_choice.n ? s->gemm_choice.chosen->name : gemm,
                      shape);
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
