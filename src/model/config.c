/* config.c: reads a config.json and refuses what it cannot mean to train.
 *
 * Families differ by their rows (family.h), not by branches here.  Any thread.
 * Disadvantage: keys that no published model uses to change arithmetic are
 * passed over; the list of those that do is below and has to be kept. */
#include "src/model/config.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "io/json.h"
#include "src/model/config_rope.h"

/* Beyond any model there is, and small enough that the bytes of all state of
 * the largest pass below 2^63: 2^12 layers of a few 2^44 parameters each. */
#define SIZE_LIMIT ((size_t)1 << 22)
#define VOCAB_LIMIT ((size_t)1 << 24)
#define LAYERS_LIMIT ((size_t)1 << 12)

static int find_family(const struct pen_json *json,
                       const struct pen_json_node *root,
                       const struct pen_model_family **ret_family)
{
  const char *model_type;
  int rc = pen_json_get_string(json, root, "model_type", &model_type);
  if (rc)
    return rc;
  *ret_family = pen_family_find(model_type);
  if (*ret_family)
    return 0;
  char list[256] = "";
  const struct pen_model_family *family;
  for (size_t i = 0; (family = pen_family_at(i)); i++) {
    size_t used = strlen(list);
    snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
             family->model_type);
  }
  return pen_error_set(-PEN_EUNSUPPORTED,
                       "%s: model_type \"%.60s\" is not supported; these are: "
                       "%s", pen_json_source(json), model_type, list);
}

/* A size in [1, limit]; `absent` stands in, 0 makes the key required. */
static int parse_size(const struct pen_json *json,
                      const struct pen_json_node *root, const char *key,
                      size_t absent, size_t limit, size_t *ret_size)
{
  size_t size = absent;
  int rc = absent ? pen_json_opt_size(json, root, key, &size)
                  : pen_json_get_size(json, root, key, &size);
  if (rc)
    return rc;
  if (!size || size > limit)
    return pen_json_error(json, root, -PEN_EFORMAT,
                          "%s must be between 1 and %zu, is %zu", key, limit,
                          size);
  *ret_size = size;
  return 0;
}

/* Keys that ask for arithmetic we do not do, unless they have this value. */
static int check_plain_keys(const struct pen_json *json,
                            const struct pen_json_node *root)
{
  static const struct {
    const char *key;
    double plain;
  } numbers[] = {{"attention_dropout", 0},
                 {"partial_rotary_factor", 1},
                 {"embedding_multiplier", 1},
                 {"residual_multiplier", 1},
                 {"logits_scaling", 1}};
  static const char *const flags[] = {"rope_interleaved", "use_mrope"};
  static const char *const objects[] = {"quantization_config"};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    double value = numbers[i].plain;
    int rc = pen_json_opt_double(json, root, numbers[i].key, &value);
    if (rc)
      return rc;
    if (value != numbers[i].plain)
      return pen_json_error(json, root, -PEN_EUNSUPPORTED,
                            "%s %g is not supported, only %g", numbers[i].key,
                            value, numbers[i].plain);
  }
  for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
    bool value = false;
    int rc = pen_json_opt_bool(json, root, flags[i], &value);
    if (rc)
      return rc;
    if (value)
      return pen_json_error(json, root, -PEN_EUNSUPPORTED,
                            "%s true is not supported", flags[i]);
  }
  for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++)
    if (pen_json_has(root, objects[i]))
      return pen_json_error(json, root, -PEN_EUNSUPPORTED,
                            "%s is not supported; use the model's unquantized "
                            "weights", objects[i]);
  const char *act = "silu";
  int rc = pen_json_opt_string(json, root, "hidden_act", &act);
  if (!rc && strcmp(act, "silu"))
    rc = pen_json_error(json, root, -PEN_EUNSUPPORTED,
                        "hidden_act \"%.40s\" is not supported, only silu", act);
  return rc;
}

