/* engine_memory.h: the ring that ram and null share: a transfer is done when
 * it is submitted, by the file's own blocking hooks. */
#ifndef PEN_IO_ENGINE_MEMORY_H
#define PEN_IO_ENGINE_MEMORY_H

#include "io/engine.h"

int pen_engine_memory_ring_create(const struct pen_engine *engine,
                                  size_t depth,
                                  struct pen_engine_file *const *files,
                                  size_t n_files,
                                  const struct pen_engine_region *regions,
                                  size_t n_regions,
                                  struct pen_engine_ring **ret_ring);
void pen_engine_memory_ring_free(struct pen_engine_ring **ring);
int pen_engine_memory_ring_submit(struct pen_engine_ring *ring,
                                  const struct pen_engine_request *requests,
                                  size_t n);
int pen_engine_memory_ring_reap(struct pen_engine_ring *ring, size_t min,
                                size_t max,
                                struct pen_engine_completion *ret_completions);
/* Directories are not kept; renaming and removing are each engine's own. */
int pen_engine_memory_make_dirs(const struct pen_engine *engine,
                                const char *dir);
int pen_engine_memory_sync_dir(const struct pen_engine *engine,
                               const char *dir);

#endif
