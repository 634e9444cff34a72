/* inspect.c: tells what a path is, by what it is and how its name ends. */
#include "src/cli/inspect.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"

static bool ends_in(const char *path, const char *suffix)
{
  size_t n = strlen(path), m = strlen(suffix);
  return n > m && !strcmp(path + n - m, suffix);
}

int pen_inspect_kind(const char *path, enum pen_inspect_kind *ret_kind)
{
  struct stat st;
  bool is_safetensors = ends_in(path, ".safetensors");
  bool is_json = ends_in(path, ".json");
  if (stat(path, &st)) {
    if (errno != ENOENT || is_safetensors || is_json || !strchr(path, '/'))
      return pen_error_set(-errno, "cannot look into %s", path);
    *ret_kind = PEN_INSPECT_MODEL; /* its open says what hub ids need */
    return 0;
  }
  *ret_kind = S_ISDIR(st.st_mode) ? PEN_INSPECT_MODEL
              : is_safetensors    ? PEN_INSPECT_SAFETENSORS
              : is_json           ? PEN_INSPECT_CONFIG
                                  : PEN_INSPECT_TOKENS;
  return 0;
}
