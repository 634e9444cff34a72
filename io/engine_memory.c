/* engine_memory.c: the ring that ram and null share.
 *
 * Invariant: a transfer is over when submit returns; only its completion
 * waits.  Threads: the ring's owner.  Disadvantage: the copying is done by the
 * submitting thread. */
#include "io/engine_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct memory_ring {
  struct pen_engine_ring base;
  struct pen_engine_file **files;
  struct pen_engine_completion *done; /* [depth], first in first out */
  size_t depth, head, n_done;
};

void pen_engine_memory_ring_free(struct pen_engine_ring **base)
{
  struct memory_ring *ring = (struct memory_ring *)*base;
  if (!ring)
    return;
  free(ring->files);
  free(ring->done);
  free(ring);
  *base = NULL;
}

int pen_engine_memory_ring_create(const struct pen_engine *engine,
                                  size_t depth,
                                  struct pen_engine_file *const *files,
                                  size_t n_files,
                                  const struct pen_engine_region *regions,
                                  size_t n_regions,
                                  struct pen_engine_ring **ret_ring)
{
  struct memory_ring *ring = calloc(1, sizeof *ring);
  if (!ring)
    return pen_error_set(-ENOMEM, "cannot make an I/O ring");
  struct pen_engine_ring *base = &ring->base;
  base->engine = engine;
  ring->depth = depth;
  ring->files = calloc(n_files, sizeof *ring->files);
  ring->done = calloc(depth, sizeof *ring->done);
  if (!ring->files || !ring->done) {
    pen_engine_memory_ring_free(&base);
    return pen_error_set(-ENOMEM, "cannot make an I/O ring");
  }
  memcpy(ring->files, files, n_files * sizeof *ring->files);
  snprintf(base->note, sizeof base->note, "%s: no drive is used",
           engine->name);
  *ret_ring = base;
  return 0;
}

int pen_engine_memory_ring_submit(struct pen_engine_ring *base,
                                  const struct pen_engine_request *requests,
                                  size_t n)
{
  struct memory_ring *ring = (struct memory_ring *)base;
  if (ring->n_done + n > ring->depth)
    return pen_error_set(-EBUSY, "%zu requests on an I/O ring of %zu with %zu "
                         "in flight", n, ring->depth, ring->n_done);
  for (size_t i = 0; i < n; i++) {
    const struct pen_engine_request *r = &requests[i];
    struct pen_engine_file *file = ring->files[r->file];
    int64_t result =
        r->write
            ? file->engine->write_at(file, r->buffer, r->bytes, r->offset)
            : file->engine->read_at(file, r->buffer, r->bytes, r->offset);
    ring->done[(ring->head + ring->n_done++) % ring->depth] =
        (struct pen_engine_completion){.tag = r->tag, .result = result};
  }
  return 0;
}

int pen_engine_memory_ring_reap(struct pen_engine_ring *base, size_t min,
                                size_t max,
                                struct pen_engine_completion *ret_completions)
{
  struct memory_ring *ring = (struct memory_ring *)base;
  size_t n = ring->n_done < max ? ring->n_done : max;
  for (size_t i = 0; i < n; i++) {
    ret_completions[i] = ring->done[ring->head];
    ring->head = (ring->head + 1) % ring->depth;
  }
  ring->n_done -= n;
  return (int)n;
}

int pen_engine_memory_make_dirs(const struct pen_engine *engine,
                                const char *dir)
{
  return 0;
}

int pen_engine_memory_sync_dir(const struct pen_engine *engine,
                               const char *dir)
{
  return 0;
}
