/* config_rope.c: reads how a model rotates positions.
 *
 * Three spellings exist: rope_scaling with "type", with "rope_type", and the
 * newer rope_parameters, which holds rope_theta too.  What is not understood is
 * refused, never ignored: a model trained with other frequencies than it was
 * made with is quietly worse.  Any thread. */
#include "src/model/config_part.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

struct key {
  const char *name;
  unsigned types; /* bit per enum pen_rope_type that reads it */
};

#define ANY 63u
#define BIT(type) (1u << (type))
#define LLAMA3 BIT(PEN_ROPE_LLAMA3)
#define YARN BIT(PEN_ROPE_YARN)
#define LONGROPE BIT(PEN_ROPE_LONGROPE)
#define SCALED (ANY & ~BIT(PEN_ROPE_DEFAULT))

/* finetuned is a note that some published YaRN models carry. */
static const struct key keys[] = {
  {"type", ANY},
  {"rope_type", ANY},
  {"rope_theta", ANY},
  {"partial_rotary_factor", ANY},
  {"factor", SCALED},
  {"original_max_position_embeddings", SCALED},
  {"low_freq_factor", LLAMA3},
  {"high_freq_factor", LLAMA3},
  {"beta_fast", YARN},
  {"beta_slow", YARN},
  {"attention_factor", YARN | LONGROPE},
  {"mscale", YARN},
  {"mscale_all_dim", YARN},
  {"truncate", YARN},
  {"finetuned", YARN},
  {"short_factor", LONGROPE},
  {"long_factor", LONGROPE},
};

static const char *const type_names[] = {
  [PEN_ROPE_DEFAULT] = "default", [PEN_ROPE_LINEAR] = "linear",
  [PEN_ROPE_DYNAMIC] = "dynamic", [PEN_ROPE_LLAMA3] = "llama3",
  [PEN_ROPE_YARN] = "yarn", [PEN_ROPE_LONGROPE] = "longrope",
};

const char *pen_rope_type_name(enum pen_rope_type type)
{
  return type_names[type];
}

static int parse_type(const struct pen_json *json,
                      const struct pen_json_node *dict,
                      enum pen_rope_type *ret_type)
{
  const char *old_name = NULL, *name = NULL;
  int rc = pen_json_opt_string(json, dict, "type", &old_name);
  if (!rc)
    rc = pen_json_opt_string(json, dict, "rope_type", &name);
  if (rc)
    return rc;
  if (name && old_name && strcmp(name, old_name))
    return pen_json_error(json, dict, -PEN_EFORMAT,
                          "rope_type is \"%.40s\" but type is \"%.40s\"", name,
                          old_name);
  name = name ? name : old_name ? old_name : "default";
  if (!strcmp(name, "su")) /* longrope's first name */
    name = "longrope";
  for (size_t i = 0; i < sizeof type_names / sizeof type_names[0]; i++)
    if (!strcmp(type_names[i], name)) {
      *ret_type = (enum pen_rope_type)i;
      return 0;
    }
  return pen_json_error(json, dict, -PEN_EUNSUPPORTED,
                        "rope scaling type \"%.40s\" is not supported; default,"
                        " linear, dynamic, llama3, yarn and longrope are",
                        name);
}

static int check_keys(const struct pen_json *json,
                      const struct pen_json_node *dict,
                      enum pen_rope_type type)
{
  const char *name;
  const struct pen_json_node *value;
  void *iter = NULL;
  while (pen_json_next(dict, &iter, &name, &value)) {
    size_t i = 0, n = sizeof keys / sizeof keys[0];
    while (i < n && strcmp(keys[i].name, name))
      i++;
    bool known = i < n && keys[i].types & BIT(type);
    if (!known && pen_json_type(value) != PEN_JSON_NULL)
      return pen_json_error(json, value, -PEN_EUNSUPPORTED,
                            "not a key of rope scaling type %s that is "
                            "understood", type_names[type]);
  }
  return 0;
}

/* The range every number of a rotary embedding must have. */
static int check_above(const struct pen_json *json,
                       const struct pen_json_node *dict, const char *key,
                       double value, double bound, bool may_equal)
{
  if (value > bound || (may_equal && value == bound))
    return 0;
  return pen_json_error(json, dict, -PEN_EFORMAT, "%s must be %s %g, is %g",
                        key, may_equal ? "at least" : "above", bound, value);
}

static double yarn_mscale(double scale, double mscale)
{
  return scale <= 1 ? 1.0 : 0.1 * mscale * log(scale) + 1.0;
}

/* YaRN's own numbers; "YaRN: Efficient Context Window Extension of Large
 * Language Models" (2309.00071), section 3.4 for the attention factor. */
