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
#include "src/train/drives.h"

#define TILE_ELEMS_LEAST (16 * PEN_NORM_CHUNK_ELEMS) /* 12 MiB of state */
#define TILE_ELEMS_MOST (80 * PEN_NORM_CHUNK_ELEMS)  /* 60 MiB */
#define TILES_OF_A_BLOCK 64
#define TILE_ELEMS_INFERENCE PEN_NORM_CHUNK_ELEMS
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
  if (!s->gemm_choice.n)
    return 0;
  int rc = pen_gemm_choice_make(&trial, s->isa, s->pool, &s->gemm_choice);
  if (rc == 0)
    *gemm = s->gemm_choice.chosen->name;
  return rc;
}

static int open_compute(struct pen_session *s, const char *gemm,
                        const struct pen_session_shape *shape)
{
  size_t described = s->machine.described_cores;
  struct pen_division_wish wish = {.threads = s->machine.threads
                                                  ? s->machine.threads
                                                  : described,
                                   .update_threads = s->machine.update_threads,
                                   .numa = s->machine.numa && !described};
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
                                      .max_logit_rows = shape->max_logit_rows};
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
  pen_memory_add(&s->memory, "model tables and scratch", PEN_TIER_HOST,
                 bytes);
  return rc;
}

static size_t whole_chunks(size_t elems)
{
  return (elems + PEN_NORM_CHUNK_ELEMS - 1) / PEN_NORM_CHUNK_ELEMS *
         PEN_NORM_CHUNK_ELEMS;
}

/* No tile is larger than the largest block: the rest would never be used.
 * Large blocks have large tiles, so that a schedule and its proof stay short. */
static size_t choose_tile(const struct pen_workload *w)
{
  size_t largest = 1;
  for (size_t b = 0; b < w->n_blocks; b++)
    if (w->blocks[b].elems > largest)
      largest = w->blocks[b].elems;
  size_t tile = whole_chunks(largest / TILES_OF_A_BLOCK);
  if (tile < TILE_ELEMS_LEAST)
    tile = TILE_ELEMS_LEAST;
  if (tile > TILE_ELEMS_MOST)
    tile = TILE_ELEMS_MOST;
  largest = whole_chunks(largest);
  return largest < tile ? largest : tile;
}

/* Whole norm chunks of state, rounded up. */
static size_t tile_of(const struct pen_state_format *format, uint64_t bytes)
{
  uint64_t chunk = pen_state_bytes(format, PEN_NORM_CHUNK_ELEMS);
  return (bytes + chunk - 1) / chunk * PEN_NORM_CHUNK_ELEMS;
}

static void fill_wish(struct pen_fit_wish *wish, const struct pen_workload *w,
                      uint64_t tile_bytes, bool inference)
{
  wish->inference = inference;
  if (inference)
    wish->tile_elems = TILE_ELEMS_INFERENCE;
  else
    wish->tile_elems = tile_bytes ? tile_of(w->state, tile_bytes)
                                  : choose_tile(w);
  if (!wish->weight_slots)
    wish->weight_slots = 3;
  if (!wish->gradient_slots)
    wish->gradient_slots = 2;
  if (!wish->tile_slots)
    wish->tile_slots = inference ? 1 : 4;
  if (!wish->activation_slots)
    wish->activation_slots = 4;
}

/* A placement within `host` bytes with all that the memory list has by now. */
struct place {
  struct pen_session *session;
  uint64_t host;
};

/* Room for the schedule's tables is needed too, and how much is known only once
 * there is a placement: so room is set aside for those of the last try until
 * they fit, or are in the number that is said to be missing.  What does not fit
 * has a layout all the same. */
static int fit(const struct place *at, const struct pen_fit_wish *wish,
               bool proves, struct pen_layout *ret_layout,
               struct pen_run_plan *ret_plan)
{
  const struct pen_session *s = at->session;
  const struct pen_workload *w = pen_model_workload(s->model);
  struct pen_placement placement;
  uint64_t tables = 0;
  for (;;) {
    struct pen_fit_limits limits = {
        .device_bytes =
            s->machine.device_bytes ? s->machine.device_bytes : PEN_ALL_BYTES,
        .host_bytes = at->host,
        .host_taken_bytes = s->memory.total[PEN_TIER_HOST] + tables,
        .has_nvme = s->machine.n_nvme_dirs > 0};
    int fits = pen_fit(w, wish, &limits, &placement);
    if (fits < 0 && fits != -PEN_ENOFIT)
      return fits;
    int rc = pen_layout_init(ret_layout, w, &placement);
    if (rc == 0)
      rc = pen_run_plan(w, ret_layout, proves && fits == 0, ret_plan);
    if (rc < 0)
      return rc;
    if (ret_plan->table_bytes <= tables ||
        (fits == 0 && limits.host_taken_bytes - tables +
                              ret_plan->table_bytes +
                              ret_layout->tier_bytes[PEN_TIER_HOST] <=
                          at->host))
      return fits;
    tables = ret_plan->table_bytes;
    pen_layout_done(ret_layout);
    pen_error_clear();
  }
}

