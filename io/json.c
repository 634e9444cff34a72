/* json.c: the only user of jansson.
 *
 * A node is a json_t and a document owns the tree.  Paths for messages are
 * found only when one is needed, by searching the tree for the container, so
 * that callers carry nothing around.  Any thread may read a document; nothing
 * changes it.  Disadvantage: the whole text is in memory as a tree. */
#include "io/json.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/files.h"

struct pen_json {
  json_t *root;
  char source[]; /* NUL-terminated */
};

static json_t *as_json(const struct pen_json_node *node)
{
  return (json_t *)node;
}

static const struct pen_json_node *as_node(const json_t *value)
{
  return (const struct pen_json_node *)value;
}

/* jansson recurses per level; a bound of ours keeps a hostile text from using
 * the stack and makes the limit the same in every build of it. */
static int check_depth(const char *text, size_t n, const char *source)
{
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < n; i++) {
    char c = text[i];
    if (in_string) {
      if (c == '\\')
        i++;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > PEN_JSON_DEPTH_MAX)
        return pen_error_set(-PEN_EFORMAT,
                             "%s: nested deeper than %d levels at byte %zu",
                             source, PEN_JSON_DEPTH_MAX, i);
    } else if ((c == '}' || c == ']') && depth) {
      depth--;
    }
  }
  return 0;
}

