/* checkpoint.h: writes a checkpoint (weights in Hugging Face's layout and the
 * optimizer state) or the final model, from the hooks of a saving step. */
#ifndef PEN_SRC_TRAIN_CHECKPOINT_H
#define PEN_SRC_TRAIN_CHECKPOINT_H

#include "src/train/saved.h"
#include "src/train/session.h"

struct pen_checkpoint; /* one being written */

/* Starts PATH.tmp; PATH appears at finish.  chat_template: a file that takes the
 * place of the model's own, or NULL.  cursor NULL: weights only (the
 * final model), else with state, whose store tiles lie in the store of that
 * generation.  Caller owns *ret_checkpoint. */
int pen_checkpoint_begin(struct pen_session *session, const char *path,
                         const char *chat_template,
                         const struct pen_cursor *cursor, uint32_t generation,
                         struct pen_checkpoint **ret_checkpoint);

/* Adds a tile's state, as struct pen_run_hooks hands it out, and a block's
 * weights.  The write lane's thread. */
int pen_checkpoint_save_tile(struct pen_checkpoint *checkpoint, uint32_t tile,
                             const void *state,
                             const void *half);
int pen_checkpoint_save_block(struct pen_checkpoint *checkpoint,
                              uint32_t block, const void *weights);

/* places: where the store's tiles lie, or NULL without any.  Makes PATH.tmp
 * whole and durable and then PATH.  Frees either way. */
int pen_checkpoint_finish(struct pen_checkpoint **checkpoint,
                          const struct pen_store_place *places);
void pen_checkpoint_abandon(struct pen_checkpoint **checkpoint);

#endif
