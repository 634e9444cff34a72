/* train.h: trains a model from settings to a finished directory. */
#ifndef PEN_SRC_TRAIN_TRAIN_H
#define PEN_SRC_TRAIN_TRAIN_H

#include "src/train/settings.h"

/* -EEXIST where output_dir holds a run that is neither gone on with nor written
 * over: worth knowing before there is any work. */
int pen_train_check_output(const struct pen_train_settings *settings);

/* Runs, or resumes, the whole training: plan, loop, evaluations, checkpoints,
 * final model in OUTPUT_DIR/model.  Prints what it decided and how it goes to
 * standard error.  Returns 0 when finished (or after a dry run), -PEN_ESTOPPED
 * when a signal ended it with everything saved, -PEN_ENOFIT when the plan is
 * larger than the machine; committed state survives every failure. */
int pen_train(const struct pen_train_settings *settings);

#endif
