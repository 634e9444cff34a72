/* speculation.h: when blocks are updated during backward, and what came of it. */
#ifndef PEN_SRC_TRAIN_SPECULATION_H
#define PEN_SRC_TRAIN_SPECULATION_H

#include <stdbool.h>
#include <stdint.h>

/* Of so many of the newest steps, so many whose update was clipped or skipped are
 * too many: then it waits for the decision. */
#define PEN_SPECULATION_STEPS 20
#define PEN_SPECULATION_MISSES 4

/* What became of a step's early updates. */
enum pen_speculation_outcome {
  PEN_SPECULATION_WAITED, /* there were none */
  PEN_SPECULATION_STOOD,
  PEN_SPECULATION_REDONE,    /* clipped: again, from the old state */
  PEN_SPECULATION_DISCARDED, /* skipped: the old state stays */
  PEN_SPECULATION_OUTCOMES
};

/* Starts as all zeros.  It is of a process, not of a run: it decides when work is
 * done, never what comes out. */
struct pen_speculation {
  uint32_t misses; /* a bit a step, the newest lowest */
  uint64_t n[PEN_SPECULATION_OUTCOMES];
};

/* May the coming step update early? */
bool pen_speculation_may(const struct pen_speculation *speculation);
/* What a step came to.  missed: its update was, or would have been, another one
 * than was to be guessed. */
void pen_speculation_note(struct pen_speculation *speculation,
                          enum pen_speculation_outcome outcome, bool missed);
/* For the log. */
const char *pen_speculation_name(enum pen_speculation_outcome outcome);

#endif
