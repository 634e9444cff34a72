/* engine_uring_absent.c: the engine `uring` of a build without liburing: every
 * ring is refused, so that `auto` takes threads and says why.  Any thread.
 * Disadvantage: it looks like an engine until a ring is asked for. */
#include <errno.h>

#include "base/error.h"
#include "io/engine_posix.h"
#include "io/engine_uring.h"

int pen_engine_uring_ring_create(const struct pen_engine *engine, size_t depth,
                                 struct pen_engine_file *const *files,
                                 size_t n_files,
                                 const struct pen_engine_region *regions,
                                 size_t n_regions,
                                 struct pen_engine_ring **ret_ring)
{
  return pen_error_set(-ENOSYS, "this build has no io_uring (liburing-dev was "
                                "missing)");
}

const struct pen_engine pen_engine_uring = {
    .name = "uring",
    .keeps = true,
    .drive = true,
    .absent = true,
    PEN_ENGINE_POSIX_FILES,
    .ring_create = pen_engine_uring_ring_create,
};
