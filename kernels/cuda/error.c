/* error.c: how the plugin tells failures: by the host's own way for calls that
 * return a code, and kept with the stream for operations that return nothing.
 *
 * Any thread; the host's way is set once, by opening.  Disadvantage: one backend
 * per process, since that way is kept in one place. */
#include <stdio.h>

#include "base/error.h"
#include "kernels/cuda/state.h"

int (*pen_cuda_error_set)(int code, const char *format, ...);

void pen_cuda_stream_fail(struct pen_stream *s, const char *what,
                          const char *why)
{
  if (s->error.code)
    return;
  s->error.code = -PEN_EDEVICE;
  snprintf(s->error.text, sizeof s->error.text, "CUDA: %s: %s", what, why);
}
