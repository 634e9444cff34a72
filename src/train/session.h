/* session.h: a model made ready to compute: placed, laid out and loaded.  What
 * training, evaluation and generation have in common. */
#ifndef PEN_SRC_TRAIN_SESSION_H
#define PEN_SRC_TRAIN_SESSION_H

#include "base/pool.h"
#include "io/hfdir.h"
#include "io/store.h"
#include "kernels/backend.h"
#include "offload/run.h"
#include "src/data/batch.h"
#include "src/model/workload.h"
#include "src/train/gemm_choice.h"
#include "src/train/memory.h"
#include "src/train/numerics.h"
#include "src/train/search.h"
#include "src/train/settings.h"

/* Sizes the caller decides. */
struct pen_session_shape {
  size_t max_tokens;     /* of a micro-batch */
  size_t max_micros;     /* of a step */
  double document_tokens; /* mean length, for planning; 0: max_tokens */
  size_t max_logit_rows; /* 0: logits are never asked for */
  size_t max_positions;  /* of a document; 0: max_tokens */
  size_t cache_tokens;   /* whose keys and values are kept; 0: of none */
  bool sizes_vary;       /* micro-batches are not all of one size */
  size_t head_rows;      /* 0: chosen */
  size_t other_bytes;    /* RAM the caller takes itself (batches, sequences) */
  size_t trace_bytes;    /* and for a timeline */
  bool inference;
  bool tries_gemm;  /* --gemm auto by a trial: a training run's first start */
  bool config_only; /* plan: the model may be a config.json without weights */
  bool commits;     /* each step does, where all state is on drives */
  bool unproved;    /* nobody will run it: its schedules need no proof */
  bool whether;     /* what does not fit need not be laid out */
  const struct pen_search_result *known; /* taken where it fits, in place of a
                                            search; NULL: nothing is */
};

/* Parts in the order they are made; the struct is the caller's to read. */
struct pen_session {
  struct pen_machine_settings machine;
  enum pen_isa isa;
  enum pen_elem elem;
  const struct pen_state_format *state;
  struct pen_model_config config;
  struct pen_hfdir *dir; /* NULL: only its config is known */
  struct pen_params *params;
  struct pen_topology topology;
  struct pen_division division; /* the session must stay where it is */
  struct pen_backend *backend; /* NULL: the host computes */
  struct pen_pool *pool, *update_pool;
  struct pen_model *model;
  struct pen_gemm_choice gemm_choice; /* n 0: no trial was made */
  struct pen_search_result found; /* where the machine's profile chose */
  struct pen_layout layout;
  struct pen_run_plan plan;
  struct pen_memory memory;
  size_t io_depth;
  size_t max_tokens; /* of a micro-batch */
  const struct pen_engine *engine; /* NULL: no drives were offered */
  struct pen_run *run; /* after pen_session_start */
};

/* Opens the model, chooses the placement, plans all memory and holds it against
 * the limits: -PEN_ENOFIT (exit 3) if it is too much, with *session's memory
 * filled for the table.  max_length: for models with a sliding window.  Takes
 * little memory itself.  After any return pen_session_close is right. */
int pen_session_open(struct pen_session *session,
                     const struct pen_model_settings *model,
                     const struct pen_machine_settings *machine,
                     const struct pen_session_shape *shape,
                     size_t max_length);

/* Who multiplies, and what else decides its bits; after pen_session_open. */
const char *pen_session_products(const struct pen_session *session);
const char *pen_session_products_variant(const struct pen_session *session);

/* session_backend.c, for pen_session_open: opens what `machine.backend` asks
 * for and `gemm` goes with; "auto" falls back to the host, saying why. */
int pen_session_open_backend(struct pen_session *session, const char *gemm,
                             bool tf32);

/* session_place.c, for pen_session_open: chooses the placement, lays it out, and
 * holds it against the limits.  What the search chose is in session->found. */
int pen_session_place(struct pen_session *session,
                      const struct pen_session_shape *shape);

/* The config.json of a model: a directory's, or the file itself. */
int pen_session_config_path(const char *model, char *ret_path, size_t bytes,
                            bool *ret_is_config);
/* What is in it; without_weights: there is nothing else. */
int pen_session_load_config(const struct pen_model_settings *model,
                            struct pen_model_config *ret_config,
                            bool *ret_without_weights);

/* Threads as options or the search have them; else as many as `otherwise`. */
size_t pen_session_threads(const struct pen_session *session, size_t otherwise);
size_t pen_session_update_threads(const struct pen_session *session,
                                  size_t otherwise);

/* What the simulator is told of how this session would run on a machine, which
 * is borrowed: its threads are as many as cores, unless options say. */
struct pen_simulate_options
pen_session_simulate_options(const struct pen_session *session,
                             const struct pen_machine *machine);

/* Takes the memory and starts the lanes.  store: where the layout's store tiles
 * and scratch are; NULL if it has none; borrowed until close. */
int pen_session_start(struct pen_session *session, struct pen_store *store,
                      struct pen_trace *trace,
                      const struct pen_run_hooks *hooks);

/* Loads the model directory's weights as a fresh start: moments zero. */
int pen_session_load(struct pen_session *session);
/* The same for elements of one tile: the loader pen_session_load uses. */
int pen_session_load_tile(struct pen_session *session, uint32_t tile,
                          size_t begin, size_t n, float *p, float *m, float *v);

/* Frees the model and its threads, to make them anew. */
void pen_session_close_compute(struct pen_session *session);
/* Frees everything; the store stays the caller's. */
void pen_session_close(struct pen_session *session);

/* Sets micro-batch `micro` of the coming step from a filled batch. */
int pen_session_set_micro(struct pen_session *session, size_t micro,
                          const struct pen_batch *batch,
                          enum pen_model_logits logits);

#endif
