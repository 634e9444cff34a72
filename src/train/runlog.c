/* runlog.c: append-only lines, cut back on resume.
 *
 * Invariants: the file ends with a newline or is empty; steps never decrease
 * from line to line.  Main thread only.  Disadvantage: opening reads the whole
 * log, and a log above 1 GiB is refused. */
#include "src/train/runlog.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "io/files.h"
#include "io/json_write.h"

#define LINE_BYTES 2048
#define LOG_BYTES_MAX ((size_t)1 << 30)

struct pen_runlog {
  int fd;
  uint64_t n_bytes; /* whole lines */
  uint64_t last_step, last_eval_step, last_sample_step;
  uint64_t nvme_written;
  char *path;
};

/* Parses the line at text[*at ..] and moves *at behind it; NULL at the end, at
 * a line without newline and at one that is not an object with a step. */
static struct pen_json *next_line(const char *path, const char *text,
                                  size_t n_bytes, size_t *at,
                                  uint64_t *ret_step)
{
  const char *newline = memchr(text + *at, '\n', n_bytes - *at);
  struct pen_json *json = NULL;
  if (!newline)
    return NULL;
  int64_t step = -1;
  if (pen_json_parse(text + *at, (size_t)(newline - text) - *at, path, &json) ||
      pen_json_get_i64(json, pen_json_root(json), "step", &step) || step < 0) {
    pen_error_clear(); /* an unreadable line is an end, not a failure */
    pen_json_free(&json);
    return NULL;
  }
  *at = (size_t)(newline - text) + 1;
  *ret_step = (uint64_t)step;
  return json;
}

static void count_written(struct pen_runlog *log, const struct pen_json *json)
{
  int64_t written = 0;
  if (pen_json_opt_i64(json, pen_json_root(json), "nvme_written_bytes",
                       &written))
    pen_error_clear();
  if (written > 0 && (uint64_t)written > log->nvme_written)
    log->nvme_written = (uint64_t)written;
}

/* Bytes of the lines up to keep_step. */
static uint64_t find_cut(struct pen_runlog *log, const char *text,
                         size_t n_bytes, uint64_t keep_step)
{
  size_t at = 0, cut = 0;
  uint64_t step;
  struct pen_json *json;
  bool keep = true;
  while ((json = next_line(log->path, text, n_bytes, &at, &step))) {
    keep = keep && step <= keep_step;
    const struct pen_json_node *root = pen_json_root(json);
    if (keep && pen_json_member(root, "loss"))
      log->last_step = step;
    if (keep && pen_json_member(root, "eval_loss"))
      log->last_eval_step = step;
    if (keep && pen_json_member(root, "sample_ids"))
      log->last_sample_step = step;
    count_written(log, json);
    pen_json_free(&json);
    if (keep)
      cut = at;
  }
  return cut;
}

static int cut_back(struct pen_runlog *log, uint64_t keep_step)
{
  char *text = NULL;
  size_t n_bytes = 0;
  if (keep_step > 0) {
    int r = pen_files_read_whole(log->path, LOG_BYTES_MAX, &text, &n_bytes);
    if (r)
      return r;
    log->n_bytes = find_cut(log, text, n_bytes, keep_step);
    free(text);
  }
  if (ftruncate(log->fd, (off_t)log->n_bytes))
    return pen_error_set(-errno, "cannot cut %s to %llu bytes", log->path,
                         (unsigned long long)log->n_bytes);
  return 0;
}

int pen_runlog_open(const char *path, uint64_t keep_step,
                    struct pen_runlog **ret_log)
{
  struct pen_runlog *log = calloc(1, sizeof *log);
  int r = 0;
  if (log) {
    log->fd = -1;
    log->path = strdup(path);
  }
  if (!log || !log->path) {
    r = pen_error_set(-ENOMEM, "cannot open %s", path);
    goto fail;
  }
  log->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log->fd < 0) {
    r = pen_error_set(-errno, "cannot open %s", path);
    goto fail;
  }
  r = cut_back(log, keep_step);
  if (r)
    goto fail;
  *ret_log = log;
  return 0;
fail:
  pen_runlog_close(&log);
  return r;
}

uint64_t pen_runlog_last_step(const struct pen_runlog *log)
{
  return log->last_step;
}

uint64_t pen_runlog_last_eval_step(const struct pen_runlog *log)
{
  return log->last_eval_step;
}

uint64_t pen_runlog_last_sample_step(const struct pen_runlog *log)
{
  return log->last_sample_step;
}

uint64_t pen_runlog_nvme_written(const struct pen_runlog *log)
{
  return log->nvme_written;
}

