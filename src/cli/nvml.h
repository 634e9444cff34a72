/* nvml.h: what NVIDIA's driver library says of its devices, where it is there.
 *
 * Main thread. */
#ifndef PEN_SRC_CLI_NVML_H
#define PEN_SRC_CLI_NVML_H

#include <stdbool.h>
#include <stddef.h>

#define PEN_NVML_DEVICES_MAX 16

/* 0 where the library does not say. */
struct pen_nvml_device {
  char name[96];
  unsigned generation, generation_max; /* PCIe, now and at most */
  unsigned width, width_max;           /* lanes */
  double watts_limit, watts_standard, watts_max;
  unsigned celsius, celsius_slow; /* slows itself down above this */
  bool slowed_by_heat, slowed_by_power;
};

struct pen_nvml {
  char driver[80];
  struct pen_nvml_device devices[PEN_NVML_DEVICES_MAX];
  size_t n_devices;
};

/* Loads the library, asks, and lets it go.  -PEN_EUNSUPPORTED with the reason
 * where it cannot be loaded or started. */
int pen_nvml_read(struct pen_nvml *ret_nvml);

#endif
