/* store_queue.c: reads and writes of tiles and scratch bytes.
 *
 * A written tile lies in its new extent from the moment it is queued; every
 * transfer in flight holds its extent, so that none is given away under it.
 * The CRC of a write is taken while the drive works on it, that of a read when
 * it is reaped.  All memory is taken at creation.  Threads: the queue's owner;
 * tables under the store's mutex.  Disadvantage: the CRC is computed by that
 * thread (32 MiB take about 2 ms). */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/crc32c.h"
#include "io/store_state.h"
#include "io/transfer.h"

enum operation { READ_TILE, WRITE_TILE, READ_SCRATCH, WRITE_SCRATCH };

struct pending {
  enum operation operation;
  size_t tile;
  void *buffer;
  struct pen_store_place place; /* held, of tiles */
  uint64_t tag;                 /* the caller's */
};

struct pen_store_queue {
  struct pen_store *store;
  struct pen_transfer_queue *transfers;
  struct pen_transfer_counters told; /* already added to the store's */
  size_t depth, n_free;
  struct pending *pending;        /* [depth] */
  uint32_t *free;                 /* [n_free] indices */
  struct pen_transfer_done *done; /* [depth] */
  char note[768];
};

static void free_memory(struct pen_store_queue **queue)
{
  free((*queue)->pending);
  free((*queue)->free);
  free((*queue)->done);
  free(*queue);
  *queue = NULL;
}

__attribute__((format(printf, 2, 3))) static void
append(struct pen_store_queue *queue, const char *format, ...)
{
  size_t n = strlen(queue->note);
  va_list args;
  va_start(args, format);
  vsnprintf(queue->note + n, sizeof queue->note - n, format, args);
  va_end(args);
}

/* What the ring says, and each file's remark once. */
static void write_note(struct pen_store_queue *queue)
{
  const struct pen_store *store = queue->store;
  append(queue, "%s", pen_transfer_queue_note(queue->transfers));
  bool direct = true;
  for (size_t d = 0; d < store->n_dirs; d++) {
    const struct pen_engine_file *file = store->files[d];
    direct = direct && file->direct;
    if (file->note[0])
      append(queue, "; %s: %s", file->path, file->note);
  }
  if (direct)
    append(queue, "%s", ", direct I/O");
}

int pen_store_queue_create(struct pen_store *store, size_t depth,
                           const struct pen_store_region *regions,
                           size_t n_regions,
                           struct pen_store_queue **ret_queue)
{
  struct pen_store_queue *queue = calloc(1, sizeof *queue);
  if (!queue)
    return pen_error_set(-ENOMEM, "cannot make a store queue");
  queue->store = store;
  queue->depth = queue->n_free = depth;
  queue->pending = calloc(depth, sizeof *queue->pending);
  queue->free = calloc(depth, sizeof *queue->free);
  queue->done = calloc(depth, sizeof *queue->done);
  struct pen_engine_region *copy =
      calloc(n_regions ? n_regions : 1, sizeof *copy);
  int code = queue->pending && queue->free && queue->done && copy
                 ? 0
                 : pen_error_set(-ENOMEM, "cannot make a store queue of "
                                 "depth %zu", depth);
  for (size_t i = 0; i < n_regions && !code; i++)
    copy[i] = (struct pen_engine_region){regions[i].base, regions[i].bytes};
  for (size_t i = 0; i < depth && !code; i++)
    queue->free[i] = (uint32_t)i;
  if (!code)
    code = pen_transfer_queue_create(store->engine, depth, store->files,
                                     store->n_dirs, copy, n_regions,
                                     &store->stripe, store->scratch_base,
                                     &queue->transfers);
  free(copy);
  if (code) {
    free_memory(&queue);
    return code;
  }
  write_note(queue);
  *ret_queue = queue;
  return 0;
}

const char *pen_store_queue_note(const struct pen_store_queue *queue)
{
  return queue->note;
}

/* Lets go of the extent; with the mutex held. */
static void let_go(struct pen_store *store, const struct pending *p)
{
  if (p->operation == READ_TILE || p->operation == WRITE_TILE)
    pen_store_space_drop(&store->space, &p->place);
  if (p->operation == WRITE_TILE)
    store->writes_in_flight--;
}

static void give_back(struct pen_store_queue *queue, struct pending *p)
{
  pthread_mutex_lock(&queue->store->mutex);
  let_go(queue->store, p);
  pthread_mutex_unlock(&queue->store->mutex);
  queue->free[queue->n_free++] = (uint32_t)(p - queue->pending);
}

/* Adds what the transfers counted since the last time. */
static void count(struct pen_store_queue *queue)
{
  struct pen_store_counters *sum = &queue->store->counters;
  struct pen_transfer_counters now, *told = &queue->told;
  pen_transfer_counters(queue->transfers, &now);
  pthread_mutex_lock(&queue->store->mutex);
  sum->bytes_read += now.bytes_read - told->bytes_read;
  sum->bytes_written += now.bytes_written - told->bytes_written;
  sum->retries += now.retries - told->retries;
  sum->short_transfers += now.short_transfers - told->short_transfers;
  pthread_mutex_unlock(&queue->store->mutex);
  *told = now;
}

