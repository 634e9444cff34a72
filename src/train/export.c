/* export.c: copies weights, and state, block after block into a directory that
 * gets its name at the end.
 *
 * Main thread; holds one chunk of a block.  Disadvantage: weights go through
 * fp32, so that float64 files are rounded to it. */
#include "src/train/export.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/files.h"
#include "io/hfdir_write.h"
#include "io/safetensors_write.h"
#include "src/model/model_dir.h"
#include "src/train/rundir.h"
#include "src/train/saved.h"

#define CHUNK_ELEMS ((size_t)1 << 20)

enum { MASTER, EXP_AVG, EXP_AVG_SQ, N_KINDS };
static const char *const kind_names[N_KINDS] = {
    [MASTER] = "master_weights", [EXP_AVG] = "exp_avg",
    [EXP_AVG_SQ] = "exp_avg_sq"};

struct export {
  const struct pen_export_settings *set;
  char from[4096], run[4096]; /* run: "" where it is of none */
  struct pen_model_dir *model;
  struct pen_hfdir_writer *writer;
  struct pen_rundir rundir;
  struct pen_store *store;
  struct pen_saved *saved;
  struct pen_safetensors_writer *state[N_KINDS];
  float *chunk; /* [N_KINDS + 1, CHUNK_ELEMS]: of weights the last */
};

/* ---- where it comes from ---- */

static int no_model(const char *run)
{
  return pen_error_say(-ENOENT, "the run in %s has neither finished nor a "
                       "checkpoint (--save-steps): go on with it (--resume)",
                       run);
}

/* The newest checkpoint's name in `path` [4096]; false: there is none. */
static bool newest_checkpoint(const char *run, char *path)
{
  struct pen_rundir view = {.path = (char *)(uintptr_t)run, .lock_fd = -1};
  uint64_t steps[1024];
  size_t n = pen_rundir_checkpoints(&view, steps, 1024);
  if (n)
    pen_rundir_checkpoint_path(&view, steps[n - 1], path);
  return n > 0;
}

static bool has_file(const char *dir, const char *name)
{
  char path[4096 + 64];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  return pen_files_exists(path);
}

/* The directory of weights, and the run that it is of. */
static int find_source(struct export *e)
{
  const char *path = e->set->from;
  if (strlen(path) > PEN_RUNDIR_PATH_MAX)
    return pen_error_say(-ENAMETOOLONG, "the path %.64s... is too long", path);
  if (!pen_rundir_exists(path)) {
    char *found = NULL;
    int rc = pen_model_dir_find(path, &found);
    if (rc < 0)
      return rc;
    snprintf(e->from, sizeof e->from, "%s", found);
    free(found);
    snprintf(e->run, sizeof e->run, "%.4090s/..", e->from);
    if (!pen_rundir_exists(e->run))
      e->run[0] = '\0';
    return 0;
  }
  snprintf(e->run, sizeof e->run, "%s", path);
  if (has_file(path, "model"))
    snprintf(e->from, sizeof e->from, "%.4000s/model", path);
  else if (!newest_checkpoint(path, e->from))
    return no_model(path);
  return 0;
}

/* ---- state ---- */

static int open_store(struct export *e, const struct pen_rundir_store *entry)
{
  char *dirs[PEN_STORE_DIRS_MAX] = {0};
  struct pen_store_options o = {.dirs = (const char *const *)dirs,
                                .n_dirs = entry->n_dirs,
                                .engine = pen_engine_find("threads")};
  memcpy(o.run_id, e->rundir.run_id, sizeof o.run_id);
  int rc = pen_rundir_store_dirs(&e->rundir, entry, dirs);
  if (rc == 0)
    rc = pen_store_open(&o, &e->store);
  pen_rundir_free_dirs(dirs);
  return rc;
}

/* A checkpoint's state; what of it lies in the run's store is read there. */
static int open_checkpoint(struct export *e)
{
  char file[4096 + 32];
  size_t n;
  snprintf(file, sizeof file, "%s/" PEN_SAVED_FILE, e->from);
  int rc = pen_saved_open(file, &e->saved);
  if (rc < 0)
    return rc;
  const struct pen_store_place *places = pen_saved_places(e->saved, &n);
  if (!places)
    return 0;
  if (!e->run[0])
    return pen_error_say(-ENOENT, "the state of %s lies in the store of its run, "
                         "and it is not in a run's directory any more", e->from);
  rc = pen_rundir_open(e->run, &e->rundir);
  const struct pen_rundir_store *entry =
      rc < 0 ? NULL
             : pen_rundir_find_store(&e->rundir, pen_saved_generation(e->saved));
  if (rc == 0 && !entry)
    rc = pen_error_say(-ENOENT, "the store that holds the state of %s is gone",
                       e->from);
  if (rc == 0)
    rc = open_store(e, entry);
  if (rc == 0) /* in memory alone: nothing is committed here */
    rc = pen_store_rewind(e->store, places, n);
  return rc < 0 ? rc : pen_saved_use_store(e->saved, e->store);
}

