/* store_state.h: what the files of the store share. */
#ifndef PEN_IO_STORE_STATE_H
#define PEN_IO_STORE_STATE_H

#include <pthread.h>

#include "base/error.h"
#include "io/store.h"
#include "io/store_format.h"
#include "io/store_space.h"
#include "io/stripe.h"

struct pen_store {
  const struct pen_engine *engine;
  size_t n_dirs;
  struct pen_engine_file *files[PEN_STORE_DIRS_MAX]; /* data, locked */
  struct pen_engine_file *manifest_file;
  struct pen_stripe stripe;
  uint64_t scratch_base[PEN_STORE_DIRS_MAX]; /* offset in each data file */
  void *slot; /* [slot_bytes] aligned: a manifest on its way to the drive */
  size_t slot_bytes;

  pthread_mutex_t mutex; /* over all below */
  struct pen_store_manifest committed; /* newest; its places are held */
  struct pen_store_place *now;         /* [n_tiles] as last written; held */
  struct pen_store_place *aside;       /* [n_tiles] written aside; held */
  struct pen_store_space space;
  bool dirty[PEN_STORE_DIRS_MAX]; /* tiles were written since its sync */
  size_t writes_in_flight;        /* of tiles */
  struct pen_error failed;        /* code 0: the store is well */
  struct pen_store_counters counters;
};

/* The store's standing failure as this thread's; 0 when it is well. */
int pen_store_check(struct pen_store *store);
/* Makes this thread's standing failure the store's, for good, unless one is;
 * returns `code`. */
int pen_store_fail(struct pen_store *store, int code);

/* Offset of an extent in its data file. */
static inline uint64_t pen_store_extent_offset(const struct pen_store *store,
                                               uint64_t extent)
{
  return PEN_STORE_HEADER_BYTES + extent * store->committed.tile_bytes;
}

/* store_place.c: where the tile lies from now on, or may come to lie, or where what
 * comes behind its head goes (with the head's CRC); held once more for the transfer
 * that follows.  -ENOSPC: no extent is free; -EINVAL: the tile has no head of that size
 * there, or a commit or a checkpoint has it. */
int pen_store_place_tile(struct pen_store *store, size_t tile, size_t bytes,
                         struct pen_store_place *ret_place);
int pen_store_place_aside(struct pen_store *store, size_t tile, size_t bytes,
                          struct pen_store_place *ret_place);
int pen_store_place_rest(struct pen_store *store, size_t tile, size_t bytes,
                         size_t head_bytes, struct pen_store_place *ret_place);
/* The CRCs of what a transfer puts into `place`, unless the tile has moved on. */
void pen_store_note_crc(struct pen_store *store, struct pen_store_place *entry,
                        const struct pen_store_place *place);

/* Writes `manifest` to its slot and syncs. */
int pen_store_write_slot(struct pen_store *store,
                         const struct pen_store_manifest *manifest);

/* Makes it durable that nothing is committed. */
int pen_store_uncommit(struct pen_store *store);

/* Half-built stores, shared by open and create. */
int pen_store_alloc(const struct pen_store_options *options,
                    struct pen_store **ret_store);
/* Tables of a store whose `committed` (with places) is set. */
int pen_store_build_tables(struct pen_store *store);
/* Path of a file of the store; -ENAMETOOLONG. */
#define PEN_STORE_DATA "penstock-state.data"
#define PEN_STORE_MANIFEST "penstock-state.manifest"
#define PEN_STORE_MANIFEST_NEW "penstock-state.manifest.new"
int pen_store_path(const char *dir, const char *name, size_t bytes,
                   char *ret_path);

#endif
