/* device.h: the table of devices: where a tier's memory comes from and how bytes
 * cross to it.  A backend is one row. */
#ifndef PEN_OFFLOAD_DEVICE_H
#define PEN_OFFLOAD_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

struct pen_device {
  const char *name;
  bool unified; /* compute reads the host tier itself; no arena, no copies */
  /* One arena of `bytes`, page aligned and backed by memory before it returns;
   * -ENOMEM when there is less.  free takes what alloc gave, and NULL. */
  int (*alloc)(size_t bytes, void **ret_base);
  void (*free)(void **base, size_t bytes);
  /* One copy across the link, on the upload or download lane's thread. */
  int (*upload)(void *device, const void *host, size_t bytes);
  int (*download)(void *host, const void *device, size_t bytes);
};

/* The CPU with one memory, and the CPU with a device memory of its own (real
 * copies on their lanes: every path of a discrete device, without one). */
extern const struct pen_device pen_device_host_unified;
extern const struct pen_device pen_device_host_discrete;

/* Host memory for an arena: as alloc above, with huge pages asked for. */
int pen_device_host_alloc(size_t bytes, void **ret_base);
void pen_device_host_free(void **base, size_t bytes);

#endif
