/* device.c: the CPU as a device, with one memory or with two.
 *
 * Arenas are anonymous mappings, filled page by page at once: a run that is too
 * large for the machine ends here and not in the middle of a step.
 * Disadvantage: over-committed containers may still kill instead of refuse,
 * which is why the plan is held against the limits before. */
#include "kernels/device.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"

int pen_device_host_map(size_t bytes, void **ret_base)
{
  if (bytes == 0) {
    *ret_base = NULL;
    return 0;
  }
  void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED)
    return pen_error_set(-errno, "cannot take %zu bytes of memory", bytes);
  madvise(base, bytes, MADV_HUGEPAGE); /* a wish; refusal costs only speed */
  *ret_base = base;
  return 0;
}

int pen_device_host_back(void *part, size_t bytes)
{
  if (bytes == 0 || madvise(part, bytes, MADV_POPULATE_WRITE) == 0)
    return 0;
  if (errno != EINVAL)
    return pen_error_set(-errno, "cannot back %zu bytes with memory", bytes);
  memset(part, 0, bytes); /* a kernel before 5.14 */
  return 0;
}

int pen_device_host_alloc(size_t bytes, void **ret_base)
{
  void *base = NULL;
  int rc = pen_device_host_map(bytes, &base);
  if (rc == 0)
    rc = pen_device_host_back(base, bytes);
  if (rc < 0)
    pen_device_host_free(&base, bytes);
  else
    *ret_base = base;
  return rc;
}

void pen_device_host_free(void **base, size_t bytes)
{
  if (*base)
    munmap(*base, bytes);
  *base = NULL;
}

static int alloc(const struct pen_device *device, size_t bytes, void **ret_base)
{
  (void)device;
  return pen_device_host_alloc(bytes, ret_base);
}

static void release(const struct pen_device *device, void **base, size_t bytes)
{
  (void)device;
  pen_device_host_free(base, bytes);
}

static int copy(const struct pen_device *device, void *to, const void *from,
                size_t bytes)
{
  (void)device;
  memcpy(to, from, bytes);
  return 0;
}

static int zero(const struct pen_device *device, void *at, size_t bytes)
{
  (void)device;
  memset(at, 0, bytes);
  return 0;
}

const struct pen_device pen_device_host_unified = {
    .name = "host",
    .unified = true,
    .alloc = alloc,
    .free = release,
    .upload = copy,
    .download = copy,
    .zero = zero,
};

const struct pen_device pen_device_host_discrete = {
    .name = "host, discrete memory",
    .alloc = alloc,
    .free = release,
    .upload = copy,
    .download = copy,
    .zero = zero,
};
