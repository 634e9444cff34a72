/* config_load.c: reads a config.json and refuses what it cannot mean to train.
 *
 * Families differ by their rows (family.h), not by branches here.  Any thread.
 * Disadvantage: a model's numbers are read key by key, so of several mistakes
 * the first is told. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "io/json.h"
#include "src/model/config_part.h"

/* Beyond any model there is, and small enough that the bytes of all state of
 * the largest pass below 2^63: 2^12 layers of a few 2^44 parameters each. */
#define SIZE_LIMIT ((size_t)1 << 22)
#define VOCAB_LIMIT ((size_t)1 << 24)

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

static int parse_activation(const struct pen_json *json,
                            const struct pen_json_node *root,
                            struct pen_model_config *c)
{
  static const struct {
    const char *name;
    enum pen_activation activation;
  } names[] = {{"silu", PEN_ACTIVATION_SILU},
               {"gelu", PEN_ACTIVATION_GELU},
               {"gelu_new", PEN_ACTIVATION_GELU_TANH},
               {"gelu_pytorch_tanh", PEN_ACTIVATION_GELU_TANH}};
  const char *key = c->family->keys->activation, *name = NULL;
  int rc = pen_json_opt_string(json, root, key, &name);
  c->activation = c->family->default_activation;
  if (rc || !name)
    return rc;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (!strcmp(names[i].name, name)) {
      c->activation = names[i].activation;
      return 0;
    }
  return pen_json_error(json, root, -PEN_EUNSUPPORTED,
                        "%s \"%.40s\" is not supported; silu, gelu, gelu_new "
                        "and gelu_pytorch_tanh are", key, name);
}

/* How many heads keys and values have. */
static int parse_kv_heads(const struct pen_json *json,
                          const struct pen_json_node *root,
                          struct pen_model_config *c)
{
  const struct pen_model_family *family = c->family;
  const char *key = family->keys->kv_heads;
  c->n_kv_heads = c->n_heads;
  if (!key)
    return 0;
  bool is_null = pen_json_member(root, key) && !pen_json_has(root, key);
  size_t absent = family->default_kv_heads && !is_null
                      ? family->default_kv_heads
                      : c->n_heads;
  int rc = pen_config_size_parse(json, root, key, absent, SIZE_LIMIT,
                                 &c->n_kv_heads);
  if (!rc && c->n_heads % c->n_kv_heads)
    rc = pen_json_error(json, root, -PEN_EFORMAT,
                        "%s %zu is not a multiple of %s %zu",
                        family->keys->heads, c->n_heads, key, c->n_kv_heads);
  return rc;
}

static int parse_head_dim(const struct pen_json *json,
                          const struct pen_json_node *root,
                          struct pen_model_config *c)
{
  const struct pen_family_keys *keys = c->family->keys;
  size_t absent = c->family->default_head_dim;
  bool given = keys->head_dim && pen_json_has(root, keys->head_dim);
  if (!absent && !given) {
    if (c->hidden_size % c->n_heads)
      return pen_json_error(json, root, -PEN_EFORMAT,
                            "%s %zu is not a multiple of %s %zu%s",
                            keys->hidden, c->hidden_size, keys->heads,
                            c->n_heads,
                            keys->head_dim ? " and there is no head_dim" : "");
    absent = c->hidden_size / c->n_heads;
  }
  c->head_dim = absent;
  int rc = 0;
  if (given)
    rc = pen_config_size_parse(json, root, keys->head_dim, absent,
                               SIZE_LIMIT / c->n_heads, &c->head_dim);
  if (!rc && c->head_dim % 2)
    rc = pen_json_error(json, root, -PEN_EFORMAT,
                        "head_dim must be even, is %zu", c->head_dim);
  return rc;
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
  const char *eps = c->family->keys->norm_eps;
  c->norm_eps = c->family->default_norm_eps;
  c->init_std = 0.02;
  int rc = pen_json_opt_double(json, root, eps, &c->norm_eps);
  if (!rc)
    rc = pen_json_opt_double(json, root, "initializer_range", &c->init_std);
  if (!rc && !(c->norm_eps >= 0 && c->norm_eps < 1))
    rc = pen_json_error(json, root, -PEN_EFORMAT, "%s must be in [0, 1), is %g",
                        eps, c->norm_eps);
  if (!rc && !(c->init_std >= 0 && isfinite(c->init_std)))
    rc = pen_json_error(json, root, -PEN_EFORMAT,
                        "initializer_range must be at least 0, is %g",
                        c->init_std);
  return rc;
}