/* Ends the object and writes it with its newline, whole or not at all. */
static int append(struct pen_runlog *log, struct pen_json_writer *writer)
{
  const char *text;
  size_t n;
  pen_json_end_object(writer);
  int r = pen_json_finish(writer, &text, &n);
  if (r)
    return pen_error_set(r, "a line of %s is too long", log->path);
  writer->text[n] = '\n'; /* where the end stood */
  ssize_t written;
  do
    written = write(log->fd, text, n + 1);
  while (written < 0 && errno == EINTR);
  if (written != (ssize_t)n + 1) {
    int code = written < 0 ? -errno : -ENOSPC;
    if (written > 0 && ftruncate(log->fd, (off_t)log->n_bytes))
      code = -errno; /* a torn line stays, and is dropped when next opened */
    return pen_error_set(code, "cannot append %zu bytes to %s", n + 1,
                         log->path);
  }
  log->n_bytes += n + 1;
  return 0;
}

int pen_runlog_append_step(struct pen_runlog *log,
                           const struct pen_runlog_step *step)
{
  char line[LINE_BYTES];
  struct pen_json_writer writer;
  pen_json_writer_init(&writer, line, sizeof line, false);
  pen_json_begin_object(&writer, NULL);
  pen_json_put_u64(&writer, "step", step->step);
  pen_json_put_double(&writer, "epoch", step->epoch);
  pen_json_put_double(&writer, "loss", step->loss);
  pen_json_put_double(&writer, "grad_norm", step->grad_norm);
  pen_json_put_double(&writer, "learning_rate", step->learning_rate);
  pen_json_put_u64(&writer, "num_tokens", step->n_tokens);
  pen_json_put_double(&writer, "tokens_per_second", step->tokens_per_second);
  pen_json_put_double(&writer, "step_seconds", step->step_seconds);
  pen_json_put_u64(&writer, "skipped_steps", step->n_skipped);
  if (step->skipped_block)
    pen_json_put_string(&writer, "skipped_block", step->skipped_block);
  if (step->bound)
    pen_json_put_string(&writer, "bound", step->bound);
  if (step->nvme_written)
    pen_json_put_u64(&writer, "nvme_written_bytes", step->nvme_written);
  if (step->speculation) {
    pen_json_put_string(&writer, "speculation", step->speculation);
    pen_json_put_u64(&writer, "updates_redone", step->n_redone);
    pen_json_put_u64(&writer, "updates_discarded", step->n_discarded);
  }
  int r = append(log, &writer);
  if (!r)
    log->last_step = step->step;
  return r;
}

int pen_runlog_append_eval(struct pen_runlog *log, uint64_t step, double epoch,
                           double eval_loss, uint64_t n_tokens)
{
  char line[LINE_BYTES];
  struct pen_json_writer writer;
  pen_json_writer_init(&writer, line, sizeof line, false);
  pen_json_begin_object(&writer, NULL);
  pen_json_put_u64(&writer, "step", step);
  pen_json_put_double(&writer, "epoch", epoch);
  pen_json_put_double(&writer, "eval_loss", eval_loss);
  pen_json_put_u64(&writer, "eval_num_tokens", n_tokens);
  int r = append(log, &writer);
  if (!r)
    log->last_eval_step = step;
  return r;
}

int pen_runlog_append_sample(struct pen_runlog *log, uint64_t step,
                             double epoch, const char *text,
                             const uint32_t *ids, size_t n)
{
  struct pen_json_writer writer;
  pen_json_writer_init(&writer, NULL, 0, false);
  pen_json_begin_object(&writer, NULL);
  pen_json_put_u64(&writer, "step", step);
  pen_json_put_double(&writer, "epoch", epoch);
  if (text)
    pen_json_put_string(&writer, "sample", text);
  pen_json_begin_array(&writer, "sample_ids");
  for (size_t i = 0; i < n; i++)
    pen_json_put_u64(&writer, NULL, ids[i]);
  pen_json_end_array(&writer);
  int r = append(log, &writer);
  pen_json_writer_done(&writer);
  if (!r)
    log->last_sample_step = step;
  return r;
}

int pen_runlog_sync(struct pen_runlog *log)
{
  if (fdatasync(log->fd))
    return pen_error_set(-errno, "cannot sync %s", log->path);
  return 0;
}

void pen_runlog_close(struct pen_runlog **ref)
{
  struct pen_runlog *log = *ref;
  if (!log)
    return;
  if (log->fd >= 0)
    close(log->fd);
  free(log->path);
  free(log);
  *ref = NULL;
}

int pen_runlog_read(const char *path,
                    int (*each)(void *ctx, const struct pen_json *json,
                                const struct pen_json_node *root),
                    void *ctx)
{
  char *text = NULL;
  size_t n_bytes = 0, at = 0;
  uint64_t step;
  int r = pen_files_read_whole(path, LOG_BYTES_MAX, &text, &n_bytes);
  struct pen_json *json;
  while (!r && (json = next_line(path, text, n_bytes, &at, &step))) {
    r = each(ctx, json, pen_json_root(json));
    pen_json_free(&json);
  }
  free(text);
  return r;
}
