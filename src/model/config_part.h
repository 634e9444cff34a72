/* config_part.h: the parts of reading a config.json that have a file of their
 * own.  `root` is the config object; errors as pen_model_config_load. */
#ifndef PEN_SRC_MODEL_CONFIG_PART_H
#define PEN_SRC_MODEL_CONFIG_PART_H

#include "io/json.h"
#include "src/model/config.h"

/* Refuses keys that ask for arithmetic we do not do. */
int pen_config_plain_check(const struct pen_json *json,
                           const struct pen_json_node *root,
                           const struct pen_model_family *family);

/* A size in [1, limit]; `absent` stands in, 0 makes the key required. */
int pen_config_size_parse(const struct pen_json *json,
                          const struct pen_json_node *root, const char *key,
                          size_t absent, size_t limit, size_t *ret_size);

/* Which layers attend in a window, and in which; needs c->family and n_layers. */
int pen_config_window_parse(const struct pen_json *json,
                            const struct pen_json_node *root,
                            struct pen_model_config *c);

/* Experts: which layers have some, how many, and how tokens get to them; needs
 * c->family, intermediate_size and n_layers. */
int pen_config_mixture_parse(const struct pen_json *json,
                             const struct pen_json_node *root,
                             struct pen_model_config *c);

/* Reads rope_theta, partial_rotary_factor, rope_scaling and rope_parameters
 * into c->rope; needs c->family, head_dim and max_positions. */
int pen_config_rope_parse(const struct pen_json *json,
                          const struct pen_json_node *root,
                          struct pen_model_config *c);

#endif
