/* export.h: a model directory for others out of a run, a checkpoint or a model:
 * in another number format if so wanted, with the optimizer's state if asked
 * for. */
#ifndef PEN_SRC_TRAIN_EXPORT_H
#define PEN_SRC_TRAIN_EXPORT_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/file_dtype.h"

struct pen_export_settings {
  const char *from;          /* run, checkpoint or model directory */
  const char *to;            /* directory to make */
  enum pen_file_dtype dtype; /* NONE: as the files have it */
  bool with_optimizer;       /* also exp_avg, exp_avg_sq and master_weights,
                                a .safetensors each under the tensors' names */
  bool overwrite;            /* a model directory that is there is replaced */
  bool lenient, untie;       /* as pen_params_open */
  const volatile sig_atomic_t *stop; /* not 0: -PEN_ESTOPPED, and nothing is left;
                                        NULL: never */
};

struct pen_export_result {
  char from[4096]; /* the directory whose weights these are */
  uint64_t n_parameters;
  uint64_t step; /* of the optimizer's state; 0 without */
};

/* What is at `to` stays as it is until the new one is whole and durable.  A run
 * stands for its model or, not finished, its newest checkpoint; -ENOENT where it
 * has neither, or no state where that is asked for; -EBUSY while it runs and its
 * store is needed. */
int pen_export(const struct pen_export_settings *settings,
               struct pen_export_result *ret_result);

#endif
