/* runlog.h: log.jsonl, one line per logged step, under transformers' names. */
#ifndef PEN_SRC_TRAIN_RUNLOG_H
#define PEN_SRC_TRAIN_RUNLOG_H

#include <stdbool.h>
#include <stdint.h>

#include "io/json.h"

struct pen_runlog;

/* One training step's line.  Doubles that are NaN are written as null (loss
 * and grad_norm of a skipped step); strings that are NULL are left out. */
struct pen_runlog_step {
  uint64_t step; /* optimizer steps finished, from 1 */
  double epoch, loss, grad_norm, learning_rate;
  double tokens_per_second, step_seconds;
  uint64_t n_tokens;         /* target tokens of the step */
  uint64_t n_skipped;        /* steps skipped so far, this one included */
  const char *skipped_block; /* where the non-finite gradient was; or NULL */
  const char *bound;         /* lane that binds; or NULL */
  uint64_t nvme_written;     /* bytes the run has put on drives; 0: left out */
  const char *speculation;   /* what became of early updates; NULL: no blocks have
                                them, and the counts are left out too */
  uint64_t n_redone, n_discarded; /* of them, steps of this process so far */
};

/* Opens the log for appending and keeps what belongs to the steps up to
 * keep_step: 0 empties it.  It is cut at the first line of a later step, and
 * at a torn or unreadable one, so that no step is logged twice after a resume.
 * Owned by the caller (pen_runlog_close). */
int pen_runlog_open(const char *path, uint64_t keep_step,
                    struct pen_runlog **ret_log);

/* The last step whose training line, or whose eval_loss line, is in the log:
 * a run killed between a commit and an evaluation can tell what is missing. */
uint64_t pen_runlog_last_step(const struct pen_runlog *log);
uint64_t pen_runlog_last_eval_step(const struct pen_runlog *log);
uint64_t pen_runlog_last_sample_step(const struct pen_runlog *log);

/* The most that any line says was written to drives, lines cut away too: what
 * a killed run wrote wore the drives all the same. */
uint64_t pen_runlog_nvme_written(const struct pen_runlog *log);

/* Appends a line with one write(2); a line that does not fit on the drive
 * leaves nothing behind.  Allocates nothing. */
int pen_runlog_append_step(struct pen_runlog *log,
                           const struct pen_runlog_step *step);
int pen_runlog_append_eval(struct pen_runlog *log, uint64_t step, double epoch,
                           double eval_loss, uint64_t n_tokens);

/* A sample: its ids, the prompt's among them, and its text (NULL: unknown).
 * Allocates a line. */
int pen_runlog_append_sample(struct pen_runlog *log, uint64_t step,
                             double epoch, const char *text,
                             const uint32_t *ids, size_t n);

/* Makes what is appended durable: before a commit that covers it. */
int pen_runlog_sync(struct pen_runlog *log);

/* Closes; sets NULL. */
void pen_runlog_close(struct pen_runlog **log);

/* Calls each(ctx, line's JSON, its root) for every whole line, in order, until
 * it returns not 0, which is returned. */
int pen_runlog_read(const char *path,
                    int (*each)(void *ctx, const struct pen_json *json,
                                const struct pen_json_node *root),
                    void *ctx);

#endif