static int parse_yarn(const struct pen_json *json,
                      const struct pen_json_node *dict, double factor,
                      struct pen_rope_config *r)
{
  double mscale = 0, mscale_all = 0, attention = -1;
  r->beta_fast = 32;
  r->beta_slow = 1;
  r->truncate = true;
  int rc = pen_json_opt_double(json, dict, "beta_fast", &r->beta_fast);
  if (!rc)
    rc = pen_json_opt_double(json, dict, "beta_slow", &r->beta_slow);
  if (!rc)
    rc = pen_json_opt_double(json, dict, "mscale", &mscale);
  if (!rc)
    rc = pen_json_opt_double(json, dict, "mscale_all_dim", &mscale_all);
  if (!rc)
    rc = pen_json_opt_bool(json, dict, "truncate", &r->truncate);
  if (!rc)
    rc = pen_json_opt_double(json, dict, "attention_factor", &attention);
  if (!rc)
    rc = check_above(json, dict, "beta_slow", r->beta_slow, 0, false);
  if (!rc)
    rc = check_above(json, dict, "beta_fast", r->beta_fast, r->beta_slow, true);
  if (rc)
    return rc;
  if (pen_json_has(dict, "attention_factor"))
    r->attention_factor = attention;
  else if (mscale != 0 && mscale_all != 0)
    r->attention_factor =
        yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all);
  else
    r->attention_factor = yarn_mscale(factor, 1);
  return check_above(json, dict, "attention_factor", r->attention_factor, 0,
                     false);
}

static int parse_llama3(const struct pen_json *json,
                        const struct pen_json_node *dict,
                        struct pen_rope_config *r)
{
  int rc =
      pen_json_get_double(json, dict, "low_freq_factor", &r->low_freq_factor);
  if (!rc)
    rc = pen_json_get_double(json, dict, "high_freq_factor",
                             &r->high_freq_factor);
  if (!rc)
    rc = check_above(json, dict, "low_freq_factor", r->low_freq_factor, 0,
                     false);
  if (!rc)
    rc = check_above(json, dict, "high_freq_factor", r->high_freq_factor,
                     r->low_freq_factor, false);
  return rc;
}

/* A list of a number for each rotated pair. */
static int parse_factors(const struct pen_json *json,
                         const struct pen_json_node *dict, const char *key,
                         size_t n, double *factors)
{
  const struct pen_json_node *list;
  int rc = pen_json_get_array(json, dict, key, &list);
  if (!rc && (pen_json_size(list) != n || n > PEN_ROPE_FACTORS_MAX))
    rc = pen_json_error(json, list, -PEN_EFORMAT,
                        "%zu numbers where %zu pairs (at most %zu) are rotated",
                        pen_json_size(list), n, PEN_ROPE_FACTORS_MAX);
  for (size_t i = 0; !rc && i < n; i++) {
    rc = pen_json_as_double(json, pen_json_item(list, i), &factors[i]);
    if (!rc)
      rc = check_above(json, list, key, factors[i], 0, false);
  }
  return rc;
}

/* "LongRoPE" (2402.13753), as transformers has it: unless given, the factor is
 * that of all positions to the original ones. */
static int parse_longrope(const struct pen_json *json,
                          const struct pen_json_node *dict,
                          size_t max_positions, struct pen_rope_config *r)
{
  double original = (double)r->original_max_positions;
  r->factor = fmax((double)max_positions / original, 1);
  int rc = parse_factors(json, dict, "short_factor", r->dim / 2,
                         r->short_factors);
  if (!rc)
    rc = parse_factors(json, dict, "long_factor", r->dim / 2, r->long_factors);
  if (!rc)
    rc = pen_json_opt_double(json, dict, "factor", &r->factor);
  if (!rc)
    rc = check_above(json, dict, "factor", r->factor, 1, true);
  if (rc)
    return rc;
  r->attention_factor =
      r->factor > 1 ? sqrt(1 + log(r->factor) / log(original)) : 1;
  rc = pen_json_opt_double(json, dict, "attention_factor",
                           &r->attention_factor);
  return rc ? rc : check_above(json, dict, "attention_factor",
                               r->attention_factor, 0, false);
}

/* original_max_position_embeddings: beside the scaling (Phi's way, which wins
 * in the published reader too), in it, the family's, or all positions. */
static int parse_original(const struct pen_json *json,
                          const struct pen_json_node *root,
                          const struct pen_json_node *dict,
                          const struct pen_model_config *c,
                          struct pen_rope_config *r)
{
  static const char key[] = "original_max_position_embeddings";
  size_t own = c->family->default_original_positions;
  r->original_max_positions = own ? own : c->max_positions;
  int rc = pen_json_opt_size(json, dict, key, &r->original_max_positions);
  if (!rc)
    rc = pen_json_opt_size(json, root, key, &r->original_max_positions);
  if (!rc)
    rc = check_above(json, dict, key, (double)r->original_max_positions,
                     r->type == PEN_ROPE_LONGROPE, false);
  return rc;
}