void pen_store_queue_drain(struct pen_store_queue *q)
{
  /* The whole depth is asked for: what is in flight comes back, or fails. */
  struct pen_error standing;
  pen_error_take(&standing);
  while (q->n_free < q->depth) {
    int n = pen_transfer_reap(q->transfers, 1, q->depth, q->done);
    for (int i = 0; i < n; i++) {
      if (q->done[i].code) /* unreaped, and lost: the store must not go on */
        pen_store_fail(q->store, q->done[i].code);
      give_back(q, &q->pending[q->done[i].tag]);
    }
    if (n <= 0)
      break;
  }
  count(q);
  pen_error_put(&standing);
}

void pen_store_queue_free(struct pen_store_queue **queue)
{
  struct pen_store_queue *q = *queue;
  if (!q)
    return;
  pen_store_queue_drain(q);
  pen_transfer_queue_free(&q->transfers);
  free_memory(queue);
}

static struct pending *take(struct pen_store_queue *queue,
                            enum operation operation, size_t tile,
                            void *buffer, uint64_t tag)
{
  struct pending *p = &queue->pending[queue->free[--queue->n_free]];
  *p = (struct pending){.operation = operation,
                        .tile = tile,
                        .buffer = buffer,
                        .place = {.dir = UINT32_MAX},
                        .tag = tag};
  return p;
}

static int submit(struct pen_store_queue *queue, struct pending *p,
                  uint32_t file, uint64_t offset, size_t bytes)
{
  struct pen_transfer transfer = {
      .write = p->operation == WRITE_TILE || p->operation == WRITE_SCRATCH,
      .file = file,
      .offset = offset,
      .buffer = p->buffer,
      .bytes = bytes,
      .tag = (uint64_t)(p - queue->pending)};
  return pen_transfer_submit(queue->transfers, &transfer);
}

static int check_tile(const struct pen_store *store, size_t tile,
                      const void *buffer, size_t bytes)
{
  if (tile < store->committed.n_tiles && bytes &&
      bytes <= store->committed.tile_bytes && bytes % PEN_STORE_ALIGN == 0 &&
      (uintptr_t)buffer % PEN_STORE_ALIGN == 0)
    return 0;
  return pen_error_set(-EINVAL, "%zu bytes at %p for tile %zu of a store of "
                       "%" PRIu64 " tiles of %" PRIu64 " bytes", bytes, buffer,
                       tile, store->committed.n_tiles,
                       store->committed.tile_bytes);
}

int pen_store_read_tile(struct pen_store_queue *queue, size_t tile,
                        void *buffer, size_t bytes, uint64_t tag)
{
  struct pen_store *store = queue->store;
  int code = check_tile(store, tile, buffer, bytes);
  if (code)
    return code;
  if (!queue->n_free)
    return -EAGAIN;
  pthread_mutex_lock(&store->mutex);
  struct pen_store_place place = store->now[tile];
  bool known = place.dir != UINT32_MAX && bytes <= place.bytes;
  if (known)
    pen_store_space_hold(&store->space, &place);
  pthread_mutex_unlock(&store->mutex);
  if (!known)
    return pen_error_set(-PEN_EMISMATCH,
                         "%zu bytes of tile %zu are asked for, %" PRIu64
                         " were written", bytes, tile,
                         place.dir == UINT32_MAX ? 0 : place.bytes);
  struct pending *p = take(queue, READ_TILE, tile, buffer, tag);
  p->place = place;
  if (bytes < place.bytes) /* its head, or it will not have the head's CRC */
    p->place.crc = place.head_crc;
  p->place.bytes = bytes;
  code = submit(queue, p, place.dir,
                pen_store_extent_offset(store, place.extent), bytes);
  return code ? pen_store_fail(store, code) : 0;
}

/* `table` says where the tile lies from now on, placed there by `place_it`. */
static int write_tile(struct pen_store_queue *queue,
                      struct pen_store_place *table,
                      int (*place_it)(struct pen_store *store, size_t tile,
                                      size_t bytes,
                                      struct pen_store_place *ret_place),
                      size_t tile, const void *buffer, size_t bytes,
                      size_t head_bytes, uint64_t tag)
{
  struct pen_store *store = queue->store;
  struct pen_store_place place;
  int code = pen_store_check(store);
  assert(head_bytes <= bytes);
  if (!code)
    code = check_tile(store, tile, buffer, bytes);
  if (code)
    return code;
  if (!queue->n_free)
    return -EAGAIN;
  /* In place the tiles of a commit are about to be overwritten. */
  if (store->committed.in_place && store->committed.committed)
    code = pen_store_uncommit(store);
  if (!code)
    code = place_it(store, tile, bytes, &place);
  if (code)
    return code;
  struct pending *p = take(queue, WRITE_TILE, tile, (void *)buffer, tag);
  p->place = place;
  code = submit(queue, p, place.dir,
                pen_store_extent_offset(store, place.extent), bytes);
  place.head_crc = pen_crc32c(0, buffer, head_bytes);
  place.crc = pen_crc32c(place.head_crc, (const char *)buffer + head_bytes,
                         bytes - head_bytes);
  pen_store_note_crc(store, &table[tile], &place);
  return code ? pen_store_fail(store, code) : 0;
}

