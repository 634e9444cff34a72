/* yaml_keys.h: a YAML document's top-level keys.  Built as yaml_keys.c, or as
 * yaml_keys_none.c where libyaml is missing. */
#ifndef PEN_SRC_CLI_YAML_KEYS_H
#define PEN_SRC_CLI_YAML_KEYS_H

#include <stdbool.h>
#include <stddef.h>

/* Calls on_key for each key of the document's top-level map, in order, with
 * its value (one item) or the items of its sequence (is_list).  Keys whose
 * value is null are passed over; an empty document has no keys.  All strings
 * are borrowed for the call.  What on_key returns ends the reading if not 0.
 * Every error is put behind "SOURCE:LINE: ". */
int pen_yaml_keys_parse(const char *text, size_t n_bytes, const char *source,
                   int (*on_key)(void *ctx, const char *key, char *const *items,
                                 size_t n_items, bool is_list),
                   void *ctx);

#endif
