/* trial.h: one call of an operation of kernels/ops.h on arrays that are filled
 * the same way every time, so that two trials can be compared.
 *
 * Every number handed in is a bf16 value, also where the table is fp32; so the
 * bf16 table must give exactly the fp32 table's results, rounded. */
#ifndef PEN_TESTS_CHECK_TRIAL_H
#define PEN_TESTS_CHECK_TRIAL_H

#include "kernels/ops.h"
#include "tests/test.h"

#define TRIAL_ARRAYS_MAX 24

struct trial_array {
  char *memory; /* with a guard before and after */
  size_t n;
  enum pen_elem elem;
  bool is_result;
};

struct trial {
  const struct pen_ops *ops;
  struct pen_stream stream;
  uint64_t seed;
  size_t n_arrays;
  struct trial_array arrays[TRIAL_ARRAYS_MAX];
};

void trial_begin(struct trial *t, enum pen_isa isa, enum pen_elem elem,
                 const struct pen_gemm_library *gemm, size_t n_threads,
                 uint64_t seed);
/* Checks guards and that the stream is well, frees all. */
void trial_end(struct trial *t);

/* n elements of E (or fp32), uniform in [low, high); inputs must survive. */
void *trial_in(struct trial *t, size_t n, float low, float high);
float *trial_in_f32(struct trial *t, size_t n, float low, float high);
/* The same, but changed by the call, and a result. */
void *trial_inout(struct trial *t, size_t n, float low, float high);
float *trial_inout_f32(struct trial *t, size_t n, float low, float high);
/* NaN everywhere before the call; a result. */
void *trial_out(struct trial *t, size_t n);
float *trial_out_f32(struct trial *t, size_t n);
/* NaN everywhere; not a result. */
float *trial_work_f32(struct trial *t, size_t n);

/* Element i of an array of E as fp32. */
float trial_get(const struct trial *t, const void *array, size_t i);

/* Element j of array i as fp32. */
float trial_result(const struct trial *t, size_t i, size_t j);

/* Fails unless every result of b is, bit for bit, a's (rounded to bf16 where
 * only b's is bf16).  NaN equals NaN. */
void trial_assert_same(const struct trial *a, const struct trial *b,
                       const char *what);

/* One case: makes its arrays and calls one operation. */
struct trial_case {
  const char *name;
  void (*run)(struct trial *t, size_t variant);
  size_t n_variants;
  bool rounds_inside; /* bf16 rounds what is between its products, too */
};
extern const struct trial_case trial_cases[]; /* ended by a NULL name */

/* [tokens]: the first token of each one's document, for documents of the given
 * lengths (0 ends the list). */
void trial_documents(const size_t *lengths, uint32_t *first_key);

#endif
