/* doctor_gpu.c: NVIDIA devices: whether the backend can use the first one, and
 * what holds each of them back.
 *
 * Links, power and heat come from the driver's library (nvml.h); where that is
 * not there, links from /sys.  Main thread.  Disadvantage: a device at rest
 * takes its link down, so a low generation alone is only told. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "kernels/backend.h"
#include "src/bench/disk.h"
#include "src/cli/doctor.h"
#include "src/cli/nvml.h"

#define NEAR_LIMIT 3 /* degrees */

static void see_backend(struct pen_doctor *d)
{
  char line[256] = "";
  struct pen_backend *backend = NULL;
  bool driver = pen_doctor_line(d->proc, "driver/nvidia/version", line,
                                sizeof line);
  if (pen_backend_open("cuda", 0, &backend) == 0)
    pen_doctor_add(d, "GPU", PEN_DOCTOR_OK, NULL, "%s", backend->about);
  else
    pen_doctor_add(d, "GPU", driver ? PEN_DOCTOR_DEGRADED : PEN_DOCTOR_OK,
                   "until then the CPU computes", "%s%s", pen_error_text(),
                   driver ? "" : ": the CPU computes");
  pen_error_clear();
  pen_backend_close(&backend);
}

/* ---- by the driver's library ---- */

static void see_link(struct pen_doctor *d, const struct pen_nvml_device *g)
{
  bool narrow = g->width && g->width < g->width_max;
  bool slow = g->generation && g->generation < g->generation_max;
  if (!g->width_max && !g->generation_max)
    return;
  pen_doctor_add(d, "GPU link", narrow ? PEN_DOCTOR_DEGRADED : PEN_DOCTOR_OK,
                 "put the card into a slot with as many lanes, or seat it anew; "
                 "offloading lives by this link",
                 "%s: PCIe %u.0 x%u now, %u.0 x%u at most%s", g->name,
                 g->generation, g->width, g->generation_max, g->width_max,
                 slow ? " (at rest a link goes down; look again under load)" : "");
}

static void see_power(struct pen_doctor *d, const struct pen_nvml_device *g)
{
  char most[48] = "";
  if (g->watts_limit <= 0)
    return;
  bool low = g->watts_limit < g->watts_standard || g->slowed_by_power;
  if (g->watts_max > 0)
    snprintf(most, sizeof most, ", %.0f W at most", g->watts_max);
  pen_doctor_add(d, "GPU power", low ? PEN_DOCTOR_DEGRADED : PEN_DOCTOR_OK,
                 "raise it with nvidia-smi -pl, if that is wanted",
                 "%s: limited to %.0f W, %.0f W by default%s%s", g->name,
                 g->watts_limit, g->watts_standard, most,
                 g->slowed_by_power ? "; its power supply slows it down now" : "");
}

static void see_heat(struct pen_doctor *d, const struct pen_nvml_device *g)
{
  char limit[64] = "";
  if (!g->celsius)
    return;
  bool hot = g->slowed_by_heat ||
             (g->celsius_slow && g->celsius + NEAR_LIMIT >= g->celsius_slow);
  if (g->celsius_slow)
    snprintf(limit, sizeof limit, ", slows down above %u", g->celsius_slow);
  pen_doctor_add(d, "GPU heat", hot ? PEN_DOCTOR_DEGRADED : PEN_DOCTOR_OK,
                 "give it air", "%s: %u degrees C%s%s", g->name, g->celsius,
                 limit, g->slowed_by_heat ? "; heat slows it down now" : "");
}

/* ---- by /sys ---- */

static bool is_nvidia_gpu(const char *folder)
{
  char vendor[16], class[16];
  return pen_disk_attribute(folder, "vendor", vendor, sizeof vendor) &&
         pen_disk_attribute(folder, "class", class, sizeof class) &&
         strcmp(vendor, "0x10de") == 0 && strncmp(class, "0x03", 4) == 0;
}

static void see_pci_link(struct pen_doctor *d, const char *folder,
                         const char *address)
{
  struct pen_disk_link link;
  char text[PEN_DISK_LINK_TEXT_BYTES];
  if (!pen_disk_link(folder, &link))
    return;
  pen_disk_link_text(&link, text);
  bool narrow = link.width < link.width_max;
  pen_doctor_add(d, "GPU link", narrow ? PEN_DOCTOR_DEGRADED : PEN_DOCTOR_OK,
                 "put the card into a slot with as many lanes, or seat it anew; "
                 "offloading lives by this link",
                 "NVIDIA device %s: %s%s", address, text,
                 narrow || pen_disk_link_is_full(&link)
                     ? ""
                     : " (at rest a link goes down; look again under load)");
}

/* Whether there is a device at all; its links, if they are wanted. */
static bool see_pci(struct pen_doctor *d, bool links)
{
  char folder[PATH_MAX];
  bool any = false;
  snprintf(folder, sizeof folder, "%.3900s/bus/pci/devices", d->sys);
  DIR *dir = opendir(folder);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    char device[PATH_MAX + 256];
    snprintf(device, sizeof device, "%s/%s", folder, e->d_name);
    if (e->d_name[0] == '.' || !is_nvidia_gpu(device))
      continue;
    any = true;
    if (links)
      see_pci_link(d, device, e->d_name);
  }
  if (dir)
    closedir(dir);
  return any;
}

void pen_doctor_gpu(struct pen_doctor *doctor)
{
  struct pen_nvml nvml;
  see_backend(doctor);
  if (pen_nvml_read(&nvml) < 0) {
    if (see_pci(doctor, true))
      pen_doctor_add(doctor, "NVML", PEN_DOCTOR_DEGRADED,
                     "install the driver's libraries, or let the container have "
                     "them (nvidia-container-toolkit)",
                     "%s; power and heat of the GPU are not known",
                     pen_error_text());
    pen_error_clear();
    return;
  }
  pen_doctor_add(doctor, "NVML", PEN_DOCTOR_OK, NULL,
                 "driver %s, %zu device%s", nvml.driver, nvml.n_devices,
                 nvml.n_devices == 1 ? "" : "s");
  for (size_t i = 0; i < nvml.n_devices; i++) {
    see_link(doctor, &nvml.devices[i]);
    see_power(doctor, &nvml.devices[i]);
    see_heat(doctor, &nvml.devices[i]);
  }
}
