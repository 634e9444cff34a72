/* yaml_keys_none.c: the build without libyaml says so. */
#include "base/error.h"
#include "src/cli/yaml_keys.h"

int pen_yaml_keys_parse(const char *text, size_t n_bytes, const char *source,
                   int (*on_key)(void *ctx, const char *key, char *const *items,
                                 size_t n_items, bool is_list),
                   void *ctx)
{
  return pen_error_set(-PEN_EUNSUPPORTED, "%s: this penstock was built without "
                       "libyaml; write the options as JSON in a file whose "
                       "name ends in .json", source);
}