/* How much of each head is rotated: all, but for families that say. */
static int parse_partial(const struct pen_json *json,
                         const struct pen_json_node *dict,
                         const struct pen_model_config *c,
                         struct pen_rope_config *r)
{
  double partial = (double)r->dim / (double)c->head_dim;
  bool may = c->family->positions == PEN_POSITIONS_PARTLY_ROTARY;
  if (!pen_json_has(dict, "partial_rotary_factor"))
    return 0;
  int rc = pen_json_opt_double(json, dict, "partial_rotary_factor", &partial);
  if (!rc && !may && partial != 1)
    return pen_json_error(json, dict, -PEN_EUNSUPPORTED,
                          "partial_rotary_factor %g is not supported for %s "
                          "models, only 1", partial, c->family->model_type);
  if (!rc && !(partial > 0 && partial <= 1))
    return pen_json_error(json, dict, -PEN_EFORMAT,
                          "partial_rotary_factor must be in (0, 1], is %g",
                          partial);
  size_t dim = (size_t)((double)c->head_dim * partial);
  if (!rc && (!dim || dim % 2))
    return pen_json_error(json, dict, -PEN_EFORMAT,
                          "partial_rotary_factor %g of head_dim %zu is not an "
                          "even number of elements", partial, c->head_dim);
  r->dim = dim;
  return rc;
}

/* One of the two dictionaries; r->theta and r->dim are set already. */
static int parse_dict(const struct pen_json *json,
                      const struct pen_json_node *root,
                      const struct pen_json_node *dict,
                      const struct pen_model_config *c,
                      struct pen_rope_config *r)
{
  if (pen_json_type(dict) != PEN_JSON_OBJECT)
    return pen_json_error(json, dict, -PEN_EFORMAT, "must be an object or null");
  int rc = parse_type(json, dict, &r->type);
  if (!rc)
    rc = check_keys(json, dict, r->type);
  if (!rc)
    rc = pen_json_opt_double(json, dict, "rope_theta", &r->theta);
  if (!rc)
    rc = parse_partial(json, dict, c, r);
  if (rc || r->type == PEN_ROPE_DEFAULT)
    return rc;
  if (BIT(r->type) & (LLAMA3 | YARN | LONGROPE))
    rc = parse_original(json, root, dict, c, r);
  if (!rc && r->type == PEN_ROPE_LONGROPE)
    return parse_longrope(json, dict, c->max_positions, r);
  if (!rc)
    rc = pen_json_get_double(json, dict, "factor", &r->factor);
  if (!rc)
    rc = check_above(json, dict, "factor", r->factor, 1, true);
  if (!rc && r->type == PEN_ROPE_LLAMA3)
    rc = parse_llama3(json, dict, r);
  if (!rc && r->type == PEN_ROPE_YARN)
    rc = parse_yarn(json, dict, r->factor, r);
  return rc;
}

static bool is_same(const struct pen_rope_config *a,
                    const struct pen_rope_config *b)
{
  return a->type == b->type && a->dim == b->dim && a->theta == b->theta &&
         a->factor == b->factor &&
         a->low_freq_factor == b->low_freq_factor &&
         a->high_freq_factor == b->high_freq_factor &&
         a->beta_fast == b->beta_fast && a->beta_slow == b->beta_slow &&
         a->attention_factor == b->attention_factor &&
         a->original_max_positions == b->original_max_positions &&
         a->truncate == b->truncate &&
         !memcmp(a->short_factors, b->short_factors, sizeof a->short_factors) &&
         !memcmp(a->long_factors, b->long_factors, sizeof a->long_factors);
}

int pen_config_rope_parse(const struct pen_json *json,
                          const struct pen_json_node *root,
                          struct pen_model_config *c)
{
  static const char *const dicts[] = {"rope_parameters", "rope_scaling"};
  struct pen_rope_config plain = {
    .type = PEN_ROPE_DEFAULT, .dim = c->head_dim,
    .theta = c->family->default_rope_theta, .attention_factor = 1};
  struct pen_rope_config found[2];
  bool has[2];
  int rc = pen_json_opt_double(json, root, "rope_theta", &plain.theta);
  if (!rc)
    rc = parse_partial(json, root, c, &plain);
  for (int i = 0; i < 2 && !rc; i++) {
    found[i] = plain;
    has[i] = pen_json_has(root, dicts[i]);
    if (has[i])
      rc = parse_dict(json, root, pen_json_member(root, dicts[i]), c,
                      &found[i]);
  }
  if (rc)
    return rc;
  if (has[0] && has[1] && !is_same(&found[0], &found[1]))
    return pen_json_error(json, root, -PEN_EFORMAT,
                          "rope_parameters and rope_scaling say different "
                          "things; keep one of them");
  c->rope = has[0] ? found[0] : found[1];
  if (!(c->rope.theta > 1) || !isfinite(c->rope.theta))
    return pen_json_error(json, root, -PEN_EFORMAT,
                          "rope_theta must be above 1, is %g", c->rope.theta);
  return 0;
}
