/* workload.h: a model as offload sees it: the blocks of its parameter table,
 * the functions of struct pen_compute, and the micro-batches of a step. */
#ifndef PEN_SRC_MODEL_WORKLOAD_H
#define PEN_SRC_MODEL_WORKLOAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "kernels/elem.h"
#include "kernels/isa.h"
#include "offload/workload.h"
#include "src/model/params.h"

/* What a model's memory and bits depend on, beside its config. */
struct pen_model_options {
  enum pen_elem elem; /* weights and activations */
  const char *gemm;   /* product library (kernels/gemm.h); "auto" */
  enum pen_isa isa;   /* from pen_isa_choose */
  const struct pen_state_format *state;
  size_t max_tokens;  /* of a micro-batch */
  double document_tokens; /* mean length, for costs; 0: max_tokens */
  size_t max_positions; /* one more than the greatest position; 0: max_tokens */
  size_t cache_tokens;  /* room for keys and values of one document; 0: none */
  size_t max_micros;  /* of a step */
  size_t max_logit_rows; /* of a micro-batch; 0: logits are never asked for */
  bool empty_tables; /* nothing will be computed, only planned */
  /* Operations of the compute lane, and their stream's device (stream.h).
   * NULL: the host's, with products by `gemm`. */
  const struct pen_ops *ops;
  void *device;
};

struct pen_gemm_library;
struct pen_ops;
struct pen_model;

/* Documents packed one after the other, of one micro-batch. */
struct pen_model_micro {
  size_t n_tokens;           /* T, 1 to max_tokens */
  const uint32_t *ids;       /* [T] */
  const uint32_t *positions; /* [T], within its document */
  const int32_t *targets;    /* [T]; negative: no loss.  NULL: none at all */
  size_t n_docs;
  const uint32_t *doc_begin; /* [n_docs + 1]: 0, ..., T; ascending */
  bool cached; /* one document, which goes on from positions[0] tokens whose
                  keys and values are in the cache; these join them there */
};

enum pen_model_logits {
  PEN_LOGITS_NONE,
  PEN_LOGITS_LAST, /* of each document's last token */
  PEN_LOGITS_ALL,
};

/* Bytes pen_model_create will allocate, all of them; for the memory plan.
 * -EOVERFLOW where they do not fit into a size_t. */
int pen_model_host_bytes(const struct pen_params *params,
                         const struct pen_model_options *options,
                         size_t n_threads, size_t *ret_bytes);

/* Makes the model and opens its product library (which may load a shared
 * library: call it before other threads work).  Sets saved_bytes of the
 * table's blocks.  Borrows params and both pools until free: `pool` is used by
 * the compute functions, update_pool by gather, scatter and finish_rows, which
 * may run at the same time.  Caller owns *ret_model. */
int pen_model_create(struct pen_params *params,
                     const struct pen_model_options *options,
                     struct pen_pool *pool, struct pen_pool *update_pool,
                     struct pen_model **ret_model);

/* NULL is fine; sets *model to NULL. */
void pen_model_free(struct pen_model **model);

/* Borrowed until the model is freed. */
const struct pen_workload *pen_model_workload(const struct pen_model *model);
const struct pen_compute *pen_model_compute(const struct pen_model *model);
/* NULL where the operations were given. */
const struct pen_gemm_library *pen_model_gemm(const struct pen_model *model);

/* Copies a micro-batch of the coming step into the model; not while a step
 * that uses this micro runs.  `logits`: rows that head_logits fills.
 * -PEN_EMISMATCH, naming the token, for ids or targets outside the vocabulary,
 * positions outside the table, or documents that do not tile the tokens. */
int pen_model_set_micro(struct pen_model *model, size_t micro,
                        const struct pen_model_micro *batch,
                        enum pen_model_logits logits);

/* Rows of logits [rows, vocab_size] that this micro-batch returns. */
size_t pen_model_logit_rows(const struct pen_model *model, size_t micro);

#endif
