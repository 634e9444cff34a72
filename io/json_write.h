/* json_write.h: JSON written into a buffer, value after value. */
#ifndef PEN_IO_JSON_WRITE_H
#define PEN_IO_JSON_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/json.h"

/* Fields are the writer's own. */
struct pen_json_writer {
  char *text;
  size_t used, cap;
  bool grows, pretty, needs_comma, failed;
  size_t depth;
};

/* Writes into buffer [cap], never allocating (log lines), or into memory of its
 * own when buffer is NULL.  pretty: one member a line, indented by two. */
void pen_json_writer_init(struct pen_json_writer *writer, char *buffer,
                          size_t cap, bool pretty);

/* Frees what the writer allocated. */
void pen_json_writer_done(struct pen_json_writer *writer);

/* key is NULL in arrays and at the top.  The first failure (buffer full, no
 * memory) is kept until finish; calls after it do nothing. */
void pen_json_begin_object(struct pen_json_writer *writer, const char *key);
void pen_json_end_object(struct pen_json_writer *writer);
void pen_json_begin_array(struct pen_json_writer *writer, const char *key);
void pen_json_end_array(struct pen_json_writer *writer);
void pen_json_put_string(struct pen_json_writer *writer, const char *key,
                         const char *value);
void pen_json_put_i64(struct pen_json_writer *writer, const char *key,
                      int64_t value);
void pen_json_put_u64(struct pen_json_writer *writer, const char *key,
                      uint64_t value);
/* The shortest digits that read back as the same double; Inf and NaN, which
 * JSON lacks, become null. */
void pen_json_put_double(struct pen_json_writer *writer, const char *key,
                         double value);
void pen_json_put_bool(struct pen_json_writer *writer, const char *key,
                       bool value);
void pen_json_put_null(struct pen_json_writer *writer, const char *key);
/* A parsed value with all below it. */
void pen_json_put_node(struct pen_json_writer *writer, const char *key,
                       const struct pen_json *json,
                       const struct pen_json_node *node);

/* The text, NUL-terminated, borrowed until done or the next call; or -ENOSPC
 * (buffer too small), -ENOMEM. */
int pen_json_finish(struct pen_json_writer *writer, const char **ret_text,
                    size_t *ret_bytes);

#endif
