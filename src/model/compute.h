/* compute.h: the model's own tables, and the functions offload calls on
 * them. */
#ifndef PEN_SRC_MODEL_COMPUTE_H
#define PEN_SRC_MODEL_COMPUTE_H

#include "kernels/ops.h"
#include "src/model/layer_layout.h"
#include "src/model/mixture.h"
#include "src/model/workload.h"

/* A micro-batch of the current step; arrays are the model's own. */
struct pen_compute_micro {
  size_t tokens; /* 0: not set */
  size_t n_logit_rows;
  size_t n_targets;
  uint32_t *ids;                         /* [max_tokens] */
  uint32_t *places;          /* [max_tokens]: of ids among the step's rows */
  uint32_t *positions;       /* [max_tokens]: rows of the tables of positions */
  uint32_t *first_key;       /* [max_tokens]: their document's begin */
  uint32_t *first_in_window; /* [max_tokens]; unused without a window */
  int32_t *targets;                      /* [max_tokens] */
  uint32_t *logit_rows;                  /* [max_logit_rows] */
  bool cached;
  size_t cache_first; /* tokens the cache holds already */
};

/* The rows of the embedding that the step's tokens take, in the order of their
 * first token. */
struct pen_compute_rows {
  size_t n;
  uint32_t *ids;    /* [rows] */
  uint32_t *places; /* [vocabulary rows]: 1 + place in ids, 0: not there */
};

struct pen_model {
  struct pen_params *params; /* borrowed */
  struct pen_model_options options;
  struct pen_workload workload;
  struct pen_compute compute;
  const struct pen_ops *ops;      /* of the compute lane */
  const struct pen_ops *host_ops; /* of the update lane */
  struct pen_layer layers[PEN_N_BLOCK_KINDS]; /* those of the body; experts */
  struct pen_mixture mixture;
  struct pen_stream stream;        /* compute lane */
  struct pen_stream update_stream; /* update lane; no scratch, no products */
  float embed_scale;
  float *cosines, *sines; /* [pen_rope_rows, rotary / 2]; the tables */
  /* Bytes from the beginning of a micro-batch's inputs, and of the tables: */
  size_t positions_at, first_key_at, first_in_window_at, targets_at;
  size_t logit_rows_at, sines_at;
  size_t cache_bytes; /* of a layer's keys, and of its values */
  struct pen_compute_micro *micros; /* [max_micros] */
  struct pen_compute_rows rows;
  void *memory;                    /* all arrays above */
};

/* Positions that a batch may have: as asked for, or as many as were learned. */
static inline size_t pen_compute_positions(const struct pen_model_config *config,
                                           const struct pen_model_options *o)
{
  size_t n = o->max_positions ? o->max_positions : o->max_tokens;
  bool learned = config->family->positions == PEN_POSITIONS_LEARNED;
  return learned && n > config->max_positions ? config->max_positions : n;
}

/* Fills model->compute. */
void pen_compute_init(struct pen_model *model);
/* Its part on rows of the embedding (compute_rows.c). */
void pen_compute_init_rows(struct pen_compute *compute);

#endif