static int parse_heads(const struct pen_json *json,
                       const struct pen_json_node *root,
                       const struct pen_model_family *family,
                       struct pen_model_config *c)
{
  int rc = parse_size(json, root, "num_attention_heads", 0, SIZE_LIMIT,
                      &c->n_heads);
  bool is_null = pen_json_member(root, "num_key_value_heads") &&
                 !pen_json_has(root, "num_key_value_heads");
  size_t kv = family->default_kv_heads && !is_null ? family->default_kv_heads
                                                   : c->n_heads;
  if (!rc)
    rc = parse_size(json, root, "num_key_value_heads", kv, SIZE_LIMIT,
                    &c->n_kv_heads);
  if (rc)
    return rc;
  if (c->n_heads % c->n_kv_heads)
    return pen_json_error(json, root, -PEN_EFORMAT,
                          "num_attention_heads %zu is not a multiple of "
                          "num_key_value_heads %zu", c->n_heads, c->n_kv_heads);
  size_t absent = family->default_head_dim;
  if (!absent && !pen_json_has(root, "head_dim")) {
    if (c->hidden_size % c->n_heads)
      return pen_json_error(json, root, -PEN_EFORMAT,
                            "hidden_size %zu is not a multiple of "
                            "num_attention_heads %zu and there is no head_dim",
                            c->hidden_size, c->n_heads);
    absent = c->hidden_size / c->n_heads;
  }
  rc = parse_size(json, root, "head_dim", absent, SIZE_LIMIT / c->n_heads,
                  &c->head_dim);
  if (!rc && c->head_dim % 2)
    rc = pen_json_error(json, root, -PEN_EFORMAT,
                        "head_dim must be even to be rotated, is %zu",
                        c->head_dim);
  return rc;
}

/* Does layer_types name a kind of attention that slides?  An unknown kind is
 * refused. */
static int parse_layer_types(const struct pen_json *json,
                             const struct pen_json_node *root, bool *ret_slides)
{
  const struct pen_json_node *types;
  int rc = pen_json_get_array(json, root, "layer_types", &types);
  *ret_slides = false;
  for (size_t i = 0; !rc && i < pen_json_size(types); i++) {
    const char *type;
    rc = pen_json_as_string(json, pen_json_item(types, i), &type);
    if (!rc && !strcmp(type, "sliding_attention"))
      *ret_slides = true;
    else if (!rc && strcmp(type, "full_attention"))
      rc = pen_json_error(json, types, -PEN_EUNSUPPORTED,
                          "\"%.40s\" is not supported", type);
  }
  return rc;
}

static int parse_window(const struct pen_json *json,
                        const struct pen_json_node *root,
                        const struct pen_model_family *family,
                        struct pen_model_config *c)
{
  bool slides = family->window == PEN_WINDOW_ALL_LAYERS;
  c->sliding_window = 0;
  int rc = 0;
  if (family->window == PEN_WINDOW_OPT_IN) {
    size_t first = 28; /* max_window_layers when absent */
    bool use = false;
    rc = pen_json_opt_bool(json, root, "use_sliding_window", &use);
    if (!rc)
      rc = pen_json_opt_size(json, root, "max_window_layers", &first);
    slides = use && first < c->n_layers;
    bool by_type = slides;
    if (!rc && pen_json_has(root, "layer_types"))
      rc = parse_layer_types(json, root, &by_type);
    slides = use && by_type;
  }
  if (rc || !slides)
    return rc;
  const struct pen_json_node *member = pen_json_member(root, "sliding_window");
  if (member && pen_json_type(member) == PEN_JSON_NULL)
    return 0;
  return parse_size(json, root, "sliding_window", family->default_window,
                    INT32_MAX, &c->sliding_window);
}

/* A bias key counts only where the family looks at it. */
static int parse_flags(const struct pen_json *json,
                       const struct pen_json_node *root,
                       const struct pen_model_family *family,
                       struct pen_model_config *c)
{
  bool attention = false, mlp = false;
  c->tied = family->default_tied;
  int rc = pen_json_opt_bool(json, root, "attention_bias", &attention);
  if (!rc)
    rc = pen_json_opt_bool(json, root, "mlp_bias", &mlp);
  if (!rc)
    rc = pen_json_opt_bool(json, root, "tie_word_embeddings", &c->tied);
  c->qkv_bias = family->qkv_bias == PEN_BIAS_ALWAYS ||
                (family->qkv_bias == PEN_BIAS_BY_CONFIG && attention);
  c->o_bias = family->o_bias == PEN_BIAS_ALWAYS ||
              (family->o_bias == PEN_BIAS_BY_CONFIG && attention);
  c->mlp_bias = family->mlp_bias == PEN_BIAS_ALWAYS ||
                (family->mlp_bias == PEN_BIAS_BY_CONFIG && mlp);
  c->qk_norm = family->qk_norm;
  return rc;
}

