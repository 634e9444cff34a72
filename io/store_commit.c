/* store_commit.c: commits, pins, and going back to one.
 *
 * Order of a commit: sync of every data file that was written, manifest slot,
 * sync, and only then are the extents of the commit before let go.  Invariant:
 * whatever fails or is cut off, one of the two slots is whole and every extent
 * it names holds what it says.  Thread: the owner's; the tables are under the
 * store's mutex.  Disadvantage: drives are synced one after another. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "io/store_state.h"

int pen_store_write_slot(struct pen_store *store,
                         const struct pen_store_manifest *manifest)
{
  uint64_t retries = 0;
  pen_store_manifest_encode(manifest, store->slot);
  int code = pen_engine_write_whole(
      store->manifest_file, store->slot, store->slot_bytes,
      (manifest->generation & 1) * store->slot_bytes, &retries);
  if (!code)
    code = store->engine->sync(store->manifest_file);
  pthread_mutex_lock(&store->mutex);
  store->counters.retries += retries;
  store->counters.bytes_written += store->slot_bytes;
  store->counters.syncs++;
  pthread_mutex_unlock(&store->mutex);
  return code;
}

static int sync_data(struct pen_store *store)
{
  for (size_t d = 0; d < store->n_dirs; d++) {
    pthread_mutex_lock(&store->mutex);
    bool dirty = store->dirty[d];
    store->dirty[d] = false;
    store->counters.syncs += dirty;
    pthread_mutex_unlock(&store->mutex);
    int code = dirty ? store->engine->sync(store->files[d]) : 0;
    if (code)
      return code;
  }
  return 0;
}

/* `next` is what is committed; what was, is let go.  Geometry stays untouched,
 * since queues read it without the mutex. */
static void let_go_old(struct pen_store *store,
                       const struct pen_store_manifest *next)
{
  struct pen_store_manifest *m = &store->committed;
  pthread_mutex_lock(&store->mutex);
  m->generation = next->generation;
  m->step = next->step;
  m->committed = next->committed;
  m->meta_bytes = next->meta_bytes;
  memcpy(m->meta, next->meta, next->meta_bytes);
  for (size_t i = 0; i < m->n_tiles; i++) {
    pen_store_space_hold(&store->space, &store->now[i]);
    pen_store_space_drop(&store->space, &m->places[i]);
    m->places[i] = store->now[i];
  }
  pthread_mutex_unlock(&store->mutex);
}

int pen_store_commit(struct pen_store *store, uint64_t step, const void *meta,
                     size_t meta_bytes)
{
  int code = pen_store_check(store);
  if (code)
    return code;
  if (meta_bytes > PEN_STORE_META_BYTES_MAX)
    return pen_error_set(-EINVAL, "%zu bytes of meta data with a commit, at "
                         "most %d are possible", meta_bytes,
                         PEN_STORE_META_BYTES_MAX);
  pthread_mutex_lock(&store->mutex);
  size_t in_flight = store->writes_in_flight;
  pthread_mutex_unlock(&store->mutex);
  if (in_flight)
    return pen_error_set(-EBUSY, "commit of step %" PRIu64 " while %zu writes "
                         "are in flight", step, in_flight);
  struct pen_store_manifest next = store->committed;
  next.generation++;
  next.step = step;
  next.committed = true;
  next.meta_bytes = (uint32_t)meta_bytes;
  if (meta_bytes)
    memcpy(next.meta, meta, meta_bytes);
  next.places = store->now;
  code = sync_data(store);
  if (!code)
    code = pen_store_write_slot(store, &next);
  if (code)
    return pen_store_fail(
        store, pen_error_context(code, "commit of step %" PRIu64 " failed",
                                 step));
  let_go_old(store, &next);
  return 0;
}

/* The hold of `aside` becomes that of `now`. */
void pen_store_settle(struct pen_store *store, bool stands)
{
  pthread_mutex_lock(&store->mutex);
  for (size_t i = 0; i < store->committed.n_tiles; i++) {
    struct pen_store_place *aside = &store->aside[i];
    if (aside->dir == UINT32_MAX)
      continue;
    pen_store_space_drop(&store->space, stands ? &store->now[i] : aside);
    if (stands)
      store->now[i] = *aside;
    aside->dir = UINT32_MAX;
  }
  pthread_mutex_unlock(&store->mutex);
}

