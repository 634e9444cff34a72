/* yaml_keys.c: YAML through libyaml, which is included here only.
 *
 * The document is loaded whole and its nodes are read by index, never
 * recursively.  Disadvantage: libyaml knows lines, not the key, of a syntax
 * error. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "base/error.h"
#include "src/cli/yaml_keys.h"

typedef int key_fn(void *ctx, const char *key, char *const *items,
                   size_t n_items, bool is_list);

static int malformed(const char *source, size_t line, const char *what)
{
  return pen_error_set(-PEN_EUSAGE, "%s:%zu: %s", source, line + 1, what);
}

/* The scalar's text; NULL for other nodes and for text with a NUL inside. */
static char *scalar_of(const yaml_node_t *node)
{
  if (!node || node->type != YAML_SCALAR_NODE)
    return NULL;
  char *text = (char *)node->data.scalar.value;
  return strlen(text) == node->data.scalar.length ? text : NULL;
}

static bool is_null(const yaml_node_t *node)
{
  if (node->type != YAML_SCALAR_NODE ||
      node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
    return false;
  const char *text = (const char *)node->data.scalar.value;
  return *text == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0;
}

static int read_list(yaml_document_t *document, const yaml_node_t *value,
                     const char *source, const char *key, key_fn *on_key,
                     void *ctx)
{
  size_t n = (size_t)(value->data.sequence.items.top -
                      value->data.sequence.items.start);
  char **items = calloc(n ? n : 1, sizeof *items);
  if (!items)
    return pen_error_set(-ENOMEM, "cannot read %s", source);
  int r = 0;
  for (size_t i = 0; !r && i < n; i++) {
    items[i] = scalar_of(yaml_document_get_node(
        document, value->data.sequence.items.start[i]));
    if (!items[i])
      r = malformed(source, value->start_mark.line,
                    "a list may only hold plain values");
  }
  if (!r)
    r = on_key(ctx, key, items, n, true);
  free(items);
  return r;
}

static int read_pair(yaml_document_t *document, const yaml_node_pair_t *pair,
                     const char *source, key_fn *on_key, void *ctx)
{
  const yaml_node_t *key_node = yaml_document_get_node(document, pair->key);
  const yaml_node_t *value = yaml_document_get_node(document, pair->value);
  size_t line = key_node->start_mark.line;
  const char *key = scalar_of(key_node);
  if (!key)
    return malformed(source, line, "a key must be a plain word");
  if (is_null(value))
    return 0;
  char *text = scalar_of(value);
  int r;
  if (text)
    r = on_key(ctx, key, &text, 1, false);
  else if (value->type == YAML_SEQUENCE_NODE)
    r = read_list(document, value, source, key, on_key, ctx);
  else
    return pen_error_set(-PEN_EUSAGE, "%s:%zu: %.64s must be one value or a "
                         "list", source, line + 1, key);
  /* a list's own message already has its place */
  if (r && strncmp(pen_error_text(), source, strlen(source)) != 0)
    pen_error_context(r, "%s:%zu", source, line + 1);
  return r;
}

static int read_document(yaml_document_t *document, const char *source,
                         key_fn *on_key, void *ctx)
{
  const yaml_node_t *root = yaml_document_get_root_node(document);
  if (!root || is_null(root))
    return 0;
  if (root->type != YAML_MAPPING_NODE)
    return malformed(source, root->start_mark.line,
                     "expected \"option: value\" lines");
  int r = 0;
  for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start;
       !r && pair < root->data.mapping.pairs.top; pair++)
    r = read_pair(document, pair, source, on_key, ctx);
  return r;
}

int pen_yaml_keys_parse(const char *text, size_t n_bytes, const char *source,
                   key_fn *on_key, void *ctx)
{
  yaml_parser_t parser;
  yaml_document_t document, second;
  if (!yaml_parser_initialize(&parser))
    return pen_error_set(-ENOMEM, "cannot read %s", source);
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, n_bytes);
  int r = 0;
  if (!yaml_parser_load(&parser, &document)) {
    r = malformed(source, parser.problem_mark.line,
                  parser.problem ? parser.problem : "malformed YAML");
    goto out;
  }
  if (!yaml_parser_load(&parser, &second)) {
    r = malformed(source, parser.problem_mark.line,
                  parser.problem ? parser.problem : "malformed YAML");
  } else {
    if (yaml_document_get_root_node(&second))
      r = malformed(source, second.start_mark.line,
                    "only one document may be in a file");
    yaml_document_delete(&second);
  }
  if (!r)
    r = read_document(&document, source, on_key, ctx);
  yaml_document_delete(&document);
out:
  yaml_parser_delete(&parser);
  return r;
}
