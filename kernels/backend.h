/* backend.h: what computes: a device and tables of operations for it.  The host
 * is one; others are plugins, shared objects that are loaded when they are
 * asked for, so that one program runs with and without a vendor's libraries. */
#ifndef PEN_KERNELS_BACKEND_H
#define PEN_KERNELS_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/device.h"
#include "kernels/ops.h"

/* Raised whenever this file, device.h, ops.h, shapes.h, gemm.h or stream.h
 * change. */
#define PEN_BACKEND_ABI 6

#define PEN_BACKEND_CHOICE_BYTES ((size_t)320)

struct pen_backend;

/* Which algorithm each shape of product takes, where that is not a function of
 * the shape alone.  A choice is made when a product first meets its shape, on
 * the thread that asks for it, and stays; these are called on no other. */
struct pen_backend_choices {
  size_t (*count)(const struct pen_backend *backend);
  /* Choice `number` as a line of text, without its end. */
  void (*write)(const struct pen_backend *backend, size_t number,
                char ret_line[PEN_BACKEND_CHOICE_BYTES]);
  /* Makes the choice that `write` gave such a line for.  -PEN_EFORMAT; or
   * -PEN_EMISMATCH where this device or library does not offer it. */
  int (*read)(struct pen_backend *backend, const char *line);
};

/* A backend that is open; its plugin owns it. */
struct pen_backend {
  const char *name;
  char about[256]; /* one line: which device, how much memory, which versions */
  const struct pen_device *device;
  const struct pen_ops *ops[PEN_ELEM_F32 + 1]; /* by enum pen_elem */
  void *stream_device; /* for pen_stream.device */
  /* Who multiplies, and what else decides its bits; as of a product library. */
  char products[32], products_variant[64];
  const struct pen_backend_choices *choices; /* NULL: there are none to make */
  /* From now on fp32 operands of products are rounded to TF32 first; told in
   * products_variant.  Before the first product.  NULL: there is no TF32. */
  void (*allow_tf32)(struct pen_backend *backend);
  uint64_t device_bytes;    /* free for a run; workspace aside */
  uint64_t workspace_bytes; /* of the products, which alloc takes as well */
  uint64_t host_bytes; /* that its libraries take of RAM, about */
};

/* What a plugin may call. */
struct pen_backend_host {
  int (*error_set)(int code, const char *format, ...)
      __attribute__((format(printf, 2, 3)));
};

/* What a plugin gives: the one symbol it exports is PEN_BACKEND_SYMBOL, a
 * function without arguments that returns this. */
struct pen_backend_plugin {
  uint32_t abi;
  const char *name;
  /* Opens device `number` with its queues; takes no arena yet.
   * -PEN_EUNSUPPORTED: there is none, and why; -PEN_ENOFIT: no memory for the
   * least of it. */
  int (*open)(const struct pen_backend_host *host, uint64_t number,
              struct pen_backend **ret_backend);
  /* NULL is fine; sets NULL. */
  void (*close)(struct pen_backend **backend);
};
#define PEN_BACKEND_SYMBOL "pen_backend_plugin"

/* Opens `name` ("cuda"): loads penstock-NAME.so from $PEN_PLUGIN_DIR if that is
 * set, else from beside the program, else from the installed library folder.
 * -PEN_EUNSUPPORTED with the reason in one line where it cannot be used here.
 * A plugin once loaded stays.  Caller owns *ret_backend. */
int pen_backend_open(const char *name, uint64_t number,
                     struct pen_backend **ret_backend);
/* NULL is fine; sets NULL. */
void pen_backend_close(struct pen_backend **backend);

#endif