int pen_json_parse(const char *text, size_t n_bytes, const char *source,
                   struct pen_json **ret_json)
{
  int rc = check_depth(text, n_bytes, source);
  if (rc)
    return rc;
  size_t source_bytes = strlen(source) + 1;
  struct pen_json *json = malloc(sizeof *json + source_bytes);
  if (!json)
    return pen_error_set(-ENOMEM, "cannot parse %s", source);
  memcpy(json->source, source, source_bytes);
  json_error_t error;
  json->root = json_loadb(text, n_bytes,
                          JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
  if (!json->root) {
    free(json);
    return pen_error_set(-PEN_EFORMAT,
                         "%s: not valid JSON at line %d, column %d: %s", source,
                         error.line, error.column, error.text);
  }
  *ret_json = json;
  return 0;
}

int pen_json_load(const char *path, struct pen_json **ret_json)
{
  char *text = NULL;
  size_t n = 0;
  int rc = pen_files_read_whole(path, PEN_JSON_FILE_BYTES_MAX, &text, &n);
  if (!rc)
    rc = pen_json_parse(text, n, path, ret_json);
  free(text);
  return rc;
}

void pen_json_free(struct pen_json **json)
{
  if (!*json)
    return;
  json_decref((*json)->root);
  free(*json);
  *json = NULL;
}

const struct pen_json_node *pen_json_root(const struct pen_json *json)
{
  return as_node(json->root);
}

const char *pen_json_source(const struct pen_json *json)
{
  return json->source;
}

enum pen_json_type pen_json_type(const struct pen_json_node *node)
{
  switch (json_typeof(as_json(node))) {
  case JSON_OBJECT:
    return PEN_JSON_OBJECT;
  case JSON_ARRAY:
    return PEN_JSON_ARRAY;
  case JSON_STRING:
    return PEN_JSON_STRING;
  case JSON_INTEGER:
    return PEN_JSON_INT;
  case JSON_REAL:
    return PEN_JSON_REAL;
  case JSON_TRUE:
  case JSON_FALSE:
    return PEN_JSON_BOOL;
  case JSON_NULL:
    break;
  }
  return PEN_JSON_NULL;
}

size_t pen_json_size(const struct pen_json_node *node)
{
  json_t *value = as_json(node);
  return json_is_object(value) ? json_object_size(value)
                               : json_array_size(value);
}

const struct pen_json_node *pen_json_member(const struct pen_json_node *object,
                                            const char *key)
{
  return as_node(json_object_get(as_json(object), key));
}

bool pen_json_has(const struct pen_json_node *object, const char *key)
{
  const struct pen_json_node *node = pen_json_member(object, key);
  return node && pen_json_type(node) != PEN_JSON_NULL;
}

const struct pen_json_node *pen_json_item(const struct pen_json_node *array,
                                          size_t i)
{
  return as_node(json_array_get(as_json(array), i));
}

bool pen_json_next(const struct pen_json_node *object, void **iter,
                   const char **ret_key, const struct pen_json_node **ret_node)
{
  json_t *value = as_json(object);
  *iter = *iter ? json_object_iter_next(value, *iter) : json_object_iter(value);
  if (!*iter)
    return false;
  *ret_key = json_object_iter_key(*iter);
  *ret_node = as_node(json_object_iter_value(*iter));
  return true;
}

/* Messages. */

/* Appends to text [cap], never past its end. */
static void append(char *text, size_t cap, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void append(char *text, size_t cap, const char *format, ...)
{
  size_t used = strlen(text);
  va_list args;
  va_start(args, format);
  vsnprintf(text + used, cap - used, format, args);
  va_end(args);
}

/* Writes the path from `at` to `target` behind what path [cap] holds; false,
 * with path as it was, when target is not below `at`. */
static bool find_path(json_t *at, const json_t *target, char *path, size_t cap)
{
  if (at == target)
    return true;
  size_t used = strlen(path);
  if (json_is_object(at)) {
    for (void *it = json_object_iter(at); it;
         it = json_object_iter_next(at, it)) {
      append(path, cap, "%s%s", used ? "." : "", json_object_iter_key(it));
      if (find_path(json_object_iter_value(it), target, path, cap))
        return true;
      path[used] = '\0';
    }
  } else if (json_is_array(at)) {
    for (size_t i = 0; i < json_array_size(at); i++) {
      append(path, cap, "[%zu]", i);
      if (find_path(json_array_get(at, i), target, path, cap))
        return true;
      path[used] = '\0';
    }
  }
  return false;
}

/* path [cap] = where `key` of `node` (or node itself: key NULL) is. */
static void describe_path(const struct pen_json *json, const json_t *node,
                          const char *key, char *path, size_t cap)
{
  path[0] = '\0';
  find_path(json->root, node, path, cap);
  if (key)
    append(path, cap, "%s%s", path[0] ? "." : "", key);
  if (!path[0])
    append(path, cap, "the document");
}

/* text [cap] = the value as the user would recognise it. */
static void describe_value(const json_t *value, char *text, size_t cap)
{
  text[0] = '\0';
  switch (json_typeof(value)) {
  case JSON_OBJECT:
    append(text, cap, "an object");
    break;
  case JSON_ARRAY:
    append(text, cap, "an array");
    break;
  case JSON_STRING:
    append(text, cap, "\"%.60s\"", json_string_value(value));
    break;
  case JSON_INTEGER:
    append(text, cap, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    break;
  case JSON_REAL:
    append(text, cap, "%.17g", json_real_value(value));
    break;
  case JSON_TRUE:
    append(text, cap, "true");
    break;
  case JSON_FALSE:
    append(text, cap, "false");
    break;
  case JSON_NULL:
    append(text, cap, "null");
    break;
  }
}

int pen_json_error(const struct pen_json *json,
                   const struct pen_json_node *node, int code,
                   const char *format, ...)
{
  char path[512], message[512];
  describe_path(json, as_json(node), NULL, path, sizeof path);
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  if (as_json(node) == json->root)
    return pen_error_set(code, "%s: %s", json->source, message);
  return pen_error_set(code, "%s: %s: %s", json->source, path, message);
}

/* A value that may be missing, and where it would be: what the typed getters
 * below share. */
struct place {
  const struct pen_json *json;
  const json_t *container; /* the value itself when key is NULL */
  const char *key;
  const json_t *value; /* NULL: absent */
};

static struct place place_member(const struct pen_json *json,
                                 const struct pen_json_node *object,
                                 const char *key)
{
  return (struct place){json, as_json(object), key,
                        json_object_get(as_json(object), key)};
}

static struct place place_node(const struct pen_json *json,
                               const struct pen_json_node *node)
{
  return (struct place){json, as_json(node), NULL, as_json(node)};
}

static bool is_absent(struct place p)
{
  return !p.value || json_is_null(p.value);
}

static int refuse(struct place p, const char *wanted)
{
  char path[512], value[96];
  describe_path(p.json, p.container, p.key, path, sizeof path);
  if (!p.value)
    return pen_error_set(-PEN_EFORMAT, "%s: %s is missing; it must be %s",
                         p.json->source, path, wanted);
  describe_value(p.value, value, sizeof value);
  return pen_error_set(-PEN_EFORMAT, "%s: %s must be %s, is %s", p.json->source,
                       path, wanted, value);
}

static int take_i64(struct place p, int64_t *ret_value)
{
  if (!p.value || !json_is_integer(p.value))
    return refuse(p, "an integer");
  *ret_value = json_integer_value(p.value);
  return 0;
}

static int take_size(struct place p, size_t *ret_value)
{
  if (!p.value || !json_is_integer(p.value) || json_integer_value(p.value) < 0)
    return refuse(p, "an integer of at least 0");
  *ret_value = (size_t)json_integer_value(p.value);
  return 0;
}

static int take_double(struct place p, double *ret_value)
{
  if (!p.value || !json_is_number(p.value))
    return refuse(p, "a number");
  *ret_value = json_number_value(p.value);
  return 0;
}

static int take_bool(struct place p, bool *ret_value)
{
  if (!p.value || !json_is_boolean(p.value))
    return refuse(p, "true or false");
  *ret_value = json_is_true(p.value);
  return 0;
}

static int take_string(struct place p, const char **ret_value)
{
  if (!p.value || !json_is_string(p.value))
    return refuse(p, "a string");
  *ret_value = json_string_value(p.value);
  return 0;
}

static int take_array(struct place p, const struct pen_json_node **ret_value)
{
  if (!p.value || !json_is_array(p.value))
    return refuse(p, "an array");
  *ret_value = as_node(p.value);
  return 0;
}

static int take_object(struct place p, const struct pen_json_node **ret_value)
{
  if (!p.value || !json_is_object(p.value))
    return refuse(p, "an object");
  *ret_value = as_node(p.value);
  return 0;
}

#define AS(name, type)                                                        \
  int pen_json_as_##name(const struct pen_json *json,                         \
                         const struct pen_json_node *node, type *ret_value)   \
  {                                                                           \
    return take_##name(place_node(json, node), ret_value);                    \
  }
#define GET(name, type)                                                       \
  int pen_json_get_##name(const struct pen_json *json,                        \
                          const struct pen_json_node *object,                 \
                          const char *key, type *ret_value)                   \
  {                                                                           \
    return take_##name(place_member(json, object, key), ret_value);           \
  }
#define OPT(name, type)                                                       \
  int pen_json_opt_##name(const struct pen_json *json,                        \
                          const struct pen_json_node *object,                 \
                          const char *key, type *value)                       \
  {                                                                           \
    struct place p = place_member(json, object, key);                         \
    return is_absent(p) ? 0 : take_##name(p, value);                          \
  }
AS(i64, int64_t)
AS(size, size_t)
AS(double, double)
AS(bool, bool)
AS(string, const char *)
GET(i64, int64_t)
GET(size, size_t)
GET(double, double)
GET(bool, bool)
GET(string, const char *)
GET(array, const struct pen_json_node *)
GET(object, const struct pen_json_node *)
OPT(i64, int64_t)
OPT(size, size_t)
OPT(double, double)
OPT(bool, bool)
OPT(string, const char *)
