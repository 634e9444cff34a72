/* json_tree.h: what json.c asks of the parser below it.  Built as json_jansson.c,
 * or as json_plain.c where jansson is missing; both also give json.h's
 * pen_json_type, _size, _member, _item and _next. */
#ifndef PEN_IO_JSON_TREE_H
#define PEN_IO_JSON_TREE_H

#include "io/json.h"

/* Strict JSON as json.h has it, known to be no deeper than PEN_JSON_DEPTH_MAX.
 * -PEN_EFORMAT "SOURCE: not valid JSON at line L, column C: why"; -ENOMEM.
 * Caller frees *ret_root. */
int pen_json_tree_parse(const char *text, size_t n_bytes, const char *source,
                        struct pen_json_node **ret_root);
void pen_json_tree_free(struct pen_json_node *root);

/* Of a node of type INT, REAL, BOOL, STRING. */
int64_t pen_json_tree_int(const struct pen_json_node *node);
double pen_json_tree_real(const struct pen_json_node *node);
bool pen_json_tree_true(const struct pen_json_node *node);
const char *pen_json_tree_string(const struct pen_json_node *node);

#endif
