/* state.h: the forms in which optimizer state is kept, a row each: what an
 * element takes, and one AdamW step on it.
 *
 * The state of a range of elements is a few arrays, one after the other, each
 * with some bytes for a fixed number of elements.  Nobody but a row knows how
 * many there are or what is in them. */
#ifndef PEN_KERNELS_STATE_H
#define PEN_KERNELS_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/adamw.h"
#include "kernels/elem.h"

#define PEN_STATE_ARRAYS_MAX 5

/* Ranges begin and end at multiples of this, so that a row may give so many
 * elements something in common. */
#define PEN_STATE_GROUP_ELEMS ((size_t)64)

struct pen_state_array {
  const char *name; /* "m" */
  size_t group_bytes; /* of PEN_STATE_GROUP_ELEMS elements */
};

/* A range: elements [begin, begin + n) of arrays that hold `elems`. */
struct pen_state_part {
  void *arrays;
  size_t elems, begin, n;
};

/* One AdamW step over a range. */
struct pen_state_update {
  const struct pen_adamw_params *params;
  struct pen_state_part part;
  size_t decay_begin, decay_end; /* of part.n: these elements decay */
  enum pen_elem elem; /* of grad and weight, both [part.n] */
  const void *grad;
  void *weight; /* out */
};

struct pen_state_format {
  const char *name;
  bool exact;     /* trains to the same bits as fp32 */
  bool is_plain;  /* its arrays are p, m and v in fp32 */
  size_t n_arrays;
  struct pen_state_array arrays[PEN_STATE_ARRAYS_MAX];
  void (*update)(enum pen_isa isa, const struct pen_state_update *update);
  /* State to and from fp32: p, m, v [part.n] each. */
  void (*pack)(enum pen_isa isa, const struct pen_state_part *part,
               const float *p, const float *m, const float *v);
  void (*unpack)(enum pen_isa isa, const struct pen_state_part *part, float *p,
                 float *m, float *v);
};

extern const struct pen_state_format pen_state_fp32;

/* Rows by number, which files of state keep; NULL behind the last. */
const struct pen_state_format *pen_state_row(size_t number);
size_t pen_state_number(const struct pen_state_format *format);
/* -PEN_EUSAGE, listing the names, where there is no such row. */
int pen_state_find(const char *name, const struct pen_state_format **ret_format);

/* Bytes of all arrays for `elems` elements. */
size_t pen_state_bytes(const struct pen_state_format *format, size_t elems);
/* Where array `i` has what belongs to the range's first element. */
void *pen_state_at(const struct pen_state_format *format,
                   const struct pen_state_part *part, size_t i);

#endif
