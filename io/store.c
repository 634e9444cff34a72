/* store.c: a store's life: opening, closing, removing, and what it says of
 * itself.
 *
 * Invariant: a store that is open holds the lock of every data file, and its
 * tables agree with the newest whole manifest.  Thread: the owner's; `failed`
 * may be asked by any.  Disadvantage: both manifest slots are read whole at
 * opening. */
#include "io/store.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/store_state.h"

int pen_store_path(const char *dir, const char *name, size_t bytes,
                   char *ret_path)
{
  int n = snprintf(ret_path, bytes, "%s/%s", dir, name);
  return n < 0 || (size_t)n >= bytes
             ? pen_error_set(-ENAMETOOLONG, "store directory %.64s...", dir)
             : 0;
}

int pen_store_check(struct pen_store *store)
{
  pthread_mutex_lock(&store->mutex);
  struct pen_error failed = store->failed;
  pthread_mutex_unlock(&store->mutex);
  return failed.code ? pen_error_set(failed.code, "the store has failed: %.900s",
                                     failed.text)
                     : 0;
}

int pen_store_fail(struct pen_store *store, int code)
{
  pthread_mutex_lock(&store->mutex);
  if (!store->failed.code) {
    store->failed.code = code;
    snprintf(store->failed.text, sizeof store->failed.text, "%s",
             pen_error_text());
  }
  pthread_mutex_unlock(&store->mutex);
  return code;
}

int pen_store_alloc(const struct pen_store_options *options,
                    struct pen_store **ret_store)
{
  if (options->n_dirs < 1 || options->n_dirs > PEN_STORE_DIRS_MAX)
    return pen_error_set(-EINVAL, "a store in %zu directories, 1 to %d are "
                         "possible", options->n_dirs, PEN_STORE_DIRS_MAX);
  struct pen_store *store = calloc(1, sizeof *store);
  if (!store)
    return pen_error_set(-ENOMEM, "cannot make a store");
  store->engine = options->engine;
  store->n_dirs = options->n_dirs;
  pthread_mutex_init(&store->mutex, NULL);
  *ret_store = store;
  return 0;
}

void pen_store_close(struct pen_store **store)
{
  struct pen_store *s = *store;
  if (!s)
    return;
  for (size_t d = 0; d < s->n_dirs; d++)
    if (s->files[d])
      s->engine->close(&s->files[d]);
  if (s->manifest_file)
    s->engine->close(&s->manifest_file);
  pen_store_space_done(&s->space);
  pthread_mutex_destroy(&s->mutex);
  free(s->committed.places);
  free(s->now);
  free(s->aside);
  free(s->slot);
  free(s);
  *store = NULL;
}

/* Every place is held by the committed table and by `now`. */
static int hold_places(struct pen_store *store)
{
  for (size_t i = 0; i < store->committed.n_tiles; i++) {
    const struct pen_store_place *place = &store->committed.places[i];
    if (place->dir != UINT32_MAX &&
        store->space.dirs[place->dir].holders[place->extent])
      return pen_error_set(-PEN_EFORMAT,
                           "store manifest: extent %" PRIu32 " of directory %u "
                           "holds two tiles", place->extent, place->dir);
    pen_store_space_hold(&store->space, place);
    pen_store_space_hold(&store->space, place);
    store->now[i] = *place;
  }
  return 0;
}

int pen_store_build_tables(struct pen_store *store)
{
  const struct pen_store_manifest *m = &store->committed;
  int code = pen_stripe_init(&store->stripe, m->stripe_shares, m->n_dirs);
  if (code)
    return code;
  for (size_t d = 0; d < store->n_dirs; d++)
    store->scratch_base[d] = pen_store_extent_offset(store, m->n_extents[d]);
  store->slot_bytes = pen_store_manifest_bytes(m->n_tiles);
  store->slot = aligned_alloc(PEN_STORE_ALIGN, store->slot_bytes);
  store->now = calloc(m->n_tiles ? m->n_tiles : 1, sizeof *store->now);
  store->aside = calloc(m->n_tiles ? m->n_tiles : 1, sizeof *store->aside);
  for (size_t i = 0; store->aside && i < m->n_tiles; i++)
    store->aside[i].dir = UINT32_MAX;
  if (!store->slot || !store->now || !store->aside)
    return pen_error_set(-ENOMEM, "cannot hold the tables of %" PRIu64
                         " tiles", m->n_tiles);
  code = pen_store_space_init(&store->space, store->n_dirs, m->n_extents);
  return code ? code : hold_places(store);
}

