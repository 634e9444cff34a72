/* progress.h: the line that says how a run is doing. */
#ifndef PEN_SRC_TRAIN_PROGRESS_H
#define PEN_SRC_TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Fields are progress.c's own. */
struct pen_progress {
  int fd;
  bool is_terminal, is_line_open;
  uint64_t first_step, n_steps, last_step;
  uint64_t begin_ns, last_print_ns, last_step_ns;
  double step_ns; /* running mean of a step's time */
};

struct pen_progress_state {
  uint64_t step; /* finished, from 1 */
  double loss, grad_norm, learning_rate, tokens_per_second;
  uint64_t n_skipped;
  const char *bound; /* "compute 83%"; or NULL */
};

/* Begins at first_step finished of n_steps.  On a terminal one line is written
 * over and over, cut to its width; into a file or pipe go plain lines, at most
 * one a second, and always the first and the last step's. */
void pen_progress_begin(struct pen_progress *progress, int fd,
                        uint64_t first_step, uint64_t n_steps);

/* Tells of a finished step.  Never fails: where writing is impossible there is
 * no progress to see.  Allocates nothing. */
void pen_progress_step(struct pen_progress *progress,
                       const struct pen_progress_state *state);

/* Clears the terminal's line, so that something else can be printed; the next
 * step draws it again. */
void pen_progress_clear(struct pen_progress *progress);

/* Leaves the last line standing. */
void pen_progress_end(struct pen_progress *progress);

/* "12s", "3m20s", "1h02m", "2d03h". */
void pen_progress_format_time(double seconds, char ret_text[16]);

#endif
