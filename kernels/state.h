/* state.h: the forms in which optimizer state is kept, a row each: what an
 * element takes, and one AdamW step on it.
 *
 * The state of a range of elements is a few arrays, one after the other, each
 * with some bytes for a fixed number of elements.  Nobody but a row knows how
 * many there are or what is in them.  In some formats the upper half of a
 * master weight is the bf16 weight itself, which lies elsewhere: the half. */
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
  enum pen_isa isa;
  const struct pen_adamw_params *params;
  struct pen_state_part part;
  size_t decay_begin, decay_end; /* of part.n: these elements decay */
  /* What random rounding is a function of: `key`, of seed, step and block, and
   * an element's number in its block, here of the range's first. */
  uint64_t key, first;
  enum pen_elem elem; /* of grad and weight, both [part.n]; bf16 with a half */
  const void *grad;
  void *weight; /* out; where the format has a half: that, in and out */
};

/* What a row does at one instruction set; arrays[i] is array i at the range's
 * first element, n a multiple of PEN_STATE_GROUP_ELEMS. */
struct pen_state_row {
  void (*update)(const struct pen_state_update *update, void *const *arrays);
  void (*pack)(size_t n, void *const *arrays, uint16_t *half, const float *p,
               const float *m, const float *v);
  void (*unpack)(size_t n, void *const *arrays, const uint16_t *half, float *p,
                 float *m, float *v);
};

/* A format's number: its place in the table of formats, which files of state keep.
 * New ones go to the end. */
enum pen_state_kind {
  PEN_STATE_FP32, PEN_STATE_SPLIT32, PEN_STATE_BF16, PEN_STATE_INT8
};

struct pen_state_format {
  enum pen_state_kind kind;
  const char *name;
  bool exact;    /* trains to the same bits as fp32 */
  const char *rounds; /* what of fp32 state it does not keep; NULL: keeps all */
  bool is_plain; /* its arrays are p, m and v in fp32 */
  bool has_half;
  size_t n_arrays;
  struct pen_state_array arrays[PEN_STATE_ARRAYS_MAX];
  const struct pen_state_row *rows[PEN_ISA_COUNT];
};

extern const struct pen_state_format pen_state_fp32, pen_state_split32,
    pen_state_bf16, pen_state_int8;

/* Formats by number, which files of state keep; NULL behind the last. */
const struct pen_state_format *pen_state_numbered(size_t number);
size_t pen_state_number(const struct pen_state_format *format);
/* -PEN_EUSAGE, listing the names, where there is none of this name. */
int pen_state_find(const char *name, const struct pen_state_format **ret_format);

/* ret_arrays: each array at the range's first element. */
static inline void
pen_state_find_arrays(const struct pen_state_format *format,
                      const struct pen_state_part *part,
                      void *ret_arrays[PEN_STATE_ARRAYS_MAX])
{
  char *array = (char *)part->arrays; /* C++ reads this, too */
  for (size_t i = 0; i < format->n_arrays; i++) {
    size_t bytes = format->arrays[i].group_bytes;
    ret_arrays[i] = array + part->begin / PEN_STATE_GROUP_ELEMS * bytes;
    array += part->elems / PEN_STATE_GROUP_ELEMS * bytes;
  }
}

/* Bytes of all arrays for `elems` elements; and of their halves, 0 where the
 * format has none. */
size_t pen_state_bytes(const struct pen_state_format *format, size_t elems);
size_t pen_state_half_bytes(const struct pen_state_format *format,
                            size_t elems);

/* The range's elements of `from`, arrays of as many elements, into its own. */
void pen_state_copy(const struct pen_state_format *format,
                    const struct pen_state_part *part, const void *from);

/* One step.  Any thread, for ranges apart from each other. */
void pen_state_update(const struct pen_state_format *format,
                      const struct pen_state_update *update);

/* State to and from fp32: p, m, v [part.n], half [part.n] or NULL.  Rounds to
 * nearest; what was unpacked is packed to the same bits. */
void pen_state_pack(const struct pen_state_format *format, enum pen_isa isa,
                    const struct pen_state_part *part, uint16_t *half,
                    const float *p, const float *m, const float *v);
void pen_state_unpack(const struct pen_state_format *format, enum pen_isa isa,
                      const struct pen_state_part *part, const uint16_t *half,
                      float *p, float *m, float *v);

#endif
