/* config_window.c: which layers attend in a sliding window.
 *
 * Any thread.  Disadvantage: every layer that slides has the same window, as in
 * all published models of these families. */
#include <string.h>

#include "base/error.h"
#include "src/model/config_part.h"

static void set_slides(struct pen_model_config *c, size_t layer)
{
  c->slides[layer / 64] |= (uint64_t)1 << layer % 64;
}

/* A word a layer; an unknown one is refused. */
static int parse_layer_types(const struct pen_json *json,
                             const struct pen_json_node *root,
                             struct pen_model_config *c)
{
  const struct pen_json_node *types;
  int rc = pen_json_get_array(json, root, "layer_types", &types);
  if (!rc && pen_json_size(types) != c->n_layers)
    rc = pen_json_error(json, types, -PEN_EFORMAT,
                        "%zu types for num_hidden_layers %zu",
                        pen_json_size(types), c->n_layers);
  for (size_t i = 0; !rc && i < c->n_layers; i++) {
    const char *type;
    rc = pen_json_as_string(json, pen_json_item(types, i), &type);
    if (!rc && !strcmp(type, "sliding_attention"))
      set_slides(c, i);
    else if (!rc && strcmp(type, "full_attention"))
      rc = pen_json_error(json, types, -PEN_EUNSUPPORTED,
                          "\"%.40s\" is not supported", type);
  }
  return rc;
}

/* The family's own pattern: the first layer that slides, and each how
 * manieth. */
static int parse_pattern(const struct pen_json *json,
                         const struct pen_json_node *root,
                         struct pen_model_config *c)
{
  size_t first = 0;
  size_t stride = c->family->window == PEN_WINDOW_EVEN_LAYERS ? 2 : 1;
  if (c->family->window == PEN_WINDOW_OPT_IN) {
    first = 28; /* max_window_layers when absent */
    int rc = pen_json_opt_size(json, root, "max_window_layers", &first);
    if (rc)
      return rc;
  }
  for (size_t layer = first; layer < c->n_layers; layer += stride)
    set_slides(c, layer);
  return 0;
}

/* Is sliding_window looked at? */
static int parse_use(const struct pen_json *json,
                     const struct pen_json_node *root,
                     const struct pen_model_config *c, bool *ret_use)
{
  const struct pen_json_node *window =
      pen_json_member(root, "sliding_window");
  bool is_null = window ? pen_json_type(window) == PEN_JSON_NULL
                        : !c->family->default_window;
  bool opt_in = c->family->window == PEN_WINDOW_OPT_IN ||
                c->family->window == PEN_WINDOW_OPT_IN_ALL_LAYERS;
  bool use = !opt_in;
  int rc = pen_json_opt_bool(json, root, "use_sliding_window", &use);
  if (!opt_in)
    use = c->family->window != PEN_WINDOW_NEVER;
  if (!rc)
    *ret_use = use && !is_null;
  return rc;
}

int pen_config_window_parse(const struct pen_json *json,
                            const struct pen_json_node *root,
                            struct pen_model_config *c)
{
  bool use = false, any = false;
  int rc = parse_use(json, root, c, &use);
  if (rc || !use)
    return rc;
  bool by_type = (c->family->window == PEN_WINDOW_EVEN_LAYERS ||
                  c->family->window == PEN_WINDOW_OPT_IN) &&
                 pen_json_has(root, "layer_types");
  rc = by_type ? parse_layer_types(json, root, c)
               : parse_pattern(json, root, c);
  for (size_t i = 0; i < sizeof c->slides / sizeof c->slides[0]; i++)
    any = any || c->slides[i];
  if (rc || !any)
    return rc;
  return pen_config_size_parse(json, root, "sliding_window",
                               c->family->default_window, INT32_MAX,
                               &c->sliding_window);
}
