/* config_mixture.c: layers whose MLP is a mixture of experts.
 *
 * Any thread.  Disadvantage: all layers that have experts have as many. */
#include <math.h>

#include "base/error.h"
#include "src/model/config_part.h"

#define EXPERTS_MAX ((size_t)1 << 12)
#define ALL_EXPERTS_MAX ((size_t)1 << 17) /* of all layers: each is a block */
#define SIZE_MAX_FFN ((size_t)1 << 22)

/* mlp_only_layers takes layers out. */
static int take_out(const struct pen_json *json,
                    const struct pen_json_node *root,
                    struct pen_model_config *c)
{
  const struct pen_json_node *layers;
  if (!pen_json_has(root, "mlp_only_layers"))
    return 0;
  int rc = pen_json_get_array(json, root, "mlp_only_layers", &layers);
  for (size_t i = 0; !rc && i < pen_json_size(layers); i++) {
    int64_t layer;
    rc = pen_json_as_i64(json, pen_json_item(layers, i), &layer);
    if (!rc && layer >= 0 && layer < (int64_t)c->n_layers)
      c->sparse[layer / 64] &= ~((uint64_t)1 << layer % 64);
  }
  return rc;
}

static int parse_layers(const struct pen_json *json,
                        const struct pen_json_node *root,
                        struct pen_model_config *c)
{
  bool some = c->family->mixture->some_layers;
  size_t step = 1;
  int rc = !some ? 0
                 : pen_config_size_parse(json, root, "decoder_sparse_step", 1,
                                         PEN_MODEL_LAYERS_MAX, &step);
  for (size_t layer = step - 1; !rc && layer < c->n_layers; layer += step)
    c->sparse[layer / 64] |= (uint64_t)1 << layer % 64;
  return rc || !some ? rc : take_out(json, root, c);
}

static int parse_counts(const struct pen_json *json,
                        const struct pen_json_node *root,
                        struct pen_model_config *c)
{
  const struct pen_family_mixture *m = c->family->mixture;
  const char *n_key = pen_json_has(root, m->n_key_too) ? m->n_key_too : m->n_key;
  int rc = pen_config_size_parse(json, root, n_key, m->default_n, EXPERTS_MAX,
                                 &c->n_experts);
  if (!rc)
    rc = pen_config_size_parse(json, root, "num_experts_per_tok",
                               m->default_per_token, EXPERTS_MAX,
                               &c->experts_per_token);
  if (!rc && c->experts_per_token > c->n_experts)
    rc = pen_json_error(json, root, -PEN_EFORMAT,
                        "num_experts_per_tok %zu is more than %s %zu",
                        c->experts_per_token, n_key, c->n_experts);
  size_t layers = 0;
  for (size_t layer = 0; layer < c->n_layers; layer++)
    layers += pen_model_config_is_sparse(c, layer);
  if (!rc && layers * c->n_experts > ALL_EXPERTS_MAX)
    rc = pen_json_error(json, root, -PEN_EUNSUPPORTED,
                        "%zu layers of %s %zu are more than %zu experts",
                        layers, n_key, c->n_experts, ALL_EXPERTS_MAX);
  c->expert_size = c->intermediate_size;
  if (!rc && m->ffn_key)
    rc = pen_config_size_parse(json, root, m->ffn_key, m->default_ffn,
                               SIZE_MAX_FFN, &c->expert_size);
  return rc;
}

/* The loss of balance is asked for as transformers asks: output_router_logits. */
static int parse_balance(const struct pen_json *json,
                         const struct pen_json_node *root,
                         struct pen_model_config *c)
{
  bool wanted = false;
  double coef = 0.001; /* router_aux_loss_coef when absent */
  int rc = pen_json_opt_bool(json, root, "output_router_logits", &wanted);
  if (!rc)
    rc = pen_json_opt_double(json, root, "router_aux_loss_coef", &coef);
  if (!rc && !(coef >= 0 && isfinite(coef)))
    rc = pen_json_error(json, root, -PEN_EFORMAT,
                        "router_aux_loss_coef must be at least 0, is %g", coef);
  c->balance_coef = wanted ? coef : 0;
  return rc;
}

int pen_config_mixture_parse(const struct pen_json *json,
                             const struct pen_json_node *root,
                             struct pen_model_config *c)
{
  const struct pen_family_mixture *m = c->family->mixture;
  if (!m)
    return 0;
  c->normalises_experts = m->always_normalises;
  int rc = parse_layers(json, root, c);
  if (!rc)
    rc = parse_counts(json, root, c);
  if (!rc && !m->always_normalises)
    rc = pen_json_opt_bool(json, root, "norm_topk_prob",
                           &c->normalises_experts);
  return rc ? rc : parse_balance(json, root, c);
}
