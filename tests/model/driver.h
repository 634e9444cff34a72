/* driver.h: a whole model run through struct pen_compute, block after block,
 * with everything in memory: the simplest schedule there is. */
#ifndef PEN_TESTS_MODEL_DRIVER_H
#define PEN_TESTS_MODEL_DRIVER_H

#include "io/hfdir.h"
#include "kernels/gemm.h"
#include "src/model/workload.h"
#include "tests/test.h"

struct driver_options {
  enum pen_elem elem;
  const char *gemm;
  size_t n_threads;
  size_t head_rows;
  size_t max_tokens, max_micros;
  size_t cache_tokens;
  bool recompute;
  enum pen_model_logits logits;
  size_t random_rows; /* not 0: random weights instead of the directory's, and
                         this many rows of vocabulary, padded ones counted */
};

struct driver {
  struct driver_options options;
  struct pen_hfdir *dir;
  struct pen_params *params;
  struct pen_pool *pool, *update_pool;
  struct pen_model *model;
  const struct pen_workload *workload;
  const struct pen_compute *compute;
  void **weights; /* [n_blocks] */
  float **grads;  /* [n_blocks], accumulated over calls of driver_train */
  void *kept;     /* what one call of forward leaves to the next */
  float *logits;  /* of the last micro-batch; [rows, vocab_size] */
};

/* A model directory's weights and a model to run them. */
void driver_open(struct driver *d, const char *path,
                 const struct driver_options *options);
void driver_close(struct driver *d);

/* Forward and backward of the micro-batch that was set as `micro`; adds to the
 * gradients.  Returns the summed loss. */
double driver_train(struct driver *d, size_t micro);

/* Forward only; fills the logits where options ask for them. */
double driver_forward(struct driver *d, size_t micro);

/* Sets `micro` from documents [0, doc_begin[1]), ... of ids and targets, with
 * positions counted within each. */
void driver_set(struct driver *d, size_t micro, size_t n_docs,
                const uint32_t *doc_begin, const uint32_t *ids,
                const int32_t *targets);

/* Sets micro 0 to n ids of one document that go on from `first` cached ones. */
void driver_set_cached(struct driver *d, size_t first, size_t n,
                       const uint32_t *ids);

#endif
