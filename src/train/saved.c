/* saved.c: reads saved state by element, from a file, a store, or both.
 *
 * One tile at a time is held, checked, in one buffer; a reader that goes
 * through the elements in order loads each tile once.  Main thread.
 * Disadvantage: transfers are waited for one by one. */
#include "src/train/saved.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "io/crc32c.h"
#include "io/files.h"
#include "src/train/saved_format.h"

#define NO_TILE SIZE_MAX

struct pen_saved {
  int fd;
  char *path;
  struct pen_cursor cursor;
  uint32_t generation;
  struct pen_saved_tile *tiles;
  size_t n_tiles;
  struct pen_store_place *places; /* of the store's tiles, in order */
  size_t n_places;
  struct pen_store_queue *queue;
  const struct pen_state_format *format;
  void *buffer; /* one tile's image (offload/layout.h) */
  size_t buffer_bytes;
  size_t held;   /* tile in the buffer */
};

static int no_memory(const char *path)
{
  return pen_error_set(PEN_ENOFIT, "no memory to read the state in %s", path);
}

/* At the first read: most state files are only asked where their tiles are. */
static int take_buffer(struct pen_saved *s)
{
  if (s->buffer)
    return 0;
  size_t most = 0;
  for (size_t i = 0; i < s->n_tiles; i++)
    if (s->tiles[i].elems > most)
      most = s->tiles[i].elems;
  s->buffer_bytes =
      pen_saved_page_up(pen_state_bytes(s->format, most)) +
      pen_saved_page_up(pen_state_half_bytes(s->format, most));
  s->buffer = aligned_alloc(PEN_SAVED_PAGE,
                            s->buffer_bytes ? s->buffer_bytes : PEN_SAVED_PAGE);
  s->held = NO_TILE;
  return s->buffer ? 0 : no_memory(s->path);
}

static int list_places(struct pen_saved *s)
{
  s->places = calloc(s->n_tiles ? s->n_tiles : 1, sizeof *s->places);
  if (!s->places)
    return no_memory(s->path);
  for (size_t i = 0; i < s->n_tiles; i++)
    if (!s->tiles[i].offset)
      s->places[s->n_places++] = s->tiles[i].place;
  return 0;
}

/* Up to the last byte that is used. */
static size_t image_bytes(const struct pen_state_format *format, size_t elems)
{
  size_t arrays = pen_state_bytes(format, elems);
  size_t half = pen_state_half_bytes(format, elems);
  return half ? pen_saved_page_up(arrays) + half : arrays;
}

static int read_table(struct pen_saved *s, const struct pen_saved_header *h)
{
  size_t bytes = h->n_tiles * sizeof *s->tiles;
  s->n_tiles = h->n_tiles;
  s->tiles = malloc(bytes ? bytes : 1);
  if (!s->tiles)
    return no_memory(s->path);
  int rc = pen_files_read_at(s->fd, s->path, s->tiles, bytes, h->table_offset);
  if (rc == 0 && pen_crc32c(0, s->tiles, bytes) != h->table_crc)
    rc = pen_error_set(PEN_ECORRUPT, "%s: the table of tiles is damaged",
                       s->path);
  for (size_t i = 0; rc == 0 && i < s->n_tiles; i++) {
    const struct pen_saved_tile *t = &s->tiles[i];
    bool fits = t->elems % PEN_STATE_GROUP_ELEMS == 0 &&
                t->elems <= h->file_bytes * PEN_STATE_GROUP_ELEMS &&
                t->offset <= h->file_bytes;
    if (!fits || (t->offset && image_bytes(s->format, t->elems) >
                                   h->file_bytes - t->offset))
      rc = pen_error_set(PEN_EFORMAT, "%s: tile %zu lies outside the file",
                         s->path, i);
  }
  return rc;
}

static int read_header(struct pen_saved *s, struct pen_saved_header *ret_header)
{
  struct stat st;
  struct pen_saved_header h;
  int rc = pen_files_read_at(s->fd, s->path, &h, sizeof h, 0);
  if (rc < 0)
    return rc;
  uint32_t crc = h.crc;
  h.crc = 0;
  if (h.magic != PEN_SAVED_MAGIC || pen_crc32c(0, &h, sizeof h) != crc)
    return pen_error_set(PEN_ECORRUPT, "%s is not a whole state file",
                         s->path);
  if (h.version != PEN_SAVED_VERSION)
    return pen_error_set(PEN_EFORMAT, "%s has version %u, this penstock reads "
                         "%d", s->path, h.version, PEN_SAVED_VERSION);
  if (fstat(s->fd, &st) < 0)
    return pen_error_set(-errno, "cannot look at %s", s->path);
  if ((uint64_t)st.st_size != h.file_bytes ||
      h.n_tiles > h.file_bytes / sizeof(struct pen_saved_tile) ||
      h.table_offset > h.file_bytes - h.n_tiles * sizeof(struct pen_saved_tile))
    return pen_error_set(PEN_ESHORT, "%s has %llu bytes, its header says %llu",
                         s->path, (unsigned long long)st.st_size,
                         (unsigned long long)h.file_bytes);
  int code = pen_cursor_read(&h.cursor, sizeof h.cursor, &s->cursor);
  if (code < 0)
    return pen_error_context(code, "%s", s->path);
  s->format = pen_state_numbered(s->cursor.state);
  *ret_header = h;
  return 0;
}

