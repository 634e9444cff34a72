/* store.h: optimizer state on drives, copy-on-write: whatever happens, the
 * newest committed step is whole.
 *
 * A store is one data file per directory, cut into equal extents of one tile,
 * plus a scratch region for bytes that need not survive (weights, waiting
 * gradients, activation checkpoints), plus a small manifest file in the first
 * directory.  A tile is written to a free extent; the old one stays until the
 * commit that names the new one is durable.  The order of a commit is: data,
 * fdatasync of every data file, manifest slot (A and B in turn), fdatasync,
 * and only then the old extents become free.  See docs/FORMATS.md.
 *
 * Threads: open, create, commit, pin and close belong to one thread at a time
 * (the write lane while a run goes on); each queue belongs to the one thread
 * that submits to and reaps from it; tables shared between queues are under
 * one mutex. */
#ifndef PEN_IO_STORE_H
#define PEN_IO_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/engine.h"

#define PEN_STORE_DIRS_MAX 16
#define PEN_STORE_ALIGN 4096 /* of buffers, offsets and lengths */
#define PEN_STORE_META_BYTES_MAX 4096

struct pen_store;
struct pen_store_queue;

struct pen_store_options {
  const char *const *dirs; /* borrowed during the call; made if missing */
  size_t n_dirs;
  const double *weights; /* share per directory, NULL: equal */
  const struct pen_engine *engine; /* table row; borrowed for ever */
  size_t tile_bytes;      /* of one extent; multiple of PEN_STORE_ALIGN */
  size_t n_tiles;         /* tiles of state; 0: scratch only */
  size_t n_extents;       /* at least 2 n_tiles (copy-on-write), plus what
                             checkpoints pin; exactly n_tiles with in_place */
  uint64_t scratch_bytes; /* per store, striped over the directories */
  bool in_place;          /* --durability none: overwrite tiles, no undo; the
                             first write after a commit takes it back */
  uint8_t run_id[16];     /* random, of the run; a foreign store is refused */
};

/* Makes and preallocates (fallocate) a new store and locks it; -PEN_ENOFIT names
 * the directory, the bytes needed and the bytes free, before anything is
 * written.  An existing store there is refused with -EEXIST unless
 * `overwrite`.  Caller owns *ret_store. */
int pen_store_create(const struct pen_store_options *options, bool overwrite,
                     struct pen_store **ret_store);

/* Opens and locks an existing store and loads its newest whole manifest.
 * -ENOENT: there is none.  Geometry (tile_bytes, n_tiles ...) comes from the
 * files; only dirs, engine and run_id of `options` are used. -EBUSY: another
 * process runs on it. */
int pen_store_open(const struct pen_store_options *options,
                   struct pen_store **ret_store);

/* Closes without committing.  NULL is fine; sets *store to NULL. */
void pen_store_close(struct pen_store **store);

/* Removes the files of a store in these directories, by the engine they were
 * made with (after close; -EBUSY while a run uses it).  Where there is none
 * nothing happens. */
int pen_store_remove(const struct pen_engine *engine, const char *const *dirs,
                     size_t n_dirs);

/* What the newest commit says. */
struct pen_store_commit_info {
  bool committed; /* false: nothing was ever committed */
  uint64_t step;
  size_t meta_bytes;
  const void *meta; /* borrowed until the next commit or close */
};
void pen_store_committed(const struct pen_store *store,
                         struct pen_store_commit_info *ret_info);
size_t pen_store_tile_bytes(const struct pen_store *store);
size_t pen_store_n_tiles(const struct pen_store *store);
uint64_t pen_store_n_extents(const struct pen_store *store); /* all files' */
uint64_t pen_store_scratch_bytes(const struct pen_store *store);

/* Bytes this store writes and reads, since open, by kind (for the log). */
struct pen_store_counters {
  uint64_t bytes_read, bytes_written, retries, short_transfers, syncs;
};
void pen_store_counters(const struct pen_store *store,
                        struct pen_store_counters *ret_counters);

/* One engine instance with up to `depth` requests in flight.  buffers: the
 * memory regions that requests will point into, registered with the engine
 * where permitted (a refusal is remembered for pen_store_queue_note, not an
 * error); NULL for none.  Caller owns. */
struct pen_store_region { void *base; size_t bytes; };
int pen_store_queue_create(struct pen_store *store, size_t depth,
                           const struct pen_store_region *regions,
                           size_t n_regions,
                           struct pen_store_queue **ret_queue);
/* Waits for what is in flight and forgets it, for whoever gives up: after this
 * no buffer is written to.  A transfer that fails here fails the store; the
 * calling thread's standing failure stays as it is. */
