/* config_plain.c: refuses a config.json that asks for arithmetic we do not do.
 *
 * Any thread.  Disadvantage: keys that no published model uses to change
 * arithmetic are passed over; the lists of those that do have to be kept. */
#include "base/error.h"
#include "src/model/config_part.h"

/* Supported with this value only. */
static const struct {
  const char *key;
  double plain;
} numbers[] = {{"embedding_multiplier", 1},
               {"residual_multiplier", 1},
               {"logits_scaling", 1},
               {"router_jitter_noise", 0}};

static const char *const dropouts[] = {"attention_dropout", "attn_pdrop",
                                       "embd_pdrop", "resid_pdrop"};

static const struct {
  const char *key;
  bool plain;
} flags[] = {{"rope_interleaved", false},
             {"use_mrope", false},
             {"scale_attn_weights", true},
             {"scale_attn_by_inverse_layer_idx", false},
             {"add_cross_attention", false},
             {"use_bidirectional_attention", false}};

static int check_number(const struct pen_json *json,
                        const struct pen_json_node *root, const char *key,
                        double plain)
{
  double value = plain;
  int rc = pen_json_opt_double(json, root, key, &value);
  if (rc || value == plain)
    return rc;
  return pen_json_error(json, root, -PEN_EUNSUPPORTED,
                        "%s %g is not supported, only %g", key, value, plain);
}

static int check_flag(const struct pen_json *json,
                      const struct pen_json_node *root, const char *key,
                      bool plain)
{
  bool value = plain;
  int rc = pen_json_opt_bool(json, root, key, &value);
  if (rc || value == plain)
    return rc;
  return pen_json_error(json, root, -PEN_EUNSUPPORTED, "%s %s is not supported",
                        key, value ? "true" : "false");
}

int pen_config_plain_check(const struct pen_json *json,
                           const struct pen_json_node *root,
                           const struct pen_model_family *family)
{
  int rc = 0;
  for (size_t i = 0; !rc && i < sizeof numbers / sizeof numbers[0]; i++)
    rc = check_number(json, root, numbers[i].key, numbers[i].plain);
  for (size_t i = 0; !rc && !family->passes_over_dropout &&
                     i < sizeof dropouts / sizeof dropouts[0]; i++)
    rc = check_number(json, root, dropouts[i], 0);
  for (size_t i = 0; !rc && i < sizeof flags / sizeof flags[0]; i++)
    rc = check_flag(json, root, flags[i].key, flags[i].plain);
  if (!rc && pen_json_has(root, "quantization_config"))
    rc = pen_json_error(json, root, -PEN_EUNSUPPORTED,
                        "quantization_config is not supported; use the model's "
                        "unquantized weights");
  return rc;
}