int pen_saved_open(const char *path, struct pen_saved **ret_saved)
{
  struct pen_saved_header header = {0};
  struct pen_saved *s = calloc(1, sizeof *s);
  if (!s)
    return no_memory(path);
  s->path = strdup(path);
  s->fd = open(path, O_RDONLY | O_CLOEXEC);
  int rc = s->fd < 0 ? pen_error_set(-errno, "cannot open %s", path) : 0;
  if (rc == 0)
    rc = read_header(s, &header);
  if (rc == 0)
    rc = read_table(s, &header);
  if (rc == 0)
    rc = list_places(s);
  if (rc < 0) {
    pen_saved_close(&s);
    return rc;
  }
  s->generation = header.generation;
  *ret_saved = s;
  return 0;
}

/* The tiles that a layout with this tile size and every tile in the store has. */
static int cut_tiles(struct pen_saved *s, const struct pen_workload *w)
{
  size_t n = 0, size = s->cursor.tile_elems;
  for (size_t b = 0; b < w->n_blocks; b++)
    n += (w->blocks[b].elems + size - 1) / size;
  s->tiles = calloc(n, sizeof *s->tiles);
  if (!s->tiles)
    return no_memory("the store");
  for (size_t b = 0; b < w->n_blocks; b++)
    for (size_t e = 0; e < w->blocks[b].elems; e += size) {
      size_t left = w->blocks[b].elems - e;
      s->tiles[s->n_tiles++] = (struct pen_saved_tile){
          .block = (uint32_t)b,
          .begin = e,
          .elems = left < size ? left : size};
    }
  return 0;
}

int pen_saved_from_store(const struct pen_workload *workload,
                         struct pen_store *store, struct pen_saved **ret_saved)
{
  struct pen_store_commit_info info;
  struct pen_saved *s = calloc(1, sizeof *s);
  if (!s)
    return no_memory("the store");
  s->fd = -1;
  s->path = strdup("the store");
  pen_store_committed(store, &info);
  int rc = pen_cursor_read(info.meta, info.meta_bytes, &s->cursor);
  if (rc == 0 && (s->cursor.tile_elems == 0 ||
                  s->cursor.tile_elems % PEN_STATE_GROUP_ELEMS))
    rc = pen_error_set(PEN_EFORMAT, "the store's tiles have %llu elements",
                       (unsigned long long)s->cursor.tile_elems);
  if (rc == 0)
    s->format = pen_state_numbered(s->cursor.state);
  if (rc == 0)
    rc = cut_tiles(s, workload);
  if (rc == 0 && s->n_tiles != pen_store_n_tiles(store))
    rc = pen_error_set(PEN_EMISMATCH,
                       "the store holds %zu tiles, the model has %zu: it is "
                       "another model's",
                       pen_store_n_tiles(store), s->n_tiles);
  if (rc == 0)
    rc = pen_saved_use_store(s, store);
  if (rc < 0)
    pen_saved_close(&s);
  else
    *ret_saved = s;
  return rc;
}

void pen_saved_close(struct pen_saved **saved)
{
  struct pen_saved *s = *saved;
  if (!s)
    return;
  pen_store_queue_free(&s->queue);
  if (s->fd >= 0)
    close(s->fd);
  free(s->path);
  free(s->tiles);
  free(s->places);
  free(s->buffer);
  free(s);
  *saved = NULL;
}

const struct pen_cursor *pen_saved_cursor(const struct pen_saved *saved)
{
  return &saved->cursor;
}

uint32_t pen_saved_generation(const struct pen_saved *saved)
{
  return saved->generation;
}

size_t pen_saved_n_tiles(const struct pen_saved *saved)
{
  return saved->n_tiles;
}

const struct pen_saved_tile *pen_saved_tile(const struct pen_saved *saved,
                                            size_t tile)
{
  return &saved->tiles[tile];
}

const struct pen_store_place *pen_saved_places(const struct pen_saved *saved,
                                               size_t *ret_n)
{
  *ret_n = saved->n_places;
  return saved->n_places ? saved->places : NULL;
}

int pen_saved_use_store(struct pen_saved *saved, struct pen_store *store)
{
  return pen_store_queue_create(store, 1, NULL, 0, &saved->queue);
}

/* Number of a tile among those in the store. */
static size_t store_number(const struct pen_saved *s, size_t tile)
{
  size_t number = 0;
  for (size_t i = 0; i < tile; i++)
    number += s->tiles[i].offset == 0;
  return number;
}

