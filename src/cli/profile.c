/* profile.c: finds and reads the machine profile.  Main thread. */
#include "src/cli/profile.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "io/files.h"

int pen_profile_path(const char *wish, char *ret_path, size_t bytes)
{
  const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
  int n;
  if (wish)
    n = snprintf(ret_path, bytes, "%s", wish);
  else if (config && *config)
    n = snprintf(ret_path, bytes, "%s/penstock/machine.json", config);
  else if (home && *home)
    n = snprintf(ret_path, bytes, "%s/.config/penstock/machine.json", home);
  else
    return pen_error_set(PEN_EUSAGE, "HOME is not set; give --profile FILE");
  if (n < 0 || (size_t)n >= bytes)
    return pen_error_set(PEN_EUSAGE, "the path of the machine profile is "
                         "longer than %zu bytes", bytes - 1);
  return 0;
}

int pen_profile_load(const char *wish, bool *ret_found,
                     struct pen_machine *ret_machine)
{
  char path[4096];
  int rc = pen_profile_path(wish, path, sizeof path);
  if (rc < 0 && !wish) {
    pen_error_clear();
    *ret_found = false;
    return 0;
  }
  if (rc < 0)
    return rc;
  if (!wish && !pen_files_exists(path)) {
    *ret_found = false;
    return 0;
  }
  rc = pen_machine_load(path, ret_machine);
  *ret_found = rc == 0;
  return rc;
}
