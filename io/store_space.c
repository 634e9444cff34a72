/* store_space.c: which extents of a store are free.
 *
 * Invariant: n_free is the number of extents with no holder.  A cursor goes
 * round, so that writes of one step lie side by side and wear is even.
 * Thread: whoever has the store's mutex.  Disadvantage: with few free extents
 * a search walks past all that are held. */
#include "io/store_space.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

int pen_store_space_init(struct pen_store_space *space, size_t n_dirs,
                         const uint64_t *n_extents)
{
  *space = (struct pen_store_space){.n_dirs = n_dirs};
  for (size_t d = 0; d < n_dirs; d++) {
    space->dirs[d].n_extents = space->dirs[d].n_free = n_extents[d];
    space->dirs[d].holders = calloc(n_extents[d] ? n_extents[d] : 1,
                                    sizeof *space->dirs[d].holders);
    if (!space->dirs[d].holders)
      return pen_error_set(-ENOMEM, "cannot hold a table of %llu extents",
                           (unsigned long long)n_extents[d]);
  }
  return 0;
}

void pen_store_space_done(struct pen_store_space *space)
{
  for (size_t d = 0; d < space->n_dirs; d++)
    free(space->dirs[d].holders);
  *space = (struct pen_store_space){.n_dirs = 0};
}

int pen_store_space_take(struct pen_store_space *space, uint32_t *ret_dir,
                         uint32_t *ret_extent)
{
  double best_share = 0;
  size_t best = space->n_dirs;
  for (size_t d = 0; d < space->n_dirs; d++) {
    double share = space->dirs[d].n_free
                       ? (double)space->dirs[d].n_free /
                             (double)space->dirs[d].n_extents
                       : 0;
    if (share > best_share) {
      best_share = share;
      best = d;
    }
  }
  if (best == space->n_dirs)
    return -ENOSPC;
  uint32_t e = (uint32_t)space->dirs[best].cursor;
  while (space->dirs[best].holders[e])
    e = e + 1 == space->dirs[best].n_extents ? 0 : e + 1;
  space->dirs[best].cursor =
      e + 1 == space->dirs[best].n_extents ? 0 : e + 1;
  space->dirs[best].holders[e] = 1;
  space->dirs[best].n_free--;
  *ret_dir = (uint32_t)best;
  *ret_extent = e;
  return 0;
}

bool pen_store_space_alone(const struct pen_store_space *space,
                           const struct pen_store_place *place)
{
  return place->dir != UINT32_MAX &&
         space->dirs[place->dir].holders[place->extent] == 1;
}

void pen_store_space_hold(struct pen_store_space *space,
                          const struct pen_store_place *place)
{
  if (place->dir == UINT32_MAX)
    return;
  if (space->dirs[place->dir].holders[place->extent]++ == 0)
    space->dirs[place->dir].n_free--;
}

void pen_store_space_drop(struct pen_store_space *space,
                          const struct pen_store_place *place)
{
  if (place->dir == UINT32_MAX)
    return;
  assert(space->dirs[place->dir].holders[place->extent] > 0);
  if (--space->dirs[place->dir].holders[place->extent] == 0)
    space->dirs[place->dir].n_free++;
}
