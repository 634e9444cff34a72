/* model_dir.h: a model directory opened as a whole: config, files, table. */
#ifndef PEN_SRC_MODEL_MODEL_DIR_H
#define PEN_SRC_MODEL_MODEL_DIR_H

#include <stdbool.h>
#include <stddef.h>

#include "src/model/config.h"
#include "src/model/params.h"

struct pen_model_dir {
  char *path; /* where it was found: `path`, or the hub cache's folder */
  struct pen_model_config config; /* as config.json says */
  struct pen_hfdir *files;
  struct pen_params *params; /* bound to files; its config has the tie decided */
};

struct pen_model_dir_options {
  bool lenient;     /* as pen_safetensors_open */
  bool untie;       /* as pen_params_open */
  size_t head_rows; /* as pen_params_build */
};

/* Where `path` is: itself, or, when it does not exist and looks like a hub id
 * ("org/name"), the snapshot in the local hub cache (HF_HUB_CACHE, HF_HOME,
 * ~/.cache/huggingface); else -ENOENT says which command downloads it, and
 * -PEN_EUSAGE where in a run's directory models are.  Nothing is ever fetched.
 * Caller frees *ret_path. */
int pen_model_dir_find(const char *path, char **ret_path);

/* Finds and opens the directory and checks every file in it.  Caller owns
 * *ret_dir. */
int pen_model_dir_open(const char *path,
                       const struct pen_model_dir_options *options,
                       struct pen_model_dir **ret_dir);

/* NULL is fine; sets *dir to NULL. */
void pen_model_dir_close(struct pen_model_dir **dir);

#endif
