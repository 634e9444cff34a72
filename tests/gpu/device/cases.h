/* cases.h: one call of every operation of ops.h, at any shape, with what its
 * arrays hold and how far two backends may differ. */
#ifndef PEN_TESTS_GPU_DEVICE_CASES_H
#define PEN_TESTS_GPU_DEVICE_CASES_H

#include "kernels/ops.h"

#define CASE_ARRAYS_MAX 12

struct case_shape {
  size_t tokens, heads, kv_heads, dim; /* dim even; heads whole kv_heads */
  size_t cols;
};

/* What an array holds; E is the table's element type. */
enum case_holds {
  FLOATS, ELEMS, IDS, TARGETS, FIRST_KEYS, DOUBLES, COUNTS,
  NUMBERS, /* 0, 1, 2 ... */
  BITS     /* words of any content */
};

struct case_array {
  enum case_holds holds;
  size_t n;
  bool read, written; /* neither: work space */
  float low, high;    /* of random numbers */
};

struct op_case {
  const char *name;
  size_t (*arrays)(const struct case_shape *s,
                   struct case_array arrays[CASE_ARRAYS_MAX]);
  void (*run)(const struct case_shape *s, const struct pen_ops *ops,
              struct pen_stream *stream, void *const *at);
  /* Greatest difference, as a share of the array's greatest value: fp32, bf16.
   * 0: the bits. */
  double share_f32, share_bf16;
  double (*flops)(const struct case_shape *s); /* NULL: bound by memory */
};
extern const struct op_case op_cases[]; /* ended by a NULL name */

#endif