/* A finished run's store, whose newest commit is of its model. */
static int open_run(struct export *e)
{
  struct pen_workload workload = {0};
  int rc = pen_rundir_open(e->run, &e->rundir);
  if (rc == 0 && e->rundir.n_stores == 0)
    rc = pen_error_say(-ENOENT, "the run in %s has kept no optimizer state: only "
                       "checkpoints (--save-steps) and state on drives "
                       "(--offload-optimizer nvme) are kept", e->run);
  if (rc == 0)
    rc = open_store(e, &e->rundir.stores[e->rundir.n_stores - 1]);
  pen_params_workload(e->model->params, &workload);
  return rc < 0 ? rc : pen_saved_from_store(&workload, e->store, &e->saved);
}

static int open_state(struct export *e)
{
  if (has_file(e->from, PEN_SAVED_FILE))
    return open_checkpoint(e);
  if (e->run[0])
    return open_run(e);
  return pen_error_say(-ENOENT, "%s has no optimizer state: name a run or a "
                       "checkpoint", e->from);
}

static int create_state(struct export *e)
{
  const struct pen_params *p = e->model->params;
  struct pen_safetensors_spec *specs = calloc(p->n_tensors, sizeof *specs);
  size_t n = 0;
  int rc = specs ? 0 : pen_error_set(PEN_ENOFIT, "no memory for the tensors");
  for (size_t i = 0; rc == 0 && i < p->n_tensors; i++)
    if (p->tensors[i].n_params)
      specs[n++] = (struct pen_safetensors_spec){
          p->tensors[i].name, PEN_FILE_F32, p->tensors[i].rank,
          p->tensors[i].shape};
  for (int kind = 0; rc == 0 && kind < N_KINDS; kind++) {
    char path[4096 + 64];
    snprintf(path, sizeof path, "%s.tmp/%s.safetensors", e->set->to,
             kind_names[kind]);
    rc = pen_safetensors_create(path, specs, n, &e->state[kind]);
  }
  free(specs);
  return rc;
}

/* Number of a tensor among those that have parameters. */
static size_t state_tensor(const struct pen_params *p, size_t tensor)
{
  size_t n = 0;
  for (size_t i = 0; i < tensor; i++)
    n += p->tensors[i].n_params > 0;
  return n;
}

/* Does the weight w of such a file come from master weight p? */
static bool comes_from(float w, float p, enum pen_file_dtype dtype)
{
  float most = fabsf(w) > fabsf(p) ? fabsf(w) : fabsf(p);
  if (isnan(w) && isnan(p))
    return true;
  int bits = dtype == PEN_FILE_BF16 ? 8 : dtype == PEN_FILE_F16 ? 11 : 24;
  if (bits == 24 || most < 1e-7f) /* below F16's exact range any is right */
    return bits == 24 ? w == p : true;
  return fabsf(w - p) <= ldexpf(1, ilogbf(most) - bits);
}

/* A run that went on after its model was written has newer state. */
static int check_weights(struct export *e, const struct pen_param *q, size_t at,
                         size_t n)
{
  const struct pen_param_tensor *t = &e->model->params->tensors[q->tensor];
  float *w = e->chunk + N_KINDS * CHUNK_ELEMS;
  enum pen_file_dtype dtype =
      pen_hfdir_tensor(e->model->files, t->dir_index)->dtype;
  int rc = pen_params_load_elems(e->model->params, e->model->files, q->block,
                                 q->offset + at, n, w);
  for (size_t i = 0; rc == 0 && i < n; i++)
    if (!comes_from(w[i], e->chunk[i], dtype))
      rc = pen_error_set(PEN_EMISMATCH, "the newest state of the run is not that "
                         "of %s: element %zu of %s is %.9g there and %.9g in the "
                         "master weights; finish the run, or name a checkpoint",
                         e->from, (size_t)q->row_begin * q->cols + at + i,
                         t->name, (double)w[i], (double)e->chunk[i]);
  return rc;
}

static int stopped(const struct export *e)
{
  if (!e->set->stop || !*e->set->stop)
    return 0;
  return pen_error_set(PEN_ESTOPPED, "stopped; nothing of %s was written",
                       e->set->to);
}