static int open_data(struct pen_store *store, const char *dir, size_t d)
{
  char path[PATH_MAX];
  int code = pen_store_path(dir, PEN_STORE_DATA, sizeof path, path);
  if (!code)
    code = store->engine->open(store->engine, path, false, &store->files[d]);
  if (!code)
    code = store->engine->lock(store->files[d]);
  return code;
}

/* The newer of the slots that can be read; a torn one is as if not there. */
static int choose_slot(struct pen_store *store, const uint8_t *slots,
                       size_t slot_bytes)
{
  struct pen_store_manifest found = {.places = NULL}, m;
  struct pen_error why = {.code = 0};
  for (int i = 0; i < 2; i++) {
    if (pen_store_manifest_decode(slots + i * slot_bytes, slot_bytes, &m)) {
      if (!why.code)
        pen_error_take(&why);
      pen_error_clear();
      continue;
    }
    bool newer = !found.places || m.generation > found.generation;
    free(newer ? found.places : m.places);
    if (newer)
      found = m;
  }
  if (!found.places)
    return pen_error_context(pen_error_put(&why), "%s: neither copy can be read",
                             store->manifest_file->path);
  store->committed = found;
  return 0;
}

static int read_manifest(struct pen_store *store, const char *dir)
{
  char path[PATH_MAX];
  struct pen_engine_info info;
  int code = pen_store_path(dir, PEN_STORE_MANIFEST, sizeof path, path);
  if (!code)
    code = store->engine->open(store->engine, path, false,
                               &store->manifest_file);
  if (!code)
    code = store->engine->info(store->manifest_file, &info);
  if (code)
    return code;
  if (info.size_bytes == 0 || info.size_bytes % (2 * PEN_STORE_ALIGN) ||
      info.size_bytes > (uint64_t)1 << 40)
    return pen_error_set(-PEN_EFORMAT, "%s has %" PRIu64 " bytes, which is "
                         "no store manifest", path, info.size_bytes);
  size_t bytes = (size_t)info.size_bytes;
  uint8_t *slots = aligned_alloc(PEN_STORE_ALIGN, bytes);
  if (!slots)
    return pen_error_set(-ENOMEM, "cannot hold the %zu bytes of %s", bytes,
                         path);
  code = pen_engine_read_whole(store->manifest_file, slots, bytes, 0,
                               &store->counters.retries);
  if (!code)
    code = choose_slot(store, slots, bytes / 2);
  free(slots);
  return code;
}

/* A data file must be of this store, at its place, and whole. */
static int check_data(struct pen_store *store, size_t d)
{
  struct pen_engine_file *file = store->files[d];
  const struct pen_store_manifest *m = &store->committed;
  struct pen_store_header header;
  struct pen_engine_info info;
  void *block = aligned_alloc(PEN_STORE_ALIGN, PEN_STORE_HEADER_BYTES);
  if (!block)
    return pen_error_set(-ENOMEM, "cannot read %s", file->path);
  int code = pen_engine_read_whole(file, block, PEN_STORE_HEADER_BYTES, 0,
                                   &store->counters.retries);
  if (!code && (code = pen_store_header_decode(block, &header)))
    pen_error_context(code, "%s", file->path);
  free(block);
  if (!code)
    code = store->engine->info(file, &info);
  if (code)
    return code;
  if (memcmp(header.run_id, m->run_id, sizeof m->run_id) != 0 ||
      header.dir != d || header.n_dirs != m->n_dirs ||
      header.tile_bytes != m->tile_bytes ||
      header.n_extents != m->n_extents[d])
    return pen_error_set(-PEN_EMISMATCH,
                         "%s is not part %zu of this store: give its "
                         "directories in the order they were made with",
                         file->path, d);
  uint64_t bytes = store->scratch_base[d] + header.scratch_bytes;
  return info.size_bytes >= bytes
             ? 0
             : pen_error_set(-PEN_ESHORT, "%s has %" PRIu64 " bytes of %" PRIu64,
                             file->path, info.size_bytes, bytes);
}

