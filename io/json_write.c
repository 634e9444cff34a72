/* json_write.c: JSON text, appended value by value.
 *
 * Invariant: text [used] is NUL-terminated whenever anything was written; after
 * a failure nothing more is.  One thread per writer.  Disadvantage: begin and
 * end are not checked against each other; only our own code calls these. */
#include "io/json_write.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void pen_json_writer_init(struct pen_json_writer *writer, char *buffer,
                          size_t cap, bool pretty)
{
  *writer = (struct pen_json_writer){.text = buffer,
                                     .cap = buffer ? cap : 0,
                                     .grows = !buffer,
                                     .pretty = pretty};
}

void pen_json_writer_done(struct pen_json_writer *writer)
{
  if (writer->grows)
    free(writer->text);
  writer->text = NULL;
  writer->used = writer->cap = 0;
}

static bool reserve(struct pen_json_writer *writer, size_t n)
{
  if (writer->failed)
    return false;
  if (n < writer->cap - writer->used)
    return true;
  if (writer->grows) {
    size_t cap = (writer->used + n + 1) * 2 + 256;
    char *text = realloc(writer->text, cap);
    if (text) {
      writer->text = text;
      writer->cap = cap;
      return true;
    }
  }
  writer->failed = true;
  return false;
}

static void put_bytes(struct pen_json_writer *writer, const char *bytes,
                      size_t n)
{
  if (!reserve(writer, n))
    return;
  memcpy(writer->text + writer->used, bytes, n);
  writer->used += n;
  writer->text[writer->used] = '\0';
}

static void put_text(struct pen_json_writer *writer, const char *text)
{
  put_bytes(writer, text, strlen(text));
}

static void put_quoted(struct pen_json_writer *writer, const char *value)
{
  put_text(writer, "\"");
  for (const char *p = value; *p; p++) {
    unsigned char c = (unsigned char)*p;
    char escape[8];
    if (c == '"' || c == '\\') {
      snprintf(escape, sizeof escape, "\\%c", c);
      put_text(writer, escape);
    } else if (c == '\n') {
      put_text(writer, "\\n");
    } else if (c == '\t') {
      put_text(writer, "\\t");
    } else if (c < 0x20) {
      snprintf(escape, sizeof escape, "\\u%04x", c);
      put_text(writer, escape);
    } else {
      put_bytes(writer, p, 1);
    }
  }
  put_text(writer, "\"");
}

static void new_line(struct pen_json_writer *writer)
{
  if (!writer->pretty)
    return;
  put_text(writer, "\n");
  for (size_t i = 0; i < writer->depth; i++)
    put_text(writer, "  ");
}

/* What stands before every value. */
static void lead(struct pen_json_writer *writer, const char *key)
{
  if (writer->needs_comma)
    put_text(writer, writer->pretty ? "," : ", ");
  if (writer->depth)
    new_line(writer);
  if (key) {
    put_quoted(writer, key);
    put_text(writer, ": ");
  }
  writer->needs_comma = true;
}

static void open_container(struct pen_json_writer *writer, const char *key,
                           const char *bracket)
{
  lead(writer, key);
  put_text(writer, bracket);
  writer->depth++;
  writer->needs_comma = false;
}

static void close_container(struct pen_json_writer *writer, const char *bracket)
{
  writer->depth--;
  if (writer->needs_comma)
    new_line(writer);
  put_text(writer, bracket);
  writer->needs_comma = true;
}

void pen_json_begin_object(struct pen_json_writer *writer, const char *key)
{
  open_container(writer, key, "{");
}

void pen_json_end_object(struct pen_json_writer *writer)
{
  close_container(writer, "}");
}

void pen_json_begin_array(struct pen_json_writer *writer, const char *key)
{
  open_container(writer, key, "[");
}

void pen_json_end_array(struct pen_json_writer *writer)
{
  close_container(writer, "]");
}

void pen_json_put_string(struct pen_json_writer *writer, const char *key,
                         const char *value)
{
  lead(writer, key);
  put_quoted(writer, value);
}

void pen_json_put_i64(struct pen_json_writer *writer, const char *key,
                      int64_t value)
{
  char text[32];
  snprintf(text, sizeof text, "%" PRId64, value);
  lead(writer, key);
  put_text(writer, text);
}

void pen_json_put_u64(struct pen_json_writer *writer, const char *key,
                      uint64_t value)
{
  char text[32];
  snprintf(text, sizeof text, "%" PRIu64, value);
  lead(writer, key);
  put_text(writer, text);
}

void pen_json_put_double(struct pen_json_writer *writer, const char *key,
                         double value)
{
  if (!isfinite(value)) {
    pen_json_put_null(writer, key);
    return;
  }
  char text[40];
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) == value)
      break;
  }
  /* A real stays a real for readers that tell 1 from 1.0. */
  if (!strpbrk(text, ".e"))
    strcat(text, ".0");
  lead(writer, key);
  put_text(writer, text);
}

void pen_json_put_bool(struct pen_json_writer *writer, const char *key,
                       bool value)
{
  lead(writer, key);
  put_text(writer, value ? "true" : "false");
}

void pen_json_put_null(struct pen_json_writer *writer, const char *key)
{
  lead(writer, key);
  put_text(writer, "null");
}

/* Number and string nodes cannot fail to convert: their type was looked at. */
static void put_scalar(struct pen_json_writer *writer, const char *key,
                       const struct pen_json *json,
                       const struct pen_json_node *node)
{
  int64_t integer;
  double real;
  bool boolean;
  const char *string;
  switch (pen_json_type(node)) {
  case PEN_JSON_INT:
    if (!pen_json_as_i64(json, node, &integer))
      pen_json_put_i64(writer, key, integer);
    break;
  case PEN_JSON_REAL:
    if (!pen_json_as_double(json, node, &real))
      pen_json_put_double(writer, key, real);
    break;
  case PEN_JSON_BOOL:
    if (!pen_json_as_bool(json, node, &boolean))
      pen_json_put_bool(writer, key, boolean);
    break;
  case PEN_JSON_STRING:
    if (!pen_json_as_string(json, node, &string))
      pen_json_put_string(writer, key, string);
    break;
  default:
    pen_json_put_null(writer, key);
  }
}

void pen_json_put_node(struct pen_json_writer *writer, const char *key,
                       const struct pen_json *json,
                       const struct pen_json_node *node)
{
  const char *member;
  const struct pen_json_node *below;
  void *iter = NULL;
  switch (pen_json_type(node)) {
  case PEN_JSON_OBJECT:
    pen_json_begin_object(writer, key);
    while (pen_json_next(node, &iter, &member, &below))
      pen_json_put_node(writer, member, json, below);
    pen_json_end_object(writer);
    break;
  case PEN_JSON_ARRAY:
    pen_json_begin_array(writer, key);
    for (size_t i = 0; i < pen_json_size(node); i++)
      pen_json_put_node(writer, NULL, json, pen_json_item(node, i));
    pen_json_end_array(writer);
    break;
  default:
    put_scalar(writer, key, json, node);
  }
}

int pen_json_finish(struct pen_json_writer *writer, const char **ret_text,
                    size_t *ret_bytes)
{
  if (!writer->text && !writer->failed)
    put_text(writer, "");
  if (writer->failed)
    return writer->grows
               ? pen_error_set(-ENOMEM, "cannot write JSON of %zu bytes",
                               writer->used)
               : pen_error_set(-ENOSPC,
                               "JSON text is longer than its %zu byte buffer",
                               writer->cap);
  *ret_text = writer->text;
  *ret_bytes = writer->used;
  return 0;
}