int pen_store_write_tile(struct pen_store_queue *queue, size_t tile,
                         const void *buffer, size_t bytes, size_t head_bytes,
                         uint64_t tag)
{
  return write_tile(queue, queue->store->now, pen_store_place_tile, tile, buffer, bytes,
                    head_bytes, tag);
}

int pen_store_write_rest(struct pen_store_queue *queue, size_t tile,
                         const void *buffer, size_t bytes, size_t head_bytes,
                         uint64_t tag)
{
  struct pen_store *store = queue->store;
  struct pen_store_place place;
  int code = pen_store_check(store);
  if (!code)
    code = check_tile(store, tile, buffer, bytes);
  if (!code)
    code = check_tile(store, tile, buffer, head_bytes + bytes);
  if (code)
    return code;
  if (!queue->n_free)
    return -EAGAIN;
  code = pen_store_place_rest(store, tile, bytes, head_bytes, &place);
  if (code)
    return code;
  struct pending *p = take(queue, WRITE_TILE, tile, (void *)buffer, tag);
  p->place = place;
  code = submit(queue, p, place.dir,
                pen_store_extent_offset(store, place.extent) + head_bytes, bytes);
  place.crc = pen_crc32c(place.head_crc, buffer, bytes);
  pen_store_note_crc(store, &store->now[tile], &place);
  return code ? pen_store_fail(store, code) : 0;
}

int pen_store_write_aside(struct pen_store_queue *queue, size_t tile,
                          const void *buffer, size_t bytes, size_t head_bytes,
                          uint64_t tag)
{
  if (queue->store->committed.in_place)
    return pen_error_set(-PEN_EUNSUPPORTED, "a store that updates in place "
                         "(--durability none) has nothing free to write aside");
  return write_tile(queue, queue->store->aside, pen_store_place_aside, tile, buffer, bytes,
                    head_bytes, tag);
}

static int scratch(struct pen_store_queue *queue, enum operation operation,
                   uint64_t offset, void *buffer, size_t bytes, uint64_t tag)
{
  struct pen_store *store = queue->store;
  uint64_t all = store->committed.scratch_bytes;
  if (!bytes || ((uintptr_t)buffer | bytes | offset) % PEN_STORE_ALIGN ||
      bytes > all || offset > all - bytes)
    return pen_error_set(-EINVAL, "%zu bytes at byte %" PRIu64 " (buffer %p) of "
                         "%" PRIu64 " bytes of scratch", bytes, offset, buffer,
                         all);
  if (!queue->n_free)
    return -EAGAIN;
  struct pending *p = take(queue, operation, 0, buffer, tag);
  int code = submit(queue, p, PEN_TRANSFER_STRIPED, offset, bytes);
  return code ? pen_store_fail(store, code) : 0;
}

int pen_store_read_scratch(struct pen_store_queue *queue, uint64_t offset,
                           void *buffer, size_t bytes, uint64_t tag)
{
  return scratch(queue, READ_SCRATCH, offset, buffer, bytes, tag);
}

int pen_store_write_scratch(struct pen_store_queue *queue, uint64_t offset,
                            const void *buffer, size_t bytes, uint64_t tag)
{
  int code = pen_store_check(queue->store);
  return code ? code
              : scratch(queue, WRITE_SCRATCH, offset, (void *)buffer, bytes,
                        tag);
}

/* A tile that was read must be what was written. */
static int check_crc(const struct pen_store_queue *queue,
                     const struct pending *p)
{
  const struct pen_store *store = queue->store;
  if (p->operation != READ_TILE || !store->engine->keeps)
    return 0;
  uint32_t crc = pen_crc32c(0, p->buffer, (size_t)p->place.bytes);
  return crc == p->place.crc
             ? 0
             : pen_error_set(-PEN_ECORRUPT,
                             "tile %zu, %" PRIu64 " bytes at byte %" PRIu64
                             " of %s: checksum %08x, %08x was written",
                             p->tile, p->place.bytes,
                             pen_store_extent_offset(store, p->place.extent),
                             store->files[p->place.dir]->path, crc,
                             p->place.crc);
}

int pen_store_reap(struct pen_store_queue *queue, size_t min, size_t max,
                   uint64_t *ret_tags)
{
  if (max > queue->depth)
    max = queue->depth;
  if (min > max)
    min = max;
  int n = pen_transfer_reap(queue->transfers, min, max, queue->done);
  int code = n < 0 ? n : 0;
  for (int i = 0; i < n; i++) {
    struct pending *p = &queue->pending[queue->done[i].tag];
    int this_code = queue->done[i].code;
    if (!this_code && !code)
      this_code = check_crc(queue, p);
    if (this_code && !code)
      code = this_code;
    ret_tags[i] = p->tag;
    give_back(queue, p);
  }
  count(queue);
  return code ? pen_store_fail(queue->store, code) : n;
}