void pen_store_queue_drain(struct pen_store_queue *queue);
/* Drains first. */
void pen_store_queue_free(struct pen_store_queue **queue);
/* One line: engine wanted, engine got, registered or why not, O_DIRECT or why
 * not.  Borrowed until free. */
const char *pen_store_queue_note(const struct pen_store_queue *queue);

/* Queues one transfer; never blocks; -EAGAIN when `depth` are in flight (reap
 * first).  buffer is aligned to PEN_STORE_ALIGN and borrowed until the tag is
 * reaped.  `bytes` may be less than a tile (the last tile of a block), any
 * multiple of PEN_STORE_ALIGN.  A read asks for as many bytes as were last
 * written, or for their head, the first head_bytes of them: each has a CRC of its
 * own.  A tile that is written again before a commit may be written where it
 * lies. */
int pen_store_read_tile(struct pen_store_queue *queue, size_t tile,
                        void *buffer, size_t bytes, uint64_t tag);
int pen_store_write_tile(struct pen_store_queue *queue, size_t tile,
                         const void *buffer, size_t bytes, size_t head_bytes,
                         uint64_t tag);
/* Adds what comes behind a tile's head, where the head alone was written since the
 * newest commit, or that and what now comes anew.  -EINVAL: the head was
 * not written; or, unless in place, a commit or a checkpoint has the tile. */
int pen_store_write_rest(struct pen_store_queue *queue, size_t tile,
                         const void *buffer, size_t bytes, size_t head_bytes,
                         uint64_t tag);
/* Writes what the tile may come to be to a free extent: for reads and commits the
 * tile stays as it is until settled, and another such write takes this one's
 * place.  Not in place. */
int pen_store_write_aside(struct pen_store_queue *queue, size_t tile,
                          const void *buffer, size_t bytes, size_t head_bytes,
                          uint64_t tag);
/* Tiles that were written aside are from now on what was written, as if by
 * write_tile, or (stands false) were never written.  All writes must have been
 * reaped. */
void pen_store_settle(struct pen_store *store, bool stands);
/* Scratch: any aligned range in [0, scratch_bytes); no CRC, no undo. */
int pen_store_read_scratch(struct pen_store_queue *queue, uint64_t offset,
                           void *buffer, size_t bytes, uint64_t tag);
int pen_store_write_scratch(struct pen_store_queue *queue, uint64_t offset,
                            const void *buffer, size_t bytes, uint64_t tag);

/* Waits until at least `min` of the queued transfers are complete and returns
 * how many tags were written to ret_tags (at most `max`), or a negative code
 * for the first failed one: the store is then failed for good (every later
 * write and commit returns the same code).  Short transfers, EINTR and EAGAIN
 * were retried inside; a tile read whose CRC is wrong is -PEN_ECORRUPT, with
 * file, offset and tile in the text. */
int pen_store_reap(struct pen_store_queue *queue, size_t min, size_t max,
                   uint64_t *ret_tags);

/* Commits: all writes must have been reaped.  After 0 the tiles as last
 * written are what a crash leaves, with `step` and `meta` (at most
 * PEN_STORE_META_BYTES_MAX).  A failed sync is fatal (store failed). */
int pen_store_commit(struct pen_store *store, uint64_t step, const void *meta,
                     size_t meta_bytes);

/* A pin keeps the extents of the newest commit from being reused, for a
 * checkpoint.  Where each tile lies is written to ret_places [n_tiles] for the
 * checkpoint's own file; pins are not stored here: after open, pin_places is
 * called with each checkpoint's table (-PEN_EMISMATCH if one cannot be: an
 * extent number out of range or a tile of another geometry).  When free extents
 * would run out, write_tile fails with -ENOSPC and the numbers. */
struct pen_store_place {
  uint32_t dir;    /* index of the directory; UINT32_MAX: tile never written */
  uint32_t crc;    /* CRC32C of the first `bytes` bytes */
  uint32_t extent; /* number within that directory's file */
  uint32_t head_crc; /* of its head */
  uint64_t bytes;
};
int pen_store_pin(struct pen_store *store, struct pen_store_place *ret_places);
int pen_store_pin_places(struct pen_store *store,
                         const struct pen_store_place *places, size_t n_places);
int pen_store_unpin_places(struct pen_store *store,
                           const struct pen_store_place *places,
                           size_t n_places);
/* Makes the tiles of `places` the current ones (resuming from a checkpoint
 * older than the newest commit); takes effect on disk at the next commit. */
int pen_store_rewind(struct pen_store *store,
                     const struct pen_store_place *places, size_t n_places);

#endif
