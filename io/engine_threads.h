/* engine_threads.h: the ring of the engine `threads`, for `auto` to fall back
 * to. */
#ifndef PEN_IO_ENGINE_THREADS_H
#define PEN_IO_ENGINE_THREADS_H

#include "io/engine.h"

int pen_engine_threads_ring_create(const struct pen_engine *engine,
                                   size_t depth,
                                   struct pen_engine_file *const *files,
                                   size_t n_files,
                                   const struct pen_engine_region *regions,
                                   size_t n_regions,
                                   struct pen_engine_ring **ret_ring);

#endif
