/* drive_advice.h: what a drive would mean for training: seconds that it adds to a
 * step, its wear, and the models that fit on it.  For people who choose drives. */
#ifndef PEN_SRC_TRAIN_DRIVE_ADVICE_H
#define PEN_SRC_TRAIN_DRIVE_ADVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "offload/machine.h"

struct pen_drive_advice_question {
  const struct pen_machine *machine; /* borrowed; ALL its drives hold the state,
                                        striped; at least one */
  uint64_t tokens_per_step; /* 0: 65,536; rounded up to whole sequences */
  uint32_t max_length;      /* of a sequence; 0: 2,048, or what the model can */
  uint64_t host_bytes;      /* RAM a run may take; 0: the machine's, less a
                               sixteenth, or what is free now */
  uint64_t free_bytes;      /* of all drives together; 0: not known */
  uint64_t tbw;             /* bytes that each drive is rated for; 0: not given */
  uint64_t n_checkpoints;   /* kept on the drives, beside the final model */
  bool durable;             /* copy-on-write with commits; else in place */
};

/* One model with its optimizer state on the drives. */
struct pen_drive_advice {
  char model[64];
  uint64_t parameters;
  uint64_t tokens_per_step;
  /* State, what the plan puts there besides, checkpoints and the final model. */
  uint64_t drive_bytes;
  bool has_room;   /* drive_bytes <= free_bytes, or free_bytes is not known */
  bool fits;       /* the rest fits in memory; only then: */
  double step_seconds;  /* simulated */
  double added_seconds; /* of them, gone if the drives were infinitely fast */
  double alone_seconds; /* the drives' own time for a step: what they add at most,
                           however fast all else is */
  uint64_t written_bytes; /* of a step, to all drives */
  double steps_to_tbw, days_to_tbw; /* without a pause; 0: tbw not given, or
                                       nothing is written */
};

/* Of a model directory or a config.json.  What does not fit in memory is 0 with
 * ret_advice->fits false; -PEN_EUSAGE: no drives, or a rate that the profile
 * lacks.  Takes up to a few seconds for the largest. */
int pen_drive_advice_model(const struct pen_drive_advice_question *question,
                           const char *model,
                           struct pen_drive_advice *ret_advice);

/* Of the i-th standard size, 1.5 B to 70 B parameters, smallest first. */
#define PEN_DRIVE_ADVICE_SIZES 6
int pen_drive_advice_size(const struct pen_drive_advice_question *question,
                          size_t i, struct pen_drive_advice *ret_advice);

/* Parameters of the largest model in bf16 whose state, checkpoints and final
 * model have room in free_bytes, in tiles of any size; RAM is not asked. */
uint64_t
pen_drive_advice_largest(const struct pen_drive_advice_question *question);

#endif
