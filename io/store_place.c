/* store_place.c: where a tile goes that is about to be written, and what is noted of it
 * when it is there.
 *
 * What the newest commit or a checkpoint names is never overwritten, unless the store
 * updates in place.  Any thread; under the store's mutex.  Disadvantage: the place is
 * the tile's from the moment it is handed out, before a byte is there. */
#include <errno.h>
#include <inttypes.h>

#include "io/store_state.h"

static int refuse_full(struct pen_store *store, size_t tile)
{
  return pen_error_set(
      -ENOSPC, "no free extent for tile %zu: the store of %" PRIu64
      " tiles is full of what commits and checkpoints keep; keep fewer "
      "checkpoints (--save-total-limit)", tile, store->committed.n_tiles);
}

/* Where the tile lies, or may come to lie, from now on; the transfer holds it
 * once more.  Under the mutex. */
static void settle_place(struct pen_store *store,
                         const struct pen_store_place *place,
                         struct pen_store_place *slot)
{
  *slot = *place;
  pen_store_space_hold(&store->space, place);
  store->dirty[place->dir] = true;
  store->writes_in_flight++;
}

/* Moves the tile to a free extent, held once more for the transfer.  It stays
 * where it is in place, and where nothing but itself needs what lies there: a
 * tile that is written again before a commit. */
int pen_store_place_tile(struct pen_store *store, size_t tile, size_t bytes,
                         struct pen_store_place *ret_place)
{
  pthread_mutex_lock(&store->mutex);
  struct pen_store_place place = store->now[tile];
  int code = 0;
  if (!pen_store_space_alone(&store->space, &place) &&
      !(store->committed.in_place && place.dir != UINT32_MAX)) {
    code = pen_store_space_take(&store->space, &place.dir, &place.extent);
    if (!code)
      pen_store_space_drop(&store->space, &store->now[tile]);
  }
  if (!code) {
    place.bytes = bytes;
    place.crc = place.head_crc = 0;
    settle_place(store, &place, &store->now[tile]);
  }
  pthread_mutex_unlock(&store->mutex);
  if (code)
    return refuse_full(store, tile);
  *ret_place = place;
  return 0;
}

/* A free extent for what the tile may come to be; what was aside goes. */
int pen_store_place_aside(struct pen_store *store, size_t tile, size_t bytes,
                          struct pen_store_place *ret_place)
{
  struct pen_store_place place = {.bytes = bytes};
  pthread_mutex_lock(&store->mutex);
  pen_store_space_drop(&store->space, &store->aside[tile]);
  store->aside[tile].dir = UINT32_MAX;
  int code = pen_store_space_take(&store->space, &place.dir, &place.extent);
  if (!code)
    settle_place(store, &place, &store->aside[tile]);
  pthread_mutex_unlock(&store->mutex);
  if (code)
    return refuse_full(store, tile);
  *ret_place = place;
  return 0;
}

/* Where the rest of a tile goes, and the CRC of its head there. */
int pen_store_place_rest(struct pen_store *store, size_t tile, size_t bytes,
                         size_t head_bytes, struct pen_store_place *ret_place)
{
  pthread_mutex_lock(&store->mutex);
  struct pen_store_place *now = &store->now[tile];
  bool has_head = now->dir != UINT32_MAX &&
                  (now->bytes == head_bytes || now->bytes == head_bytes + bytes);
  bool is_free = has_head && (store->committed.in_place ||
                              pen_store_space_alone(&store->space, now));
  if (is_free) {
    struct pen_store_place whole = *now;
    whole.bytes = head_bytes + bytes;
    settle_place(store, &whole, now);
    *ret_place = whole;
  }
  pthread_mutex_unlock(&store->mutex);
  if (is_free)
    return 0;
  return pen_error_set(-EINVAL, "%zu bytes behind the first %zu of tile %zu, "
                       "which %s", bytes, head_bytes, tile,
                       has_head ? "a commit or a checkpoint has"
                                : "were not written");
}

/* Of what a transfer puts there, unless the tile has moved on. */
void pen_store_note_crc(struct pen_store *store, struct pen_store_place *entry,
                        const struct pen_store_place *place)
{
  pthread_mutex_lock(&store->mutex);
  if (entry->dir == place->dir && entry->extent == place->extent) {
    entry->head_crc = place->head_crc;
    entry->crc = place->crc;
  }
  pthread_mutex_unlock(&store->mutex);
}
