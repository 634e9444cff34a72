/* profile.c: finds and reads the machine profile; puts described parts in.
 *
 * Main thread. */
#include "src/cli/profile.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "io/files.h"
#include "offload/describe.h"

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

/* What the system, and a GPU's driver and libraries, keep for themselves. */
#define SYSTEM_SHARE 16
#define DEVICE_KEPT_BYTES ((double)(1 << 30))

const char *const *pen_profile_drive_names(void)
{
  static const char *const names[PEN_MACHINE_DRIVES_MAX] = {
      "drive 1",  "drive 2",  "drive 3",  "drive 4",  "drive 5",  "drive 6",
      "drive 7",  "drive 8",  "drive 9",  "drive 10", "drive 11", "drive 12",
      "drive 13", "drive 14", "drive 15", "drive 16"};
  return names;
}

void pen_profile_settings(const struct pen_config *config,
                          const struct pen_machine *machine,
                          struct pen_machine_settings *settings)
{
  uint64_t ram = (uint64_t)machine->ram_bytes;
  struct pen_machine_parts parts = parts_of(config);
  if (ram && !settings->host_bytes && pen_machine_parts_given(&parts))
    settings->host_bytes = ram - ram / SYSTEM_SHARE;
  if (pen_machine_has_device(machine)) {
    settings->wish.unified = false;
    if (!settings->device_bytes && machine->device_bytes > DEVICE_KEPT_BYTES)
      settings->device_bytes =
          (uint64_t)(machine->device_bytes - DEVICE_KEPT_BYTES);
  }
  if (settings->n_nvme_dirs || !(parts.n_drives || parts.drive_read > 0))
    return;
  settings->nvme_dirs = pen_profile_drive_names();
  settings->n_nvme_dirs = machine->n_drives;
  settings->described_drives = true;
}
