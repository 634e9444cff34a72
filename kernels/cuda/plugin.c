/* plugin.c: what penstock-cuda.so exports: one function that gives one table.
 *
 * Main thread.  Disadvantage: one backend per process (error.c). */
#include <stdlib.h>

#include "base/error.h"
#include "kernels/cuda/state.h"

static void close_backend(struct pen_backend **backend)
{
  if (!*backend)
    return;
  struct pen_cuda *cuda = (*backend)->stream_device;
  pen_cuda_products_close(cuda);
  pen_cuda_choices_close(cuda);
  pen_cuda_device_close(cuda);
  free(cuda);
  *backend = NULL;
}

static int open_backend(const struct pen_backend_host *host, uint64_t number,
                        struct pen_backend **ret_backend)
{
  pen_cuda_error_set = host->error_set;
  struct pen_cuda *cuda = calloc(1, sizeof *cuda);
  if (!cuda)
    return pen_cuda_error_set(PEN_ENOFIT, "no memory for a backend");
  struct pen_backend *backend = &cuda->backend;
  backend->name = "cuda";
  backend->ops[PEN_ELEM_BF16] = &pen_cuda_ops_bf16;
  backend->ops[PEN_ELEM_F32] = &pen_cuda_ops_f32;
  backend->stream_device = cuda;
  int rc = pen_cuda_device_open(cuda, number);
  if (rc == 0)
    rc = pen_cuda_choices_open(cuda);
  if (rc == 0)
    rc = pen_cuda_products_open(cuda);
  if (rc == 0)
    rc = pen_cuda_device_describe(cuda);
  if (rc < 0)
    close_backend(&backend);
  else
    *ret_backend = backend;
  return rc;
}

__attribute__((visibility("default"))) const struct pen_backend_plugin *
pen_backend_plugin(void);

const struct pen_backend_plugin *pen_backend_plugin(void)
{
  static const struct pen_backend_plugin plugin = {
      .abi = PEN_BACKEND_ABI, .name = "cuda", .open = open_backend,
      .close = close_backend};
  return &plugin;
}
