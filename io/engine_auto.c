/* engine_auto.c: io_uring where the kernel permits it, else threads.
 *
 * Its files are the real ones both share; the ring it hands out is of the
 * engine it chose, with the reason in the note.  Any thread.  Disadvantage: it
 * tries again for every ring. */
#include <errno.h>
#include <stdio.h>

#include "base/error.h"
#include "io/engine_posix.h"
#include "io/engine_threads.h"
#include "io/engine_uring.h"

static int auto_ring_create(const struct pen_engine *engine, size_t depth,
                            struct pen_engine_file *const *files,
                            size_t n_files,
                            const struct pen_engine_region *regions,
                            size_t n_regions,
                            struct pen_engine_ring **ret_ring)
{
  /* A failure that already stands is not ours to forget. */
  struct pen_error before, why;
  pen_error_take(&before);
  int code = pen_engine_uring_ring_create(engine, depth, files, n_files,
                                          regions, n_regions, ret_ring);
  pen_error_take(&why);
  if (code) {
    code = pen_engine_threads_ring_create(engine, depth, files, n_files,
                                          regions, n_regions, ret_ring);
    if (!code)
      snprintf((*ret_ring)->note, sizeof (*ret_ring)->note,
               "auto: threads, since %.200s", why.text);
  }
  if (before.code)
    pen_error_put(&before);
  return code;
}

/* Rings are of the engine that was chosen, so the other ring hooks of this row
 * are never reached: callers go through ring->engine. */
const struct pen_engine pen_engine_auto = {
    .name = "auto",
    .keeps = true,
    .drive = true,
    PEN_ENGINE_POSIX_FILES,
    .ring_create = auto_ring_create,
};