/* A whole tile, checked, into `out`: a page's start, with room to a page's end. */
static int read_tile(struct pen_saved *s, size_t tile, void *out)
{
  const struct pen_saved_tile *t = &s->tiles[tile];
  size_t arrays = pen_state_bytes(s->format, t->elems);
  size_t half = pen_state_half_bytes(s->format, t->elems);
  size_t bytes = image_bytes(s->format, t->elems);
  int rc;
  if (t->offset) {
    rc = pen_files_read_at(s->fd, s->path, out, bytes, t->offset);
    uint32_t crc = rc == 0 ? pen_crc32c(0, out, arrays) : 0;
    if (rc == 0 && half)
      crc = pen_crc32c(crc, (char *)out + pen_saved_page_up(arrays), half);
    if (rc == 0 && crc != t->crc)
      rc = pen_error_set(PEN_ECORRUPT,
                         "%s: %zu bytes at offset %llu are not what was "
                         "written; resume from another checkpoint",
                         s->path, bytes, (unsigned long long)t->offset);
  } else {
    uint64_t tag;
    rc = pen_store_read_tile(s->queue, store_number(s, tile), out,
                             pen_saved_page_up(bytes), 0);
    if (rc == 0)
      rc = pen_store_reap(s->queue, 1, 1, &tag);
  }
  return rc < 0 ? rc : 0;
}

static int hold(struct pen_saved *s, size_t tile)
{
  int rc = take_buffer(s);
  if (rc < 0 || s->held == tile)
    return rc;
  s->held = NO_TILE;
  rc = read_tile(s, tile, s->buffer);
  if (rc == 0)
    s->held = tile;
  return rc;
}

/* The tile that holds an element; tiles are sorted by block, then element. */
static size_t find_tile(const struct pen_saved *s, uint32_t block, size_t elem)
{
  size_t low = 0, high = s->n_tiles;
  while (low < high) {
    size_t middle = (low + high) / 2;
    const struct pen_saved_tile *t = &s->tiles[middle];
    if (t->block < block || (t->block == block && t->begin + t->elems <= elem))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Elements [from, from + n) of the tile in the buffer. */
static void unpack_some(const struct pen_saved *s,
                        const struct pen_saved_tile *t, size_t from, size_t n,
                        float *p, float *m, float *v)
{
  float *to[] = {p, m, v};
  float group[3][PEN_STATE_GROUP_ELEMS];
  struct pen_state_part part = {.arrays = s->buffer, .elems = t->elems};
  const uint16_t *half =
      (const uint16_t *)((char *)s->buffer +
                         pen_saved_page_up(pen_state_bytes(s->format, t->elems)));
  for (size_t at = from, count; at < from + n; at += count) {
    size_t skip = at % PEN_STATE_GROUP_ELEMS;
    part.begin = at - skip;
    count = (from + n - at) / PEN_STATE_GROUP_ELEMS * PEN_STATE_GROUP_ELEMS;
    if (skip == 0 && count) {
      part.n = count;
      pen_state_unpack(s->format, PEN_ISA_SCALAR, &part, half + part.begin,
                       p + (at - from), m + (at - from), v + (at - from));
      continue;
    }
    part.n = PEN_STATE_GROUP_ELEMS;
    count = part.n - skip < from + n - at ? part.n - skip : from + n - at;
    pen_state_unpack(s->format, PEN_ISA_SCALAR, &part, half + part.begin,
                     group[0], group[1], group[2]);
    for (int i = 0; i < 3; i++)
      memcpy(to[i] + (at - from), group[i] + skip, count * sizeof(float));
  }
}

int pen_saved_read(struct pen_saved *saved, uint32_t block, size_t begin,
                   size_t n, float *p, float *m, float *v)
{
  while (n > 0) {
    size_t i = find_tile(saved, block, begin);
    const struct pen_saved_tile *t = &saved->tiles[i];
    if (i == saved->n_tiles || t->block != block || t->begin > begin)
      return pen_error_set(PEN_EMISMATCH,
                           "%s does not hold element %zu of block %u: it is "
                           "another model's state",
                           saved->path, begin, block);
    if (saved->format->is_plain && t->begin == begin && t->elems == n &&
        m == p + n && v == m + n && (uintptr_t)p % PEN_SAVED_PAGE == 0)
      return read_tile(saved, i, p);
    int rc = hold(saved, i);
    if (rc < 0)
      return rc;
    size_t from = begin - t->begin, count = t->elems - from;
    if (count > n)
      count = n;
    unpack_some(saved, t, from, count, p, m, v);
    begin += count, n -= count;
    p += count, m += count, v += count;
  }
  return 0;
}

bool pen_saved_matches(const struct pen_saved *saved,
                       const struct pen_layout *layout)
{
  if (saved->n_tiles != layout->n_tiles || saved->format != layout->state)
    return false;
  for (size_t i = 0; i < layout->n_tiles; i++) {
    const struct pen_saved_tile *a = &saved->tiles[i];
    const struct pen_tile *b = &layout->tiles[i];
    if (a->block != b->block || a->begin != b->begin || a->elems != b->elems ||
        (a->offset == 0) != (b->store_tile != UINT32_MAX))
      return false;
  }
  return true;
}
