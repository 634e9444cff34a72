/* trainer_source.h: what a resumed run can go on from.  For src/train only. */
#ifndef PEN_SRC_TRAIN_TRAINER_SOURCE_H
#define PEN_SRC_TRAIN_TRAINER_SOURCE_H

#include "base/error.h"
#include "src/train/trainer.h"

struct pen_trainer_source {
  struct pen_saved *saved; /* NULL: nothing was committed; the caller closes it */
  bool is_checkpoint;
  size_t store; /* index among the run's; SIZE_MAX: needs none */
};

/* The run's stores, opened; NULL where one cannot be. */
struct pen_trainer_stores {
  struct pen_store *stores[PEN_RUNDIR_STORES_MAX];
  struct pen_error why; /* one could not: the last one's reason */
};

/* Opens what can be, and warns of what is damaged.  -EBUSY: another process has
 * one. */
int pen_trainer_open_stores(struct pen_trainer *t,
                            struct pen_trainer_stores *opened);
void pen_trainer_close_stores(struct pen_trainer_stores *opened);

/* The newest, of equals the store's; warns of checkpoints that cannot be used. */
void pen_trainer_find_source(struct pen_trainer *t,
                             const struct pen_trainer_stores *opened,
                             struct pen_trainer_source *ret_source);

#endif
