/* config_file.h: options from a file. */
#ifndef PEN_SRC_CLI_CONFIG_FILE_H
#define PEN_SRC_CLI_CONFIG_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/option.h"

#define PEN_CONFIG_FILE_BYTES_MAX ((size_t)1 << 20)

/* Reads a flat map of option names to values from PATH: JSON if it ends in
 * .json, else YAML.  Values set on the command line stay.  null means the
 * default.  Unknown keys, keys given twice, nested maps and wrong values are
 * errors that name file and key, and for YAML the line. */
int pen_config_file_load(const char *path, struct pen_options *options);

/* The same from text in memory; `source` stands in messages. */
int pen_config_file_parse(const char *text, size_t n_bytes, bool is_json,
                          const char *source, struct pen_options *options);

#endif