/* One parameter's master weights and moments. */
static int copy_state(struct export *e, const struct pen_param *q)
{
  size_t tensor = state_tensor(e->model->params, q->tensor);
  size_t elems = q->rows * q->cols, first = q->row_begin * q->cols, n;
  int rc = 0;
  for (size_t at = 0; rc == 0 && at < elems; at += n) {
    n = elems - at < CHUNK_ELEMS ? elems - at : CHUNK_ELEMS;
    rc = stopped(e);
    float *p = e->chunk, *m = p + CHUNK_ELEMS, *v = m + CHUNK_ELEMS;
    const float *kinds[N_KINDS] = {[MASTER] = p, [EXP_AVG] = m,
                                   [EXP_AVG_SQ] = v};
    if (rc == 0)
      rc = pen_saved_read(e->saved, (uint32_t)q->block, q->offset + at, n, p, m,
                          v);
    if (rc == 0)
      rc = check_weights(e, q, at, n);
    for (int kind = 0; rc == 0 && kind < N_KINDS; kind++)
      rc = pen_safetensors_write(e->state[kind], tensor,
                                 (first + at) * sizeof(float), kinds[kind],
                                 n * sizeof(float));
  }
  return rc;
}

static int export_state(struct export *e)
{
  const struct pen_params *p = e->model->params;
  int rc = create_state(e);
  for (size_t i = 0; rc == 0 && i < p->n_params; i++)
    rc = copy_state(e, &p->params[i]);
  for (int kind = 0; rc == 0 && kind < N_KINDS; kind++)
    rc = pen_safetensors_finish(&e->state[kind]);
  return rc;
}

/* ---- weights ---- */

static int copy_weights(struct export *e)
{
  const struct pen_params *p = e->model->params;
  int rc = 0;
  for (size_t b = 0; b < p->n_blocks; b++)
    for (size_t at = 0, n; rc == 0 && at < p->blocks[b].elems; at += n) {
      n = p->blocks[b].elems - at;
      n = n < CHUNK_ELEMS ? n : CHUNK_ELEMS;
      rc = stopped(e);
      if (rc == 0)
        rc = pen_params_load_elems(p, e->model->files, b, at, n, e->chunk);
      if (rc == 0)
        rc = pen_params_save_elems(p, e->writer, b, at, n, e->chunk,
                                   PEN_FILE_F32);
    }
  return rc;
}

/* Weights and state together, before the first byte of either. */
static int check_room(const struct export *e)
{
  const struct pen_params *p = e->model->params;
  uint64_t weights = 0;
  for (size_t s = 0; s < pen_hfdir_n_shards(e->model->files); s++)
    weights += pen_hfdir_shard_bytes(e->model->files, s);
  if (e->set->dtype != PEN_FILE_NONE)
    weights = p->n_elems * pen_file_dtype_bytes(e->set->dtype);
  return pen_files_check_room(e->set->to,
                              weights + N_KINDS * p->n_elems * sizeof(float),
                              "the model with its optimizer's state",
                              "free them, or name another folder");
}

static int run(struct export *e)
{
  const struct pen_export_settings *s = e->set;
  struct pen_model_dir_options options = {.lenient = s->lenient,
                                          .untie = s->untie};
  int rc = find_source(e);
  if (rc == 0)
    rc = pen_model_dir_open(e->from, &options, &e->model);
  if (rc == 0 && s->with_optimizer)
    rc = open_state(e);
  if (rc == 0 && s->with_optimizer)
    rc = check_room(e);
  if (rc == 0 && !(e->chunk = calloc((N_KINDS + 1) * CHUNK_ELEMS, sizeof(float))))
    rc = pen_error_set(PEN_ENOFIT, "no memory to copy");
  if (rc == 0)
    rc = pen_params_create_dir_like(e->model->params, e->model->files, s->dtype,
                                    s->to, s->overwrite, &e->writer);
  if (rc == 0)
    rc = copy_weights(e);
  if (rc == 0 && s->with_optimizer)
    rc = export_state(e);
  if (rc == 0)
    rc = stopped(e);
  return rc < 0 ? rc : pen_hfdir_commit(&e->writer);
}

int pen_export(const struct pen_export_settings *settings,
               struct pen_export_result *ret_result)
{
  struct export e = {.set = settings, .rundir = {.lock_fd = -1}};
  int rc = run(&e);
  if (rc == 0) {
    *ret_result = (struct pen_export_result){
        .n_parameters = e.model->params->n_elems,
        .step = e.saved ? pen_saved_cursor(e.saved)->step : 0};
    memcpy(ret_result->from, e.from, sizeof e.from);
  }
  for (int kind = 0; kind < N_KINDS; kind++)
    pen_safetensors_abandon(&e.state[kind]);
  pen_hfdir_abandon(&e.writer);
  pen_saved_close(&e.saved);
  pen_store_close(&e.store);
  pen_rundir_close(&e.rundir);
  pen_model_dir_close(&e.model);
  free(e.chunk);
  return rc;
}