int pen_store_uncommit(struct pen_store *store)
{
  struct pen_store_manifest next = store->committed;
  next.generation++;
  next.committed = false;
  int code = pen_store_write_slot(store, &next);
  if (code)
    return pen_store_fail(
        store, pen_error_context(code, "cannot take back the commit of step "
                                 "%" PRIu64, next.step));
  pthread_mutex_lock(&store->mutex);
  store->committed.generation = next.generation;
  store->committed.committed = false;
  pthread_mutex_unlock(&store->mutex);
  return 0;
}

static int refuse_in_place(const struct pen_store *store)
{
  return store->committed.in_place
             ? pen_error_set(-PEN_EUNSUPPORTED,
                             "a store that updates in place (--durability none) "
                             "keeps no older state")
             : 0;
}

int pen_store_pin(struct pen_store *store, struct pen_store_place *ret_places)
{
  int code = refuse_in_place(store);
  if (code)
    return code;
  const struct pen_store_manifest *m = &store->committed;
  pthread_mutex_lock(&store->mutex);
  for (size_t i = 0; i < m->n_tiles; i++) {
    pen_store_space_hold(&store->space, &m->places[i]);
    ret_places[i] = m->places[i];
  }
  pthread_mutex_unlock(&store->mutex);
  return 0;
}

static int check_places(const struct pen_store *store,
                        const struct pen_store_place *places, size_t n_places)
{
  const struct pen_store_manifest *m = &store->committed;
  if (n_places != m->n_tiles)
    return pen_error_set(-PEN_EMISMATCH, "a checkpoint of %zu tiles for a "
                         "store of %" PRIu64, n_places, m->n_tiles);
  for (size_t i = 0; i < n_places; i++) {
    const struct pen_store_place *p = &places[i];
    if (p->dir == UINT32_MAX)
      continue;
    if (p->dir >= m->n_dirs || p->extent >= m->n_extents[p->dir] ||
        !p->bytes || p->bytes > m->tile_bytes || p->bytes % PEN_STORE_ALIGN)
      return pen_error_set(-PEN_EMISMATCH,
                           "the checkpoint's tile %zu, %" PRIu64 " bytes in "
                           "extent %" PRIu32 " of directory %u, is not of this "
                           "store", i, p->bytes, p->extent, p->dir);
  }
  return 0;
}

int pen_store_pin_places(struct pen_store *store,
                         const struct pen_store_place *places, size_t n_places)
{
  int code = refuse_in_place(store);
  if (!code)
    code = check_places(store, places, n_places);
  if (code)
    return code;
  pthread_mutex_lock(&store->mutex);
  for (size_t i = 0; i < n_places; i++)
    pen_store_space_hold(&store->space, &places[i]);
  pthread_mutex_unlock(&store->mutex);
  return 0;
}

int pen_store_unpin_places(struct pen_store *store,
                           const struct pen_store_place *places,
                           size_t n_places)
{
  int code = refuse_in_place(store);
  if (!code)
    code = check_places(store, places, n_places);
  if (code)
    return code;
  pthread_mutex_lock(&store->mutex);
  for (size_t i = 0; i < n_places; i++)
    pen_store_space_drop(&store->space, &places[i]);
  pthread_mutex_unlock(&store->mutex);
  return 0;
}

int pen_store_rewind(struct pen_store *store,
                     const struct pen_store_place *places, size_t n_places)
{
  int code = pen_store_check(store);
  if (!code)
    code = refuse_in_place(store);
  if (!code)
    code = check_places(store, places, n_places);
  if (code)
    return code;
  pthread_mutex_lock(&store->mutex);
  for (size_t i = 0; i < n_places; i++) {
    pen_store_space_hold(&store->space, &places[i]);
    pen_store_space_drop(&store->space, &store->now[i]);
    store->now[i] = places[i];
  }
  pthread_mutex_unlock(&store->mutex);
  return 0;
}
