/* engine_uring.h: the ring of the engine `uring`, for `auto` to try. */
#ifndef PEN_IO_ENGINE_URING_H
#define PEN_IO_ENGINE_URING_H

#include "io/engine.h"

/* -ENOSYS, -EPERM and the like: the kernel (or this build) has no io_uring for
 * us; the text says so. */
int pen_engine_uring_ring_create(const struct pen_engine *engine, size_t depth,
                                 struct pen_engine_file *const *files,
                                 size_t n_files,
                                 const struct pen_engine_region *regions,
                                 size_t n_regions,
                                 struct pen_engine_ring **ret_ring);

#endif
