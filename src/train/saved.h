/* saved.h: saved optimizer state: a checkpoint's state file, written and read,
 * or a store's newest commit, read; both by element, whatever the tiles. */
#ifndef PEN_SRC_TRAIN_SAVED_H
#define PEN_SRC_TRAIN_SAVED_H

#include "io/store.h"
#include "offload/layout.h"
#include "src/train/cursor.h"

#define PEN_SAVED_FILE "penstock.state"
#define PEN_SAVED_NO_STORE UINT32_MAX

/* One tile of saved state: in the file at `offset`, or where `place` says in
 * the store. */
struct pen_saved_tile {
  uint32_t block, crc;
  uint64_t begin, elems;
  uint64_t offset; /* 0: in the store */
  struct pen_store_place place;
};

/* Writing: open, add every tile in any order, finish. */
struct pen_saved_writer;

/* Makes `path` with room for the layout's RAM tiles.  generation: of the store
 * that holds the others, or PEN_SAVED_NO_STORE.  Caller owns *ret_writer. */
int pen_saved_create(const char *path, const struct pen_layout *layout,
                     const struct pen_cursor *cursor, uint32_t generation,
                     struct pen_saved_writer **ret_writer);
/* The arrays of RAM tile `tile`, in the layout's format, and its halves; NULL
 * where the format has none. */
int pen_saved_put_tile(struct pen_saved_writer *writer, uint32_t tile,
                       const void *state, const void *half);
/* Where the store's tiles lie: places [n_store_tiles], as pen_store_pin says. */
int pen_saved_put_places(struct pen_saved_writer *writer,
                         const struct pen_store_place *places);
/* The table, then the header that makes the file whole, each synced.  Frees the
 * writer either way. */
int pen_saved_finish(struct pen_saved_writer **writer);
/* NULL is fine. */
void pen_saved_abandon(struct pen_saved_writer **writer);

/* Reading. */
struct pen_saved;

/* Opens a state file: its table is checked, its tiles when they are read.
 * -ENOENT, -PEN_ESHORT, -PEN_ECORRUPT.  Caller owns *ret_saved. */
int pen_saved_open(const char *path, struct pen_saved **ret_saved);
/* A store's newest commit, whose blocks are the workload's. */
int pen_saved_from_store(const struct pen_workload *workload,
                         struct pen_store *store,
                         struct pen_saved **ret_saved);
void pen_saved_close(struct pen_saved **saved);

const struct pen_cursor *pen_saved_cursor(const struct pen_saved *saved);
uint32_t pen_saved_generation(const struct pen_saved *saved);
size_t pen_saved_n_tiles(const struct pen_saved *saved);
const struct pen_saved_tile *pen_saved_tile(const struct pen_saved *saved,
                                            size_t tile);
/* Places of the store's tiles, in the store's numbering; NULL without. */
const struct pen_store_place *pen_saved_places(const struct pen_saved *saved,
                                               size_t *ret_n);

/* Gives it the store in which its other tiles lie, which must have been rewound
 * to this state.  Borrowed until close. */
int pen_saved_use_store(struct pen_saved *saved, struct pen_store *store);

/* p, m, v [n] = elements [begin, begin + n) of a block, as fp32 whatever the
 * format.  Reads whole tiles and checks their CRC.  Where the format is fp32 and
 * exactly one tile is asked for, with p, m, v one behind the other from a page's
 * start on, it is read right there, and the rest of the last page is
 * overwritten; else into one buffer of its own, each tile once when the reads
 * are sequential.  -PEN_EMISMATCH when the state does not hold these elements. */
int pen_saved_read(struct pen_saved *saved, uint32_t block, size_t begin,
                   size_t n, float *p, float *m, float *v);

/* Is it cut, placed and kept exactly as this layout: same tiles, the same ones in
 * the store, the same format? */
bool pen_saved_matches(const struct pen_saved *saved,
                       const struct pen_layout *layout);

#endif
