/* options.h: penstock's option table. */
#ifndef PEN_SRC_CLI_OPTIONS_H
#define PEN_SRC_CLI_OPTIONS_H

#include <stdint.h>
#include <stdio.h>

#include "base/option.h"
#include "src/cli/config.h"

/* Makes `options` fill `config` by the table, for the verb of that bit and
 * name; all values are at their defaults.  pen_option_done frees. */
int pen_options_init(struct pen_options *options, struct pen_config *config,
                     uint32_t verb, const char *verb_name);

/* The whole way from arguments to a usable configuration: command line, then
 * the file it names, then what must be there and what contradicts itself.
 * With --help or --dump-config among the arguments only they matter, and
 * nothing is required. */
int pen_options_parse(struct pen_options *options, struct pen_config *config,
                      int argc, char *const *argv, const char *positional);

/* -PEN_EUSAGE naming the options that cannot stand together. */
int pen_options_check(const struct pen_config *config, uint32_t verb);

/* Writes the configuration of a verb as YAML that -c accepts. */
void pen_options_dump(const struct pen_config *config, uint32_t verb, FILE *f);

#endif
