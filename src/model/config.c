/* config.c: what is asked of a config that was read.
 *
 * Pure; any thread. */
#include "src/model/config.h"

#include "base/error.h"

size_t pen_model_config_window(const struct pen_model_config *config,
                               size_t layer)
{
  bool slides = config->slides[layer / 64] >> layer % 64 & 1;
  return slides ? config->sliding_window : 0;
}

bool pen_model_config_is_sparse(const struct pen_model_config *config,
                                size_t layer)
{
  return config->sparse[layer / 64] >> layer % 64 & 1;
}

int pen_model_config_check_length(const struct pen_model_config *config,
                                  size_t max_length)
{
  bool is_learned = config->family->positions == PEN_POSITIONS_LEARNED;
  if (max_length <= config->max_positions)
    return 0;
  if (is_learned)
    return pen_error_set(-PEN_EUNSUPPORTED,
                         "the model has learned %zu positions and sequences "
                         "may have %zu tokens; use --max-length %zu or less",
                         config->max_positions, max_length,
                         config->max_positions);
  if (config->rope.type == PEN_ROPE_DYNAMIC)
    return pen_error_set(-PEN_EUNSUPPORTED,
                         "dynamic rope scaling changes the model beyond %zu "
                         "tokens, which is not supported, and sequences may "
                         "have %zu; use --max-length %zu or less",
                         config->max_positions, max_length,
                         config->max_positions);
  return 0;
}