/* What is chosen is proved in the end. */
static int fit_candidate(void *ctx, const struct pen_fit_wish *wish,
                         struct pen_layout *ret_layout,
                         struct pen_run_plan *ret_plan)
{
  int rc = fit(ctx, wish, false, ret_layout, ret_plan);
  if (rc < 0)
    pen_layout_done(ret_layout);
  return rc;
}

struct pen_simulate_options
pen_session_simulate_options(const struct pen_session *s,
                             const struct pen_machine *machine)
{
  size_t threads = s->machine.threads ? s->machine.threads : machine->cores;
  return (struct pen_simulate_options){
      .demand = {.machine = machine,
                 .elem_bytes = pen_elem_bytes(s->elem),
                 .state = pen_state_number(s->state),
                 .threads = threads,
                 .update_threads = s->machine.update_threads
                                       ? s->machine.update_threads
                                       : threads},
      .io_depth = s->io_depth,
      .apply = true};
}

/* Lets the profile choose what `wish` leaves open.  One that lacks a rate leaves
 * the rule in its place. */
static int search(struct pen_session *s, const struct pen_session_shape *shape,
                  struct place *at, struct pen_fit_wish *wish)
{
  const struct pen_fit_wish *asked = &s->machine.wish;
  struct pen_machine machine = *s->machine.profile;
  int rc = pen_drives_choose(&s->machine, &machine);
  if (asked->unified) /* the cores compute, whatever device there is */
    pen_machine_without_device(&machine);
  struct pen_search_problem problem = {
      .workload = pen_model_workload(s->model),
      .simulate = pen_session_simulate_options(s, &machine),
      .shape = {.kind = PEN_STEP_TRAIN,
                .n_micros = shape->max_micros,
                .n_tokens = (double)(shape->max_micros * shape->max_tokens),
                .speculates = true},
      .free_group = !asked->group_size,
      .free_recompute = asked->recompute_blocks == PEN_FIT_RECOMPUTE_AUTO,
      .free_weight_slots = !asked->weight_slots,
      .free_tile_slots = !asked->tile_slots,
      .free_state = asked->state == PEN_FIT_AUTO && !asked->unified,
      .free_speculative = s->machine.searches_speculative,
      .drains = s->machine.updates_after_backward,
      .place = fit_candidate,
      .ctx = at};
  if (rc == 0)
    rc = pen_search(&problem, wish, &s->found);
  if (rc == 0) {
    *wish = s->found.wish;
  } else if (rc == -PEN_EUSAGE) {
    pen_log_warn("%s; until then placement is by the fixed rule",
                 pen_error_text());
    pen_error_clear();
    rc = 0;
  }
  return rc;
}

/* oneDNN does, for each size. */
static bool makes_much_code(const struct pen_session *s,
                            const struct pen_session_shape *shape)
{
  return (shape->sizes_vary || shape->inference) &&
         strcmp(pen_session_products(s), "onednn") == 0;
}

/* What the slots leave of the limits is not theirs. */
static int place(struct pen_session *s, const struct pen_session_shape *shape)
{
  const struct pen_workload *w = pen_model_workload(s->model);
  uint64_t host = s->machine.host_bytes;
  const char *name = "--host-memory";
  if (!host) {
    host = pen_memory_available();
    name = "the RAM available now";
  }
  struct pen_fit_wish wish = s->machine.wish;
  fill_wish(&wish, w, s->machine.tile_bytes, shape->inference);
  pen_memory_add(&s->memory, "batches and sequence tables", PEN_TIER_HOST,
                 shape->other_bytes);
  pen_memory_add(&s->memory, "timeline", PEN_TIER_HOST, shape->trace_bytes);
  pen_memory_add(&s->memory, "libraries, program, stacks (allowance)",
                 PEN_TIER_HOST,
                 PEN_MEMORY_LIBRARY_BYTES +
                     (makes_much_code(s, shape) ? PEN_MEMORY_SIZES_BYTES : 0));
  struct place at = {s, host};
  int rc = 0;
  if (s->machine.profile && !shape->inference &&
      (!s->backend || pen_machine_has_device(s->machine.profile)))
    rc = search(s, shape, &at, &wish);
  if (rc == 0 || rc == -PEN_ENOFIT)
    rc = fit(&at, &wish, true, &s->layout, &s->plan);
  if (rc < 0 && rc != -PEN_ENOFIT)
    return rc;
  pen_memory_add_layout(&s->memory, &s->layout);
  pen_memory_add(&s->memory, "schedule and its proof", PEN_TIER_HOST,
                 s->plan.table_bytes);
  return rc < 0 ? rc : pen_memory_check(&s->memory, host, name);
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
    rc = pen_session_open_backend(session, model->gemm);
  if (rc == 0)
    rc = open_compute(session, model->gemm, shape);
  if (rc == 0)
    rc = place(session, shape);
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
  pen_model_free(&session->model);
  pen_pool_free(&session->update_pool);
  pen_pool_free(&session->pool);
  pen_backend_close(&session->backend);
  pen_division_enter(&session->division, PEN_LANE_READ); /* anywhere again */
  pen_division_done(&session->division);
  pen_topology_done(&session->topology);
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