static int open_all(struct pen_store *store,
                    const struct pen_store_options *options)
{
  int code = open_data(store, options->dirs[0], 0);
  if (!code)
    code = read_manifest(store, options->dirs[0]);
  if (code == -ENOENT)
    return pen_error_context(code, "there is no store in %s",
                             options->dirs[0]);
  if (code)
    return code;
  const struct pen_store_manifest *m = &store->committed;
  if (memcmp(m->run_id, options->run_id, sizeof m->run_id) != 0)
    return pen_error_set(-PEN_EMISMATCH, "the store in %s is another run's",
                         options->dirs[0]);
  if (m->n_dirs != options->n_dirs)
    return pen_error_set(-PEN_EMISMATCH,
                         "the store in %s lies in %u directories, %zu are "
                         "given", options->dirs[0], m->n_dirs,
                         options->n_dirs);
  for (size_t d = 1; d < store->n_dirs && !code; d++)
    if ((code = open_data(store, options->dirs[d], d)) == -ENOENT)
      pen_error_context(code, "part %zu of the store is missing", d);
  if (!code)
    code = pen_store_build_tables(store);
  for (size_t d = 0; d < store->n_dirs && !code; d++)
    code = check_data(store, d);
  return code;
}

int pen_store_open(const struct pen_store_options *options,
                   struct pen_store **ret_store)
{
  struct pen_store *store = NULL;
  int code = pen_store_alloc(options, &store);
  if (!code)
    code = open_all(store, options);
  if (code)
    pen_store_close(&store);
  else
    *ret_store = store;
  return code;
}

/* Removes dirs[d]'s part, locked so that no run loses it under its feet. */
static int remove_part(const struct pen_engine *engine, const char *dir)
{
  char data[PATH_MAX], manifest[PATH_MAX];
  struct pen_engine_file *file = NULL;
  int code = pen_store_path(dir, PEN_STORE_DATA, sizeof data, data);
  if (!code)
    code = pen_store_path(dir, PEN_STORE_MANIFEST, sizeof manifest, manifest);
  if (code)
    return code;
  code = engine->open(engine, data, false, &file);
  if (code == -ENOENT) {
    pen_error_clear();
    return 0;
  }
  if (!code)
    code = engine->lock(file);
  /* The manifest first: data without it is nothing. */
  if (!code)
    code = engine->remove(engine, manifest);
  if (!code)
    code = engine->sync_dir(engine, dir);
  if (!code)
    code = engine->remove(engine, data);
  if (!code)
    code = engine->sync_dir(engine, dir);
  if (file)
    engine->close(&file);
  return code;
}

int pen_store_remove(const struct pen_engine *engine, const char *const *dirs,
                     size_t n_dirs)
{
  for (size_t d = 0; d < n_dirs; d++) {
    int code = remove_part(engine, dirs[d]);
    if (code)
      return code;
  }
  return 0;
}

void pen_store_committed(const struct pen_store *store,
                         struct pen_store_commit_info *ret_info)
{
  const struct pen_store_manifest *m = &store->committed;
  *ret_info = (struct pen_store_commit_info){.committed = m->committed,
                                             .step = m->step,
                                             .meta_bytes = m->meta_bytes,
                                             .meta = m->meta};
}

size_t pen_store_tile_bytes(const struct pen_store *store)
{
  return (size_t)store->committed.tile_bytes;
}

size_t pen_store_n_tiles(const struct pen_store *store)
{
  return (size_t)store->committed.n_tiles;
}

uint64_t pen_store_n_extents(const struct pen_store *store)
{
  uint64_t sum = 0;
  for (size_t d = 0; d < store->n_dirs; d++)
    sum += store->committed.n_extents[d];
  return sum;
}

uint64_t pen_store_scratch_bytes(const struct pen_store *store)
{
  return store->committed.scratch_bytes;
}

void pen_store_counters(const struct pen_store *store,
                        struct pen_store_counters *ret_counters)
{
  struct pen_store *s = (struct pen_store *)store; /* for its mutex */
  pthread_mutex_lock(&s->mutex);
  *ret_counters = s->counters;
  pthread_mutex_unlock(&s->mutex);
}
