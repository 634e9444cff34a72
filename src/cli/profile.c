/* profile.c: finds and reads the machine profile; puts described parts in.
 *
 * Main thread. */
#include "src/cli/profile.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "io/files.h"
#include "offload/describe.h"
#include "src/train/drives.h"

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

static struct pen_machine_parts parts_of(const struct pen_config *c)
{
  return (struct pen_machine_parts){.gpu = c->gpu,
                                    .gpu_flops = c->gpu_flops,
                                    .pcie = c->pcie,
                                    .ram_bytes = c->ram,
                                    .cores = c->cores,
                                    .memory_rate = (double)c->memory_bandwidth,
                                    .n_drives = c->drives,
                                    .drive_read = (double)c->drive_read,
                                    .drive_write = (double)c->drive_write};
}

int pen_profile_described(const struct pen_config *config, bool *ret_found,
                          struct pen_machine *ret_machine)
{
  struct pen_machine_parts parts = parts_of(config);
  int rc = pen_profile_load(config->profile, ret_found, ret_machine);
  if (rc < 0 || !pen_machine_parts_given(&parts))
    return rc;
  if (!*ret_found)
    pen_machine_desktop(ret_machine);
  *ret_found = true;
  return pen_machine_describe(&parts, ret_machine);
}

void pen_profile_settings(const struct pen_config *config,
                          const struct pen_machine *machine,
                          struct pen_machine_settings *settings)
{
  struct pen_machine_parts parts = parts_of(config);
  if (pen_machine_parts_given(&parts)) {
    settings->described_cores = machine->cores;
    if (!settings->host_bytes)
      settings->host_bytes = pen_machine_free_ram(machine);
  }
  if (pen_machine_has_device(machine)) {
    settings->wish.unified = false;
    if (!settings->device_bytes)
      settings->device_bytes = pen_machine_free_device(machine);
  }
  if (settings->n_nvme_dirs || !(parts.n_drives || parts.drive_read > 0))
    return;
  settings->nvme_dirs = pen_drives_names();
  settings->n_nvme_dirs = machine->n_drives;
  settings->described_drives = true;
}
