/* config_part.c: what the files that read a config.json share.  Any thread. */
#include "src/model/config_part.h"

#include "base/error.h"

int pen_config_size_parse(const struct pen_json *json,
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
