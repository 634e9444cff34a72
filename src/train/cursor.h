/* cursor.h: where a run is: what every commit and checkpoint carries beside the
 * state itself. */
#ifndef PEN_SRC_TRAIN_CURSOR_H
#define PEN_SRC_TRAIN_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fixed-size and without padding: written as it is (little-endian). */
struct pen_cursor {
  uint64_t magic, version;
  uint64_t step;    /* optimizer steps finished: the next one's number */
  uint64_t applied; /* of them applied: the t of bias correction */
  uint64_t skipped; /* of them skipped for non-finite gradients */
  uint64_t skipped_in_row;
  uint64_t n_targets; /* target tokens trained so far */
  uint64_t numerics_hash;
  uint64_t tile_elems;  /* how the tiles of this state are cut */
  uint32_t whole;       /* 1: the store holds every tile */
  uint32_t state;       /* number of its format (kernels/state.h) */
};

#define PEN_CURSOR_MAGIC UINT64_C(0x524f53525543504e) /* "NPCURSOR" */
#define PEN_CURSOR_VERSION 1

/* -PEN_EFORMAT when these bytes are no cursor of this version, or its state has
 * a format that is not known. */
int pen_cursor_read(const void *bytes, size_t n_bytes,
                    struct pen_cursor *ret_cursor);

#endif
