/* dump_json FILE: for test_json_both.py.  FILE holds documents, each behind its
 * length (4 bytes, little-endian); prints one line for each: "refused", or the
 * tree as the parser this is linked with made it, doubles to the last bit. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/files.h"
#include "io/json_tree.h"

static void dump_string(const char *text)
{
  putchar('"');
  for (; *text; text++)
    printf(*text < 0x20 || *text == '"' ? "<%02x>" : "%c", (unsigned char)*text);
  putchar('"');
}

static void dump(const struct pen_json_node *node)
{
  const struct pen_json_node *value;
  const char *key;
  void *iter = NULL;
  switch (pen_json_type(node)) {
  case PEN_JSON_OBJECT:
    printf("{%zu", pen_json_size(node));
    while (pen_json_next(node, &iter, &key, &value)) {
      putchar(' ');
      dump_string(key);
      putchar(pen_json_member(node, key) == value ? ':' : '?');
      dump(value);
    }
    printf("%s}", pen_json_member(node, "no such key") ? "?" : "");
    break;
  case PEN_JSON_ARRAY:
    printf("[%zu", pen_json_size(node));
    for (size_t i = 0; (value = pen_json_item(node, i)); i++) {
      putchar(' ');
      dump(value);
    }
    putchar(']');
    break;
  case PEN_JSON_STRING:
    dump_string(pen_json_tree_string(node));
    break;
  case PEN_JSON_INT:
    printf("%" PRId64, pen_json_tree_int(node));
    break;
  case PEN_JSON_REAL:
    printf("%a", pen_json_tree_real(node));
    break;
  case PEN_JSON_BOOL:
    printf(pen_json_tree_true(node) ? "true" : "false");
    break;
  case PEN_JSON_NULL:
    printf("null");
    break;
  }
}

int main(int argc, char **argv)
{
  char *all;
  size_t n = 0, at = 0;
  if (argc != 2 || pen_files_read_whole(argv[1], (size_t)1 << 30, &all, &n) < 0)
    return 1;
  while (at + 4 <= n) {
    struct pen_json *json = NULL;
    uint32_t bytes;
    memcpy(&bytes, all + at, 4);
    char *copy = malloc(bytes ? bytes : 1); /* its end is the heap's */
    memcpy(copy, all + at + 4, bytes);
    if (pen_json_parse(copy, bytes, "document", &json) == 0)
      dump(pen_json_root(json));
    else
      printf("refused");
    printf("\n");
    pen_json_free(&json);
    pen_error_clear();
    free(copy);
    at += 4 + bytes;
  }
  free(all);
  return 0;
}
