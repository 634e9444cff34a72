/* json.c: documents, typed access and messages over a parser (json_tree.h).
 *
 * A document owns its tree.  Paths for messages are found only when one is
 * needed, by searching the tree for the container, so that callers carry nothing
 * around.  Any thread may read a document; nothing changes it.  Disadvantage:
 * the whole text is in memory as a tree. */
#include "io/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/files.h"
#include "io/json_tree.h"

struct pen_json {
  struct pen_json_node *root;
  char source[]; /* NUL-terminated */
};

/* Parsers recurse per level; a bound of ours keeps a hostile text from using
 * the stack and makes the limit the same for each of them.  jansson would take a
 * NUL behind a number for the end. */
static int check_text(const char *text, size_t n, const char *source)
{
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < n; i++) {
    char c = text[i];
    if (c == '\0')
      return pen_error_set(-PEN_EFORMAT,
                           "%s: not valid JSON: byte %zu is 0", source, i);
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
  int rc = check_text(text, n_bytes, source);
  if (rc)
    return rc;
  size_t source_bytes = strlen(source) + 1;
  struct pen_json *json = malloc(sizeof *json + source_bytes);
  if (!json)
    return pen_error_set(-ENOMEM, "cannot parse %s", source);
  memcpy(json->source, source, source_bytes);
  rc = pen_json_tree_parse(text, n_bytes, source, &json->root);
  if (rc < 0) {
    free(json);
    return rc;
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
  pen_json_tree_free((*json)->root);
  free(*json);
  *json = NULL;
}

const struct pen_json_node *pen_json_root(const struct pen_json *json)
{
  return json->root;
}

const char *pen_json_source(const struct pen_json *json)
{
  return json->source;
}

bool pen_json_has(const struct pen_json_node *object, const char *key)
{
  const struct pen_json_node *node = pen_json_member(object, key);
  return node && pen_json_type(node) != PEN_JSON_NULL;
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
static bool find_path(const struct pen_json_node *at,
                      const struct pen_json_node *target, char *path, size_t cap)
{
  if (at == target)
    return true;
  size_t used = strlen(path);
  const struct pen_json_node *node;
  const char *key;
  void *it = NULL;
  if (pen_json_type(at) == PEN_JSON_OBJECT) {
    while (pen_json_next(at, &it, &key, &node)) {
      append(path, cap, "%s%s", used ? "." : "", key);
      if (find_path(node, target, path, cap))
        return true;
      path[used] = '\0';
    }
  } else if (pen_json_type(at) == PEN_JSON_ARRAY) {
    for (size_t i = 0; (node = pen_json_item(at, i)); i++) {
      append(path, cap, "[%zu]", i);
      if (find_path(node, target, path, cap))
        return true;
      path[used] = '\0';
    }
  }
  return false;
}

/* path [cap] = where `key` of `node` (or node itself: key NULL) is. */
static void describe_path(const struct pen_json *json, const struct pen_json_node *node,
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
static void describe_value(const struct pen_json_node *value, char *text,
                           size_t cap)
{
  text[0] = '\0';
  switch (pen_json_type(value)) {
  case PEN_JSON_OBJECT:
    append(text, cap, "an object");
    break;
  case PEN_JSON_ARRAY:
    append(text, cap, "an array");
    break;
  case PEN_JSON_STRING:
    append(text, cap, "\"%.60s\"", pen_json_tree_string(value));
    break;
  case PEN_JSON_INT:
    append(text, cap, "%" PRId64, pen_json_tree_int(value));
    break;
  case PEN_JSON_REAL:
    append(text, cap, "%.17g", pen_json_tree_real(value));
    break;
  case PEN_JSON_BOOL:
    append(text, cap, "%s", pen_json_tree_true(value) ? "true" : "false");
    break;
  case PEN_JSON_NULL:
    append(text, cap, "null");
    break;
  }
}

int pen_json_error(const struct pen_json *json,
                   const struct pen_json_node *node, int code,
                   const char *format, ...)
{
  char path[512], message[512];
  describe_path(json, node, NULL, path, sizeof path);
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  if (node == json->root)
    return pen_error_set(code, "%s: %s", json->source, message);
  return pen_error_set(code, "%s: %s: %s", json->source, path, message);
}

/* A value that may be missing, and where it would be: what the typed getters
 * below share. */
struct place {
  const struct pen_json *json;
  const struct pen_json_node *container; /* the value itself when key is NULL */
  const char *key;
  const struct pen_json_node *value; /* NULL: absent */
};

static struct place place_member(const struct pen_json *json,
                                 const struct pen_json_node *object,
                                 const char *key)
{
  return (struct place){json, object, key, pen_json_member(object, key)};
}

static struct place place_node(const struct pen_json *json,
                               const struct pen_json_node *node)
{
  return (struct place){json, node, NULL, node};
}

static bool is(struct place p, enum pen_json_type type)
{
  return p.value && pen_json_type(p.value) == type;
}

static bool is_absent(struct place p)
{
  return !p.value || is(p, PEN_JSON_NULL);
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
  if (!is(p, PEN_JSON_INT))
    return refuse(p, "an integer");
  *ret_value = pen_json_tree_int(p.value);
  return 0;
}

static int take_size(struct place p, size_t *ret_value)
{
  if (!is(p, PEN_JSON_INT) || pen_json_tree_int(p.value) < 0)
    return refuse(p, "an integer of at least 0");
  *ret_value = (size_t)pen_json_tree_int(p.value);
  return 0;
}

static int take_double(struct place p, double *ret_value)
{
  if (is(p, PEN_JSON_INT))
    *ret_value = (double)pen_json_tree_int(p.value);
  else if (is(p, PEN_JSON_REAL))
    *ret_value = pen_json_tree_real(p.value);
  else
    return refuse(p, "a number");
  return 0;
}

static int take_bool(struct place p, bool *ret_value)
{
  if (!is(p, PEN_JSON_BOOL))
    return refuse(p, "true or false");
  *ret_value = pen_json_tree_true(p.value);
  return 0;
}

static int take_string(struct place p, const char **ret_value)
{
  if (!is(p, PEN_JSON_STRING))
    return refuse(p, "a string");
  *ret_value = pen_json_tree_string(p.value);
  return 0;
}

static int take_array(struct place p, const struct pen_json_node **ret_value)
{
  if (!is(p, PEN_JSON_ARRAY))
    return refuse(p, "an array");
  *ret_value = p.value;
  return 0;
}

static int take_object(struct place p, const struct pen_json_node **ret_value)
{
  if (!is(p, PEN_JSON_OBJECT))
    return refuse(p, "an object");
  *ret_value = p.value;
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
