/* dataset.h: a token file opened for a model and cut into sequences. */
#ifndef PEN_SRC_TRAIN_DATASET_H
#define PEN_SRC_TRAIN_DATASET_H

#include "src/data/sequences.h"
#include "src/model/config.h"

struct pen_dataset {
  struct pen_tokens *tokens;
  struct pen_sequences *sequences;
};

/* Opens `path` for the model in model_dir: its vocabulary and its tokenizer are
 * held against the file's.  cut->max_length 0 becomes 1,024 (TRL's default), or
 * the most the model can.  Warns of what was cut off or dropped, naming cut->name
 * (NULL: path).  After any return pen_dataset_close is right. */
int pen_dataset_open(const char *path, const char *model_dir,
                     struct pen_sequences_options *cut,
                     struct pen_dataset *ret_dataset);
/* What max_length 0 becomes for this model. */
uint32_t pen_dataset_length(const struct pen_model_config *config);
void pen_dataset_close(struct pen_dataset *dataset);

#endif
