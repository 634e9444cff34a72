/* trial.c: arrays of a trial and their comparison.
 *
 * Disadvantage: aborts through cmocka's asserts, so only for test programs. */
#include "tests/check/trial.h"

#include <math.h>

#include "base/rng.h"
#include "kernels/bf16.h"

#define GUARD_BYTES ((size_t)64)
#define GUARD_BYTE 0xa5

void trial_begin(struct trial *t, enum pen_isa isa, enum pen_elem elem,
                 const struct pen_gemm_library *gemm, size_t n_threads,
                 uint64_t seed)
{
  memset(t, 0, sizeof *t);
  t->ops = pen_ops_host(isa, elem);
  t->seed = seed;
  t->stream.isa = isa;
  t->stream.gemm = gemm;
  test_ok(pen_pool_create(n_threads, "trial", &t->stream.pool));
  size_t bytes = n_threads * PEN_STREAM_SCRATCH_BYTES;
  t->stream.scratch = aligned_alloc(64, bytes);
  assert_non_null(t->stream.scratch);
  memset(t->stream.scratch, 0xff, bytes); /* NaN in both precisions */
}

static char *data_of(const struct trial_array *a)
{
  return a->memory + GUARD_BYTES;
}

void trial_end(struct trial *t)
{
  test_ok(pen_stream_take_status(&t->stream));
  for (size_t i = 0; i < t->n_arrays; i++) {
    struct trial_array *a = &t->arrays[i];
    size_t bytes = a->n * pen_elem_bytes(a->elem);
    for (size_t j = 0; j < GUARD_BYTES; j++)
      if ((unsigned char)a->memory[j] != GUARD_BYTE ||
          (unsigned char)a->memory[GUARD_BYTES + bytes + j] != GUARD_BYTE)
        fail_msg("array %zu: written outside", i);
    free(a->memory);
  }
  free(t->stream.scratch);
  pen_pool_free(&t->stream.pool);
}

static void *new_array(struct trial *t, size_t n, enum pen_elem elem,
                       bool is_result)
{
  assert_true(t->n_arrays < TRIAL_ARRAYS_MAX);
  struct trial_array *a = &t->arrays[t->n_arrays++];
  size_t bytes = n * pen_elem_bytes(elem);
  size_t all = (bytes + 2 * GUARD_BYTES + 63) / 64 * 64;
  *a = (struct trial_array){aligned_alloc(64, all), n, elem, is_result};
  assert_non_null(a->memory);
  memset(a->memory, GUARD_BYTE, all);
  memset(data_of(a), 0xff, bytes);
  return data_of(a);
}

static void *filled(struct trial *t, size_t n, enum pen_elem elem,
                    bool is_result, float low, float high)
{
  uint64_t stream = t->n_arrays;
  void *x = new_array(t, n, elem, is_result);
  for (size_t i = 0; i < n; i++) {
    double u = pen_rng_double(t->seed, stream, i);
    uint16_t half = pen_bf16_from_f32((float)(low + (high - low) * u));
    if (elem == PEN_ELEM_BF16)
      ((uint16_t *)x)[i] = half;
    else
      ((float *)x)[i] = pen_bf16_to_f32(half);
  }
  return x;
}

void *trial_in(struct trial *t, size_t n, float low, float high)
{
  return filled(t, n, t->ops->elem, false, low, high);
}

float *trial_in_f32(struct trial *t, size_t n, float low, float high)
{
  return filled(t, n, PEN_ELEM_F32, false, low, high);
}

void *trial_inout(struct trial *t, size_t n, float low, float high)
{
  return filled(t, n, t->ops->elem, true, low, high);
}

float *trial_inout_f32(struct trial *t, size_t n, float low, float high)
{
  return filled(t, n, PEN_ELEM_F32, true, low, high);
}

void *trial_out(struct trial *t, size_t n)
{
  return new_array(t, n, t->ops->elem, true);
}

float *trial_out_f32(struct trial *t, size_t n)
{
  return new_array(t, n, PEN_ELEM_F32, true);
}

float *trial_work_f32(struct trial *t, size_t n)
{
  return new_array(t, n, PEN_ELEM_F32, false);
}

float trial_get(const struct trial *t, const void *array, size_t i)
{
  return t->ops->elem == PEN_ELEM_BF16
             ? pen_bf16_to_f32(((const uint16_t *)array)[i])
             : ((const float *)array)[i];
}

float trial_result(const struct trial *t, size_t i, size_t j)
{
  const struct trial_array *a = &t->arrays[i];
  return a->elem == PEN_ELEM_BF16
             ? pen_bf16_to_f32(((const uint16_t *)data_of(a))[j])
             : ((const float *)data_of(a))[j];
}

static bool same(const struct trial *a, const struct trial *b, size_t i,
                 size_t j, float *ret_a, float *ret_b)
{
  float x = trial_result(a, i, j), y = trial_result(b, i, j);
  if (b->arrays[i].elem == PEN_ELEM_BF16)
    x = pen_bf16_to_f32(pen_bf16_from_f32(x));
  *ret_a = x;
  *ret_b = y;
  return pen_f32_bits(x) == pen_f32_bits(y) || (isnan(x) && isnan(y));
}

void trial_assert_same(const struct trial *a, const struct trial *b,
                       const char *what)
{
  size_t n_results = 0;
  assert_int_equal(a->n_arrays, b->n_arrays);
  for (size_t i = 0; i < a->n_arrays; i++) {
    if (!a->arrays[i].is_result)
      continue;
    n_results++;
    assert_int_equal(a->arrays[i].n, b->arrays[i].n);
    for (size_t j = 0; j < a->arrays[i].n; j++) {
      float x, y;
      if (!same(a, b, i, j, &x, &y))
        fail_msg("%s: array %zu element %zu of %zu: %a is not %a", what, i, j,
                 a->arrays[i].n, (double)y, (double)x);
    }
  }
  assert_true(n_results > 0);
}

void trial_documents(const size_t *lengths, uint32_t *first_key)
{
  uint32_t begin = 0;
  for (; *lengths; begin += (uint32_t)*lengths++)
    for (size_t i = 0; i < *lengths; i++)
      first_key[begin + i] = begin;
}
