/* images.h: the arrays of a case, laid out between guards and filled. */
#ifndef PEN_TESTS_GPU_DEVICE_IMAGES_H
#define PEN_TESTS_GPU_DEVICE_IMAGES_H

#include "tests/gpu/device/cases.h"

/* All arrays of one case at one shape, in images of the same layout: what they
 * hold at first, after the host's operation, after the device's, and after its
 * second run. */
struct op_trial {
  const struct op_case *c;
  struct case_shape shape;
  enum pen_elem elem;
  struct case_array arrays[CASE_ARRAYS_MAX];
  size_t at[CASE_ARRAYS_MAX], n, bytes;
  uint64_t seed;
  bool timed; /* numbers repeat, and there is one document */
  unsigned char *start, *want, *got, *again;
  void *device; /* the arena; the caller's */
};

/* Lays out the arrays of t->c at t->shape, all bytes 0xff, and fills `start` and
 * `want`.  done takes what begin left, also where it failed. */
int op_trial_begin(struct op_trial *t);
void op_trial_done(struct op_trial *t);

size_t op_trial_array_bytes(const struct op_trial *t, size_t i);
/* Element k of array i of an image. */
double op_trial_value(const struct op_trial *t, const unsigned char *image,
                      size_t i, size_t k);

#endif
