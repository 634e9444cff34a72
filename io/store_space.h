/* store_space.h: which extents of a store are free.
 *
 * An extent is free while nobody holds it: the tile that lies there, the
 * committed table, each pin and each transfer in flight hold it once.  Not
 * locked: the store's mutex is. */
#ifndef PEN_IO_STORE_SPACE_H
#define PEN_IO_STORE_SPACE_H

#include "io/store.h"

struct pen_store_space {
  size_t n_dirs;
  struct {
    uint32_t *holders; /* [n_extents] */
    uint64_t n_extents, n_free, cursor;
  } dirs[PEN_STORE_DIRS_MAX];
};

int pen_store_space_init(struct pen_store_space *space, size_t n_dirs,
                         const uint64_t *n_extents);
void pen_store_space_done(struct pen_store_space *space);

/* A free extent, held once from now on, of the directory with the largest
 * share free; -ENOSPC (without a text) when there is none. */
int pen_store_space_take(struct pen_store_space *space, uint32_t *ret_dir,
                         uint32_t *ret_extent);
/* Whether the place is held exactly once. */
bool pen_store_space_alone(const struct pen_store_space *space,
                           const struct pen_store_place *place);
/* A place with dir UINT32_MAX is no place: nothing happens. */
void pen_store_space_hold(struct pen_store_space *space,
                          const struct pen_store_place *place);
void pen_store_space_drop(struct pen_store_space *space,
                          const struct pen_store_place *place);

#endif