static int parse_dtype(const struct pen_json *json,
                       const struct pen_json_node *root,
                       struct pen_model_config *c)
{
  const char *name = NULL;
  int rc = pen_json_opt_string(json, root, "torch_dtype", &name);
  if (!rc)
    rc = pen_json_opt_string(json, root, "dtype", &name);
  if (rc || !name)
    return rc;
  c->dtype = pen_file_dtype_find_torch(name);
  if (c->dtype == PEN_FILE_NONE)
    return pen_json_error(json, root, -PEN_EUNSUPPORTED,
                          "dtype \"%.40s\" is not supported", name);
  return 0;
}

static int parse_numbers(const struct pen_json *json,
                         const struct pen_json_node *root,
                         struct pen_model_config *c)
{
  c->norm_eps = c->family->default_norm_eps;
  c->init_std = 0.02;
  int rc = pen_json_opt_double(json, root, "rms_norm_eps", &c->norm_eps);
  if (!rc)
    rc = pen_json_opt_double(json, root, "initializer_range", &c->init_std);
  if (!rc && !(c->norm_eps >= 0 && c->norm_eps < 1))
    rc = pen_json_error(json, root, -PEN_EFORMAT,
                        "rms_norm_eps must be in [0, 1), is %g", c->norm_eps);
  if (!rc && !(c->init_std >= 0 && isfinite(c->init_std)))
    rc = pen_json_error(json, root, -PEN_EFORMAT,
                        "initializer_range must be at least 0, is %g",
                        c->init_std);
  if (!rc)
    rc = pen_config_rope_parse(json, root, c->family->default_rope_theta,
                               c->max_positions, &c->rope);
  return rc;
}

int pen_model_config_parse(const struct pen_json *json,
                           struct pen_model_config *ret_config)
{
  const struct pen_json_node *root = pen_json_root(json);
  struct pen_model_config c = {0};
  if (pen_json_type(root) != PEN_JSON_OBJECT)
    return pen_error_set(-PEN_EFORMAT, "%s: not an object",
                         pen_json_source(json));
  int rc = find_family(json, root, &c.family);
  if (!rc)
    rc = check_plain_keys(json, root);
  if (!rc)
    rc = parse_size(json, root, "hidden_size", 0, SIZE_LIMIT, &c.hidden_size);
  if (!rc)
    rc = parse_size(json, root, "intermediate_size", 0, SIZE_LIMIT,
                    &c.intermediate_size);
  if (!rc)
    rc = parse_size(json, root, "num_hidden_layers", 0, LAYERS_LIMIT,
                    &c.n_layers);
  if (!rc)
    rc = parse_size(json, root, "vocab_size", 0, VOCAB_LIMIT, &c.vocab_size);
  if (!rc)
    rc = parse_size(json, root, "max_position_embeddings",
                    c.family->default_positions, INT32_MAX, &c.max_positions);
  if (!rc)
    rc = parse_heads(json, root, c.family, &c);
  if (!rc)
    rc = parse_flags(json, root, c.family, &c);
  if (!rc)
    rc = parse_window(json, root, c.family, &c);
  if (!rc)
    rc = parse_numbers(json, root, &c);
  if (!rc)
    rc = parse_dtype(json, root, &c);
  if (!rc)
    *ret_config = c;
  return rc;
}

int pen_model_config_load(const char *path, struct pen_model_config *ret_config)
{
  struct pen_json *json = NULL;
  int rc = pen_json_load(path, &json);
  if (!rc)
    rc = pen_model_config_parse(json, ret_config);
  pen_json_free(&json);
  return rc;
}

int pen_model_config_check_length(const struct pen_model_config *config,
                                  size_t max_length)
{
  if (config->sliding_window && max_length > config->sliding_window)
    return pen_error_set(-PEN_EUNSUPPORTED,
                         "the model attends in a sliding window of %zu tokens "
                         "and sequences may have %zu; --max-length %zu or less "
                         "trains it as it was made",
                         config->sliding_window, max_length,
                         config->sliding_window);
  if (config->rope.type == PEN_ROPE_DYNAMIC &&
      max_length > config->max_positions)
    return pen_error_set(-PEN_EUNSUPPORTED,
                         "dynamic rope scaling changes the model beyond %zu "
                         "tokens, which is not supported, and sequences may "
                         "have %zu; use --max-length %zu or less",
                         config->max_positions, max_length,
                         config->max_positions);
  return 0;
}
