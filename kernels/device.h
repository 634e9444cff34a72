/* device.h: the table of devices: where a tier's memory comes from, how bytes
 * cross to it, and what orders its work.  A backend is one row.
 *
 * Functions return 0 or a negative code with its text set; any thread may call
 * them, but each queue belongs to one thread at a time. */
#ifndef PEN_KERNELS_DEVICE_H
#define PEN_KERNELS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a device does in order.  Operations (ops.h) and `zero` go to the first,
 * copies to the others. */
enum pen_device_queue {
  PEN_DEVICE_COMPUTE,
  PEN_DEVICE_UPLOAD,
  PEN_DEVICE_DOWNLOAD,
  PEN_DEVICE_QUEUES
};

/* Marks that a queue has; one may be set again once it was reached. */
#define PEN_DEVICE_MARKS ((uint32_t)16)

struct pen_device;

/* How a device whose calls return before their work is done is waited for. */
struct pen_device_marks {
  /* Work that is put into `queue` from here on is timed by mark `number`. */
  int (*begin)(const struct pen_device *device, enum pen_device_queue queue,
               uint32_t number);
  /* Mark `number` is reached when all that is in `queue` now is done. */
  int (*set)(const struct pen_device *device, enum pen_device_queue queue,
             uint32_t number);
  /* What is put into `queue` from here on starts after mark `number` of
   * `other`, as it is set now.  Does not block the caller. */
  int (*wait)(const struct pen_device *device, enum pen_device_queue queue,
              enum pen_device_queue other, uint32_t number);
  /* Blocks the caller until the mark is reached; how long its work took.  The
   * failure of any work before it, as far as the device tells. */
  int (*sync)(const struct pen_device *device, enum pen_device_queue queue,
              uint32_t number, uint64_t *ret_busy_ns);
};

struct pen_device {
  const char *name;
  bool unified; /* compute reads the host tier itself; no arena, no copies */
  void *state;  /* the backend's own */
  /* One arena of `bytes`, page aligned and backed by memory before it returns;
   * -PEN_ENOFIT or -ENOMEM when there is less.  free takes what alloc gave, and
   * NULL. */
  int (*alloc)(const struct pen_device *device, size_t bytes, void **ret_base);
  void (*free)(const struct pen_device *device, void **base, size_t bytes);
  /* Prepares host memory for copies, once, until unpin; as much of it as the
   * system allows, from its beginning on: *ret_pinned bytes.  NULL: nothing to
   * prepare. */
  int (*pin)(const struct pen_device *device, void *base, size_t bytes,
             size_t *ret_pinned);
  void (*unpin)(const struct pen_device *device);
  /* One copy across the link, in the upload or the download queue. */
  int (*upload)(const struct pen_device *device, void *to, const void *host,
                size_t bytes);
  int (*download)(const struct pen_device *device, void *host,
                  const void *from, size_t bytes);
  /* Bytes of the device set to 0, in the compute queue. */
  int (*zero)(const struct pen_device *device, void *at, size_t bytes);
  /* NULL: every call above, and every operation, returns when it is done. */
  const struct pen_device_marks *marks;
};

/* The CPU with one memory, and the CPU with a device memory of its own (real
 * copies on their lanes: every path of a discrete device, without one). */
extern const struct pen_device pen_device_host_unified;
extern const struct pen_device pen_device_host_discrete;

/* Host memory for an arena: as alloc above, with huge pages asked for. */
int pen_device_host_alloc(size_t bytes, void **ret_base);
/* Its two halves: address space alone, and memory for a part of it, which then
 * lies near the calling thread. */
int pen_device_host_map(size_t bytes, void **ret_base);
int pen_device_host_back(void *part, size_t bytes);
void pen_device_host_free(void **base, size_t bytes);

#endif
