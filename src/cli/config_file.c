/* config_file.c: options from YAML or JSON, by the file's name.
 *
 * Both forms end in pen_option_set_key, so that a file can say exactly what
 * the command line can.  Disadvantage: JSON errors name the key, not the
 * line. */
#include "src/cli/config_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/json.h"
#include "src/cli/yaml_keys.h"

#define NUMBER_BYTES 32

static int set_key(void *ctx, const char *key, char *const *items,
                   size_t n_items, bool is_list)
{
  return pen_option_set_key(ctx, key, items, n_items, is_list);
}

/* A scalar as its text, in `number` where it is none yet; NULL for others. */
static char *json_text(const struct pen_json *json,
                       const struct pen_json_node *node,
                       char number[NUMBER_BYTES])
{
  const char *string = NULL;
  int64_t integer = 0;
  double real = 0;
  bool truth = false;
  switch (pen_json_type(node)) {
  case PEN_JSON_STRING:
    return pen_json_as_string(json, node, &string) ? NULL : (char *)string;
  case PEN_JSON_INT:
    if (pen_json_as_i64(json, node, &integer))
      return NULL;
    snprintf(number, NUMBER_BYTES, "%" PRId64, integer);
    return number;
  case PEN_JSON_REAL:
    if (pen_json_as_double(json, node, &real))
      return NULL;
    snprintf(number, NUMBER_BYTES, "%.17g", real);
    return number;
  case PEN_JSON_BOOL:
    if (pen_json_as_bool(json, node, &truth))
      return NULL;
    return truth ? (char *)"true" : (char *)"false";
  case PEN_JSON_NULL:
  case PEN_JSON_ARRAY:
  case PEN_JSON_OBJECT:
    break;
  }
  pen_json_error(json, node, -PEN_EUSAGE, "must be one value");
  return NULL;
}

static int set_json_list(const struct pen_json *json,
                         const struct pen_json_node *node, const char *key,
                         struct pen_options *options)
{
  size_t n = pen_json_size(node);
  char **items = calloc(n ? n : 1, sizeof *items);
  char (*numbers)[NUMBER_BYTES] = calloc(n ? n : 1, sizeof *numbers);
  int r = 0;
  if (!items || !numbers)
    r = pen_error_set(-ENOMEM, "cannot read %s", pen_json_source(json));
  for (size_t i = 0; !r && i < n; i++) {
    items[i] = json_text(json, pen_json_item(node, i), numbers[i]);
    if (!items[i])
      r = pen_error_standing();
  }
  if (!r)
    r = pen_option_set_key(options, key, items, n, true);
  free(numbers);
  free(items);
  return r;
}

static int parse_json(const char *text, size_t n_bytes, const char *source,
                      struct pen_options *options)
{
  struct pen_json *json = NULL;
  int r = pen_json_parse(text, n_bytes, source, &json);
  if (r)
    return -PEN_EUSAGE;
  const struct pen_json_node *root = pen_json_root(json), *node;
  const char *key;
  void *iter = NULL;
  if (pen_json_type(root) != PEN_JSON_OBJECT)
    r = pen_error_set(-PEN_EUSAGE, "%s: expected an object of options", source);
  while (!r && pen_json_next(root, &iter, &key, &node)) {
    char number[NUMBER_BYTES];
    if (pen_json_type(node) == PEN_JSON_NULL)
      continue;
    if (pen_json_type(node) == PEN_JSON_ARRAY) {
      r = set_json_list(json, node, key, options);
    } else {
      char *value = json_text(json, node, number);
      r = value ? pen_option_set_key(options, key, &value, 1, false)
                : pen_error_standing();
    }
    if (r && strncmp(pen_error_text(), source, strlen(source)) != 0)
      pen_error_context(r, "%s", source);
  }
  pen_json_free(&json);
  return r;
}

int pen_config_file_parse(const char *text, size_t n_bytes, bool is_json,
                          const char *source, struct pen_options *options)
{
  return is_json ? parse_json(text, n_bytes, source, options)
                 : pen_yaml_keys_parse(text, n_bytes, source, set_key, options);
}

int pen_config_file_load(const char *path, struct pen_options *options)
{
  FILE *f = fopen(path, "re");
  if (!f)
    return pen_error_set(-errno, "cannot open config file %s", path);
  int r = 0;
  char *text = malloc(PEN_CONFIG_FILE_BYTES_MAX + 1);
  if (!text) {
    r = pen_error_set(-ENOMEM, "cannot read config file %s", path);
    goto out;
  }
  size_t n_bytes = fread(text, 1, PEN_CONFIG_FILE_BYTES_MAX + 1, f);
  if (ferror(f)) {
    r = pen_error_set(-errno, "cannot read config file %s", path);
    goto out;
  }
  if (n_bytes > PEN_CONFIG_FILE_BYTES_MAX) {
    r = pen_error_set(-PEN_EUSAGE, "config file %s is larger than %zu bytes; "
                      "is it one?", path, PEN_CONFIG_FILE_BYTES_MAX);
    goto out;
  }
  size_t n = strlen(path);
  bool is_json = n >= 5 && strcmp(path + n - 5, ".json") == 0;
  r = pen_config_file_parse(text, n_bytes, is_json, path, options);
out:
  free(text);
  fclose(f);
  return r;
}
