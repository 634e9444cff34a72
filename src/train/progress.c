/* progress.c: in place on a terminal, plain lines elsewhere.
 *
 * The time left is the running mean of step times (weight 1/16 for the newest)
 * times the steps left.  One thread.  Disadvantage: evaluations and saves
 * between steps count as part of the next step. */
#include "src/train/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

#define TERMINAL_NS 100000000u /* ten times a second is smooth enough */
#define PLAIN_NS 1000000000u
#define LINE_BYTES 512
#define NEWEST_WEIGHT (1 / 16.0)

void pen_progress_format_time(double seconds, char ret_text[16])
{
  if (!(seconds >= 0) || seconds > 1e9) {
    strcpy(ret_text, "?");
    return;
  }
  unsigned s = (unsigned)(seconds + 0.5);
  if (s < 60)
    snprintf(ret_text, 16, "%us", s);
  else if (s < 3600)
    snprintf(ret_text, 16, "%um%02us", s / 60, s % 60);
  else if (s < 86400)
    snprintf(ret_text, 16, "%uh%02um", s / 3600, s % 3600 / 60);
  else
    snprintf(ret_text, 16, "%ud%02uh", s / 86400, s % 86400 / 3600);
}

void pen_progress_begin(struct pen_progress *progress, int fd,
                        uint64_t first_step, uint64_t n_steps)
{
  uint64_t now_ns = pen_clock_ns();
  *progress = (struct pen_progress){
    .fd = fd, .is_terminal = isatty(fd),
    .first_step = first_step, .n_steps = n_steps, .last_step = first_step,
    .begin_ns = now_ns, .last_step_ns = now_ns,
  };
}

static size_t columns(const struct pen_progress *progress)
{
  struct winsize size;
  if (ioctl(progress->fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
    return size.ws_col;
  return 80;
}

static void put(const struct pen_progress *progress, const char *text)
{
  ssize_t n = write(progress->fd, text, strlen(text));
  (void)n; /* nobody to tell */
}

static void note_time(struct pen_progress *progress, uint64_t step,
                      uint64_t now_ns)
{
  if (step <= progress->last_step)
    return;
  double newest = (double)(now_ns - progress->last_step_ns) /
                  (double)(step - progress->last_step);
  progress->step_ns = progress->step_ns == 0
                          ? newest
                          : progress->step_ns +
                                (newest - progress->step_ns) * NEWEST_WEIGHT;
  progress->last_step = step;
  progress->last_step_ns = now_ns;
}

static void format(const struct pen_progress *progress,
                   const struct pen_progress_state *state,
                   char line[LINE_BYTES])
{
  char left[16];
  uint64_t n_left = progress->n_steps > state->step
                        ? progress->n_steps - state->step : 0;
  pen_progress_format_time(progress->step_ns * 1e-9 * (double)n_left, left);
  int n = snprintf(line, LINE_BYTES,
                   "step %" PRIu64 "/%" PRIu64 "  loss %.4f  norm %.3g  lr "
                   "%.3g  %.0f tok/s  left %s", state->step, progress->n_steps,
                   state->loss, state->grad_norm, state->learning_rate,
                   state->tokens_per_second, left);
  if (n > 0 && n < LINE_BYTES && state->n_skipped)
    n += snprintf(line + n, LINE_BYTES - (size_t)n, "  skipped %" PRIu64,
                  state->n_skipped);
  if (n > 0 && n < LINE_BYTES && state->bound)
    snprintf(line + n, LINE_BYTES - (size_t)n, "  %s", state->bound);
}

void pen_progress_step(struct pen_progress *progress,
                       const struct pen_progress_state *state)
{
  uint64_t now_ns = pen_clock_ns();
  note_time(progress, state->step, now_ns);
  uint64_t pause_ns = progress->is_terminal ? TERMINAL_NS : PLAIN_NS;
  if (progress->last_print_ns && state->step < progress->n_steps &&
      now_ns - progress->last_print_ns < pause_ns)
    return;
  progress->last_print_ns = now_ns;
  char line[LINE_BYTES], out[LINE_BYTES + 8];
  format(progress, state, line);
  if (progress->is_terminal) {
    size_t width = columns(progress) - 1; /* the last column would wrap */
    if (width < sizeof line)
      line[width] = '\0';
    snprintf(out, sizeof out, "\r%s\x1b[K", line);
    progress->is_line_open = true;
  } else {
    snprintf(out, sizeof out, "%s\n", line);
  }
  put(progress, out);
}

void pen_progress_clear(struct pen_progress *progress)
{
  if (!progress->is_line_open)
    return;
  put(progress, "\r\x1b[K");
  progress->is_line_open = false;
}

void pen_progress_end(struct pen_progress *progress)
{
  if (progress->is_line_open)
    put(progress, "\n");
  progress->is_line_open = false;
}
