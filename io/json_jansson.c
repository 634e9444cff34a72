/* json_jansson.c: the only user of jansson.
 *
 * A node is a json_t.  Any thread may read a tree; nothing changes it. */
#include <jansson.h>

#include "base/error.h"
#include "io/json_tree.h"

static json_t *as_json(const struct pen_json_node *node)
{
  return (json_t *)node;
}

static const struct pen_json_node *as_node(const json_t *value)
{
  return (const struct pen_json_node *)value;
}

int pen_json_tree_parse(const char *text, size_t n_bytes, const char *source,
                        struct pen_json_node **ret_root)
{
  json_error_t error;
  json_t *root = json_loadb(text, n_bytes,
                            JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
  if (!root)
    return pen_error_set(-PEN_EFORMAT,
                         "%s: not valid JSON at line %d, column %d: %s", source,
                         error.line, error.column, error.text);
  *ret_root = (struct pen_json_node *)root;
  return 0;
}

void pen_json_tree_free(struct pen_json_node *root)
{
  json_decref(as_json(root));
}

int64_t pen_json_tree_int(const struct pen_json_node *node)
{
  return json_integer_value(as_json(node));
}

double pen_json_tree_real(const struct pen_json_node *node)
{
  return json_real_value(as_json(node));
}

bool pen_json_tree_true(const struct pen_json_node *node)
{
  return json_is_true(as_json(node));
}

const char *pen_json_tree_string(const struct pen_json_node *node)
{
  return json_string_value(as_json(node));
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