/* cap tanh(x / cap): a number above 0, or null for none. */
static int parse_cap(const struct pen_json *json,
                     const struct pen_json_node *root, const char *key,
                     double absent, double *ret_cap)
{
  bool is_null = pen_json_member(root, key) && !pen_json_has(root, key);
  double cap = absent;
  int rc = pen_json_opt_double(json, root, key, &cap);
  if (!rc && !(cap > 0 && isfinite(cap)))
    rc = pen_json_error(json, root, -PEN_EFORMAT,
                        "%s must be above 0 or null, is %g", key, cap);
  if (!rc)
    *ret_cap = is_null ? 0 : cap;
  return rc;
}

static int parse_attention(const struct pen_json *json,
                           const struct pen_json_node *root,
                           struct pen_model_config *c)
{
  const struct pen_model_family *family = c->family;
  size_t scalar = c->head_dim;
  int rc = 0;
  if (family->default_query_scalar)
    rc = pen_config_size_parse(json, root, "query_pre_attn_scalar",
                               family->default_query_scalar, SIZE_LIMIT,
                               &scalar);
  c->query_scale = 1 / sqrt((double)scalar);
  if (!rc && family->softcaps)
    rc = parse_cap(json, root, "attn_logit_softcapping",
                   family->default_attention_cap, &c->attention_cap);
  if (!rc && family->softcaps)
    rc = parse_cap(json, root, "final_logit_softcapping",
                   family->default_final_cap, &c->final_cap);
  return rc;
}

static int parse_sizes(const struct pen_json *json,
                       const struct pen_json_node *root,
                       struct pen_model_config *c)
{
  const struct pen_model_family *family = c->family;
  const struct pen_family_keys *keys = family->keys;
  int rc = pen_config_size_parse(json, root, keys->hidden, 0, SIZE_LIMIT,
                                 &c->hidden_size);
  if (!rc)
    rc = pen_config_size_parse(json, root, keys->ffn,
                               family->default_ffn_factor * c->hidden_size,
                               SIZE_LIMIT, &c->intermediate_size);
  if (!rc)
    rc = pen_config_size_parse(json, root, keys->layers, 0,
                               PEN_MODEL_LAYERS_MAX, &c->n_layers);
  if (!rc)
    rc = pen_config_size_parse(json, root, "vocab_size", 0, VOCAB_LIMIT,
                               &c->vocab_size);
  if (!rc)
    rc = pen_config_size_parse(json, root, keys->positions,
                               family->default_positions, INT32_MAX,
                               &c->max_positions);
  if (!rc)
    rc = pen_config_size_parse(json, root, keys->heads, 0, SIZE_LIMIT,
                               &c->n_heads);
  if (!rc)
    rc = parse_kv_heads(json, root, c);
  return rc ? rc : parse_head_dim(json, root, c);
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
    rc = pen_config_plain_check(json, root, c.family);
  if (!rc)
    rc = parse_activation(json, root, &c);
  if (!rc)
    rc = parse_sizes(json, root, &c);
  if (!rc)
    rc = parse_flags(json, root, c.family, &c);
  if (!rc)
    rc = parse_attention(json, root, &c);
  if (!rc)
    rc = pen_config_window_parse(json, root, &c);
  if (!rc)
    rc = pen_config_mixture_parse(json, root, &c);
  if (!rc)
    rc = parse_numbers(json, root, &c);
  if (!rc && c.family->positions != PEN_POSITIONS_LEARNED)
    rc = pen_config_rope_parse(json, root, &c);
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
