/* pack.h: sequences laid into rows of a limited length by best fit. */
#ifndef PEN_SRC_DATA_PACK_H
#define PEN_SRC_DATA_PACK_H

#include <stddef.h>
#include <stdint.h>

struct pen_pack {
  uint64_t n_rows;
  uint64_t *row_begin; /* [n_rows+1], places in `ids` */
  uint64_t *ids;       /* [n], row by row, ascending in each */
};

/* Lays n sequences of lengths[n] (each 1 to capacity) into rows of at most
 * `capacity` in all: longest first, each into the fullest row that has room for
 * it (best fit decreasing: at most 11/9 of the fewest rows possible, plus one;
 * Johnson 1973).  A pure function of its arguments.  The caller owns *ret_pack
 * (pen_pack_free).  -ENOMEM. */
int pen_pack_best_fit(const uint32_t *lengths, uint64_t n, uint32_t capacity,
                      struct pen_pack *ret_pack);
/* Of a pack that is all zero too. */
void pen_pack_free(struct pen_pack *pack);

#endif
