/* backend.c: finds and loads the plugin of a backend.
 *
 * Main thread, before others work.  A plugin is never unloaded: vendors'
 * libraries do not survive that.  Disadvantage: one plugin's backend may be open
 * at a time. */
#include "kernels/backend.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

/* Without this library a plugin's own ones, hundreds of megabytes, would be
 * loaded only to find no device.  Where a folder was named it is trusted. */
static const struct {
  const char *backend, *library, *what;
} drivers[] = {{"cuda", "libcuda.so.1", "NVIDIA driver"}};

static const struct pen_backend_plugin *open_plugin;

static int check_driver(const char *name)
{
  for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++) {
    if (strcmp(drivers[i].backend, name) != 0)
      continue;
    void *library = dlopen(drivers[i].library, RTLD_LAZY | RTLD_NODELETE);
    if (!library)
      return pen_error_set(PEN_EUNSUPPORTED, "no %s here (%s)",
                           drivers[i].what, drivers[i].library);
  }
  return 0;
}

static void *load_from(const char *folder, const char *name)
{
  char path[PATH_MAX + 64];
  snprintf(path, sizeof path, "%s/penstock-%s.so", folder, name);
  if (access(path, R_OK) < 0)
    return NULL;
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) {
    const char *why = dlerror();
    pen_error_set(PEN_EUNSUPPORTED, "cannot load %s: %s", path,
                  why ? why : "no reason given");
  }
  return handle;
}

static void program_folder(char folder[PATH_MAX])
{
  ssize_t n = readlink("/proc/self/exe", folder, PATH_MAX - 1);
  folder[n > 0 ? n : 0] = '\0';
  char *slash = strrchr(folder, '/');
  if (slash)
    *slash = '\0';
}

static int load(const char *name, const struct pen_backend_plugin **ret_plugin)
{
  const char *named = getenv("PEN_PLUGIN_DIR");
  char folder[PATH_MAX];
  void *handle;
  int rc = named ? 0 : check_driver(name);
  if (rc < 0)
    return rc;
  if (named) {
    handle = load_from(named, name);
  } else {
    program_folder(folder);
    handle = load_from(folder, name);
    if (!handle && !pen_error_standing())
      handle = load_from(PEN_PLUGIN_FOLDER, name);
  }
  if (!handle)
    return pen_error_set(PEN_EUNSUPPORTED, "there is no penstock-%s.so in %s",
                         name, named ? named : folder);
  const struct pen_backend_plugin *(*entry)(void);
  *(void **)&entry = dlsym(handle, PEN_BACKEND_SYMBOL);
  const struct pen_backend_plugin *plugin = entry ? entry() : NULL;
  if (!plugin || plugin->abi != PEN_BACKEND_ABI)
    return pen_error_set(PEN_EUNSUPPORTED,
                         "penstock-%s.so is of another version of penstock "
                         "(interface %u, not %d); install both anew",
                         name, plugin ? plugin->abi : 0, PEN_BACKEND_ABI);
  *ret_plugin = plugin;
  return 0;
}

int pen_backend_open(const char *name, uint64_t number,
                     struct pen_backend **ret_backend)
{
  static const struct pen_backend_host host = {pen_error_set};
  const struct pen_backend_plugin *plugin;
  int rc = load(name, &plugin);
  if (rc == 0)
    rc = plugin->open(&host, number, ret_backend);
  if (rc == 0)
    open_plugin = plugin;
  return rc;
}

void pen_backend_close(struct pen_backend **backend)
{
  if (*backend)
    open_plugin->close(backend);
}
