/* config_rope.h: the rotary embedding's keys of a config.json. */
#ifndef PEN_SRC_MODEL_CONFIG_ROPE_H
#define PEN_SRC_MODEL_CONFIG_ROPE_H

#include "io/json.h"
#include "src/model/config.h"

/* Reads rope_theta, rope_scaling and rope_parameters of the config object
 * `root`; `default_theta` and `max_positions` stand in for absent values.
 * Errors as pen_model_config_load. */
int pen_config_rope_parse(const struct pen_json *json,
                          const struct pen_json_node *root,
                          double default_theta, size_t max_positions,
                          struct pen_rope_config *ret_rope);

#endif
