/* verb_init.c: makes a new model directory with random weights.
 *
 * Each element is a function of its place, so all threads draw at once; the main
 * one writes.  Disadvantage: it does not write while they draw. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/size.h"
#include "base/thread.h"
#include "io/hfdir_write.h"
#include "kernels/ops.h"
#include "src/cli/stop.h"
#include "src/cli/verb.h"
#include "src/model/init.h"
#include "src/train/session.h"

#define SHARD_BYTES ((uint64_t)5 * 1000 * 1000 * 1000) /* as transformers */
#define CHUNK_ELEMS ((size_t)1 << 22)
#define PIECE_ELEMS ((size_t)1 << 16) /* a thread's */

/* auto: as the config says, bf16 where it says nothing we train in. */
static enum pen_file_dtype choose_dtype(const struct pen_config *config,
                                        const struct pen_model_config *model)
{
  if (config->dtype == PEN_CONFIG_DTYPE_FP32)
    return PEN_FILE_F32;
  if (config->dtype == PEN_CONFIG_DTYPE_BF16 || model->dtype != PEN_FILE_F32)
    return PEN_FILE_BF16;
  return PEN_FILE_F32;
}

/* A range of a block's elements. */
struct drawing {
  const struct pen_params *params;
  uint64_t seed;
  size_t block, begin, n;
  float *out; /* [n] */
};

static void draw_piece(void *ctx, size_t item, size_t worker)
{
  const struct drawing *d = ctx;
  size_t at = item * PIECE_ELEMS;
  size_t n = d->n - at < PIECE_ELEMS ? d->n - at : PIECE_ELEMS;
  int rc = pen_init_elems(d->params, d->seed, d->block, d->begin + at, n,
                          d->out + at);
  assert(rc == 0); /* the range is inside the block */
  (void)rc;
}

static int write_weights(const struct pen_params *params, uint64_t seed,
                         const volatile sig_atomic_t *stop,
                         struct pen_hfdir_writer *writer)
{
  struct pen_pool *pool = NULL;
  float *chunk = malloc(CHUNK_ELEMS * sizeof *chunk);
  int rc = chunk ? pen_pool_create(pen_thread_usable_cpus(), "init", &pool)
                 : pen_error_set(-ENOMEM, "cannot make weights");
  for (size_t b = 0; b < params->n_blocks && !rc; b++) {
    size_t elems = params->blocks[b].elems;
    for (size_t at = 0; at < elems && !rc; at += CHUNK_ELEMS) {
      size_t n = elems - at < CHUNK_ELEMS ? elems - at : CHUNK_ELEMS;
      struct drawing d = {params, seed, b, at, n, chunk};
      if (*stop) {
        rc = pen_error_set(-PEN_ESTOPPED, "stopped; no model was written");
        break;
      }
      pen_pool_run(pool, (n + PIECE_ELEMS - 1) / PIECE_ELEMS, draw_piece, &d);
      rc = pen_params_save_elems(params, writer, b, at, n, chunk, PEN_FILE_F32);
    }
  }
  pen_pool_free(&pool);
  free(chunk);
  return rc;
}

int pen_verb_init(const struct pen_config *config)
{
  struct pen_model_config model;
  struct pen_params *params = NULL;
  struct pen_hfdir_writer *writer = NULL;
  const volatile sig_atomic_t *stop = pen_stop_on_signals();
  char from[4096];
  bool is_config;
  int rc = pen_session_config_path(config->model_config, from, sizeof from,
                                   &is_config);
  if (rc == 0)
    rc = pen_model_config_load(from, &model);
  if (rc)
    return rc;
  if (config->vocab_size != PEN_CONFIG_AUTO)
    model.vocab_size = config->vocab_size;
  if (config->untie)
    model.tied = false;
  enum pen_file_dtype dtype = choose_dtype(config, &model);
  rc = pen_ops_check_shape(model.n_heads, model.n_kv_heads, model.head_dim);
  if (!rc)
    rc = pen_params_build(&model, 0, 0, &params);
  if (!rc)
    rc = pen_params_create_dir(params, from, dtype, SHARD_BYTES,
                               config->output_dir, config->overwrite, &writer);
  if (!rc)
    rc = write_weights(params, config->seed, stop, writer);
  if (!rc)
    rc = pen_hfdir_commit(&writer);
  if (!rc) {
    char bytes[PEN_SIZE_TEXT_BYTES];
    pen_size_format(params->n_elems * pen_file_dtype_bytes(dtype), bytes);
    pen_log_info("%s: new %s model, %llu parameters, %s, %s, seed %llu",
                 config->output_dir, model.family->model_type,
                 (unsigned long long)params->n_elems,
                 pen_file_dtype_torch_name(dtype), bytes,
                 (unsigned long long)config->seed);
  }
  pen_hfdir_abandon(&writer);
  pen_params_free(&params);
  return rc;
}
