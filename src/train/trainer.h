/* trainer.h: what the files of the training loop share.  For src/train only. */
#ifndef PEN_SRC_TRAIN_TRAINER_H
#define PEN_SRC_TRAIN_TRAINER_H

#include "src/data/order.h"
#include "src/train/checkpoint.h"
#include "src/train/dataset.h"
#include "src/train/generate.h"
#include "src/train/progress.h"
#include "src/train/rundir.h"
#include "src/train/runlog.h"
#include "src/train/session.h"
#include "src/train/speculation.h"

/* One file of sequences and the order in which they are read. */
struct pen_trainer_data {
  struct pen_dataset set;
  struct pen_order order;
};

struct pen_trainer {
  struct pen_train_settings set; /* a resumed run's numerics filled in */
  struct pen_numerics numerics;
  struct pen_trainer_data train, eval;
  struct pen_session session;
  struct pen_rundir rundir;
  bool resumes;
  size_t n_products_kept; /* choices that the run's file holds */
  bool lacks_products;    /* a resumed run has no such file */
  uint64_t usual_batch; /* sequences of a micro-batch, where another number was
                           chosen; else 0 */
  struct pen_search_result known; /* of the placement, where choosing that number
                                     has found it; n_simulated 0: it has not */
  struct pen_batch *batch;
  uint64_t *ids; /* [batch_sequences] */
  struct pen_lr lr;
  uint64_t n_steps;

  struct pen_store *store; /* NULL: nothing on drives */
  uint32_t generation;     /* of that store */
  struct pen_store_place *places; /* [n_store_tiles], while saving */
  uint64_t written_before; /* to drives, by this run's earlier processes */
  bool whole_in_store;     /* every tile is there: each step can commit */

  struct pen_cursor cursor; /* after the newest step, applied or pending */
  struct pen_run_update update; /* what waits for the next run_step */
  struct pen_speculation speculation;
  enum pen_speculation_outcome outcome; /* of the newest step */
  struct pen_checkpoint *saving;
  struct pen_runlog *log;
  struct pen_generator sampler; /* of samples; session NULL: none */
  struct pen_progress progress;
  struct pen_trace *trace;
  struct pen_run_result result;
  uint64_t step_targets, step_inputs;
  double step_loss, step_norm, step_lr;
  bool step_skipped;
};

/* Events of a lane in a timeline: more are not kept. */
#define PEN_TRAINER_TRACE_EVENTS 200000

/* trainer_session.c, for train and plan: the model placed and laid out for this data,
 * `tries` only to see how that would be; how many steps that makes; and all of
 * it closed again. */
int pen_trainer_open_session(struct pen_trainer *t, bool tries);
int pen_trainer_plan_steps(struct pen_trainer *t);
void pen_trainer_close(struct pen_trainer *t);

/* trainer_cut.c: the session, with a step cut into the micro-batches that the
 * user asked for or else, at a first start, into those that fit and are faster. */
int pen_trainer_open_cut(struct pen_trainer *t);

/* trainer_products.c: begins the file of choices of a new run; writes it anew
 * where there are more of them; a resumed run's choices, made again: -PEN_EMISMATCH
 * where this device or library has not got them.  Nothing on the host. */
int pen_trainer_begin_products(struct pen_trainer *t);
int pen_trainer_keep_products(struct pen_trainer *t);
int pen_trainer_load_products(struct pen_trainer *t);
/* After attach: -PEN_EMISMATCH where a run that got somewhere lacks its file. */
int pen_trainer_check_products(const struct pen_trainer *t);

/* trainer_data.c: opens the data, and reads steps of it into the model. */
int pen_trainer_open_data(struct pen_trainer *t);
/* In place of data: one step's worth of sequences as long as is allowed.  The
 * model is known by its config.json alone. */
int pen_trainer_assume_data(struct pen_trainer *t);
void pen_trainer_close_data(struct pen_trainer *t);
/* The most a row holds, over training and evaluation data. */
struct pen_sequences_limits pen_trainer_limits(const struct pen_trainer *t);
/* Sets every micro-batch of one step; counts its tokens. */
int pen_trainer_fill(struct pen_trainer *t, const struct pen_trainer_data *data,
                     uint64_t step, struct pen_order_step *ret_step,
                     uint64_t *ret_inputs, uint64_t *ret_targets);

/* trainer_space.c: -PEN_ENOFIT when the stores are larger than --nvme-memory, or
 * the output's drive has no room for the checkpoints and the model that this
 * run will write: better now than after an epoch. */
int pen_trainer_check_space(struct pen_trainer *t);
/* The stores alone. */
int pen_trainer_check_stores(struct pen_trainer *t);
/* Of the model's files; and of one checkpoint: the model's files, and p, m, v of tiles in RAM. */
uint64_t pen_trainer_model_bytes(const struct pen_trainer *t);
uint64_t pen_trainer_checkpoint_bytes(const struct pen_trainer *t);

/* trainer_state.c: brings the run to the newest committed state, or to its
 * start, and leaves `store`, `cursor` and a started, loaded session. */
int pen_trainer_attach(struct pen_trainer *t);

/* trainer_save.c */
/* Applies what is pending, then writes checkpoint-STEP, and removes the oldest
 * beyond --save-total-limit. */
int pen_trainer_checkpoint(struct pen_trainer *t);
/* Applies what is pending and writes OUTPUT_DIR/model. */
int pen_trainer_export(struct pen_trainer *t);
/* Applies what is pending, committing if the store is whole. */
int pen_trainer_drain(struct pen_trainer *t);
/* Removes stores that neither the run nor a checkpoint needs. */
int pen_trainer_collect_stores(struct pen_trainer *t);
/* The state of checkpoint-STEP. */
int pen_trainer_open_checkpoint(const struct pen_trainer *t, uint64_t step,
                                struct pen_saved **ret_saved);
/* Pins what checkpoints hold of the run's store. */
int pen_trainer_pin_checkpoints(struct pen_trainer *t);
/* Extents the store needs for --save-total-limit checkpoints. */
size_t pen_trainer_extents(const struct pen_trainer *t);

/* trainer_wear.c: bytes that this run has put on drives so far, earlier
 * processes included; and whether --max-write allows another step and the clean
 * stop after it. */
uint64_t pen_trainer_written(const struct pen_trainer *t);
bool pen_trainer_may_write(const struct pen_trainer *t);
/* -PEN_ESTOPPED: it allows none at all. */
int pen_trainer_begin_wear(struct pen_trainer *t);
/* What a training step writes to drives, on the average of those that commit and
 * those between. */
uint64_t pen_trainer_written_per_step(const struct pen_trainer *t);

/* trainer_sample.c: room for samples in the session's shape; what makes them,
 * once it has started; and one sample to the log. */
int pen_trainer_shape_samples(const struct pen_trainer *t,
                              struct pen_session_shape *shape);
int pen_trainer_open_samples(struct pen_trainer *t);
int pen_trainer_sample(struct pen_trainer *t, double epoch);

/* trainer_tell.c: what was chosen, before anything is made; how the memory that was
 * taken lies; what became of early updates. */
void pen_trainer_tell_start(const struct pen_trainer *t);
void pen_trainer_tell_memory(const struct pen_session *session);
void pen_trainer_tell_outcomes(const struct pen_trainer *t);

/* trainer_loop.c */
int pen_trainer_loop(struct pen_trainer *t);

#endif
