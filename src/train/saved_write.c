/* saved_write.c: a checkpoint's state file, written while the update goes on.
 *
 * Tiles in any order, then the table, then, after a sync, the header: a file
 * without its header is no state.  The write lane's thread, then main.
 * Disadvantage: buffered writes; a large state passes through the page cache. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "io/crc32c.h"
#include "io/files.h"
#include "src/train/saved_format.h"

struct pen_saved_writer {
  int fd;
  char *path;
  struct pen_saved_header header;
  struct pen_saved_tile *tiles;
  uint32_t *store_tiles; /* [tiles] number in the store or PEN_NONE */
  const struct pen_state_format *format;
};

static int make_table(struct pen_saved_writer *w,
                      const struct pen_layout *layout)
{
  size_t n = layout->n_tiles;
  w->tiles = calloc(n, sizeof *w->tiles);
  w->store_tiles = calloc(n, sizeof *w->store_tiles);
  if (!w->tiles || !w->store_tiles)
    return pen_error_set(PEN_ENOFIT, "no memory for a table of %zu tiles", n);
  uint64_t offset = PEN_SAVED_PAGE;
  for (size_t i = 0; i < n; i++) {
    const struct pen_tile *tile = &layout->tiles[i];
    w->store_tiles[i] = tile->store_tile;
    w->tiles[i] = (struct pen_saved_tile){
        .block = tile->block, .begin = tile->begin, .elems = tile->elems};
    if (tile->store_tile != UINT32_MAX)
      continue;
    w->tiles[i].offset = offset;
    offset += pen_layout_image_bytes(layout, tile);
  }
  w->header.n_tiles = n;
  w->header.table_offset = offset;
  w->header.file_bytes = offset + n * sizeof *w->tiles;
  return 0;
}

int pen_saved_create(const char *path, const struct pen_layout *layout,
                     const struct pen_cursor *cursor, uint32_t generation,
                     struct pen_saved_writer **ret_writer)
{
  struct pen_saved_writer *w = calloc(1, sizeof *w);
  if (!w)
    return pen_error_set(PEN_ENOFIT, "no memory to write %s", path);
  w->header = (struct pen_saved_header){.magic = PEN_SAVED_MAGIC,
                                        .version = PEN_SAVED_VERSION,
                                        .generation = generation,
                                        .cursor = *cursor};
  w->format = layout->state;
  w->header.cursor.state = (uint32_t)pen_state_number(layout->state);
  w->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  w->path = strdup(path);
  int rc = w->fd < 0 ? pen_error_set(-errno, "cannot create %s", path) : 0;
  if (rc == 0)
    rc = make_table(w, layout);
  if (rc == 0)
    rc = pen_files_reserve(w->fd, path, w->header.file_bytes);
  if (rc < 0)
    pen_saved_abandon(&w);
  else
    *ret_writer = w;
  return rc;
}

int pen_saved_put_tile(struct pen_saved_writer *w, uint32_t tile,
                       const void *state, const void *half)
{
  struct pen_saved_tile *t = &w->tiles[tile];
  size_t bytes = pen_state_bytes(w->format, t->elems);
  size_t half_bytes = pen_state_half_bytes(w->format, t->elems);
  t->crc = pen_crc32c(0, state, bytes);
  int rc = pen_files_write_at(w->fd, w->path, state, bytes, t->offset);
  if (rc < 0 || !half_bytes)
    return rc;
  t->crc = pen_crc32c(t->crc, half, half_bytes);
  return pen_files_write_at(w->fd, w->path, half, half_bytes,
                            t->offset + pen_saved_page_up(bytes));
}

int pen_saved_put_places(struct pen_saved_writer *w,
                         const struct pen_store_place *places)
{
  for (size_t i = 0; i < w->header.n_tiles; i++)
    if (w->store_tiles[i] != UINT32_MAX) {
      w->tiles[i].place = places[w->store_tiles[i]];
      w->tiles[i].crc = w->tiles[i].place.crc;
    }
  return 0;
}

static int sync_file(const struct pen_saved_writer *w)
{
  if (fdatasync(w->fd) < 0)
    return pen_error_set(-errno, "cannot sync %s", w->path);
  return 0;
}

int pen_saved_finish(struct pen_saved_writer **writer)
{
  struct pen_saved_writer *w = *writer;
  size_t bytes = w->header.n_tiles * sizeof *w->tiles;
  char page[PEN_SAVED_PAGE] = {0};
  w->header.table_crc = pen_crc32c(0, w->tiles, bytes);
  w->header.crc = 0;
  w->header.crc = pen_crc32c(0, &w->header, sizeof w->header);
  memcpy(page, &w->header, sizeof w->header);
  int rc = pen_files_write_at(w->fd, w->path, w->tiles, bytes,
                              w->header.table_offset);
  if (rc == 0)
    rc = sync_file(w);
  if (rc == 0)
    rc = pen_files_write_at(w->fd, w->path, page, sizeof page, 0);
  if (rc == 0)
    rc = sync_file(w);
  pen_saved_abandon(writer);
  return rc;
}

void pen_saved_abandon(struct pen_saved_writer **writer)
{
  struct pen_saved_writer *w = *writer;
  if (!w)
    return;
  if (w->fd >= 0)
    close(w->fd);
  free(w->path);
  free(w->tiles);
  free(w->store_tiles);
  free(w);
  *writer = NULL;
}
