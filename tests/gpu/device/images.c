/* images.c: layout and numbers.
 *
 * Disadvantage: drawn one by one, on one thread. */
#include "tests/gpu/device/images.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/rng.h"
#include "kernels/bf16.h"

#define GUARD_BYTES ((size_t)256)
/* Of what is timed so many numbers are drawn and then repeated: drawing all of
 * them would take longer than all else. */
#define TIMED_NUMBERS ((size_t)65521)

static size_t elem_bytes(const struct op_trial *t, size_t i)
{
  switch (t->arrays[i].holds) {
  case ELEMS:
    return pen_elem_bytes(t->elem);
  case DOUBLES:
  case COUNTS:
    return 8;
  default:
    return 4;
  }
}

size_t op_trial_array_bytes(const struct op_trial *t, size_t i)
{
  return t->arrays[i].n * elem_bytes(t, i);
}

double op_trial_value(const struct op_trial *t, const unsigned char *image,
                      size_t i, size_t k)
{
  const void *x = image + t->at[i];
  switch (t->arrays[i].holds) {
  case ELEMS:
    if (t->elem == PEN_ELEM_BF16)
      return pen_bf16_to_f32(((const uint16_t *)x)[k]);
    return ((const float *)x)[k];
  case FLOATS:
    return ((const float *)x)[k];
  case DOUBLES:
    return ((const double *)x)[k];
  case COUNTS:
    return (double)((const uint64_t *)x)[k];
  default:
    return ((const int32_t *)x)[k];
  }
}

/* Documents of some forty tokens; one where it is timed, as flops are counted. */
static void fill_first_keys(const struct op_trial *t, uint32_t *keys, size_t n,
                            size_t number)
{
  uint32_t first = 0;
  for (size_t i = 0; i < n; i++) {
    if (!t->timed && pen_rng_double(t->seed, number, i) < 0.025)
      first = (uint32_t)i;
    keys[i] = first;
  }
}

static void fill_one(const struct op_trial *t, size_t i, void *x, size_t k)
{
  const struct case_array *a = &t->arrays[i];
  float f = a->low + (a->high - a->low) * (float)pen_rng_double(t->seed, i, k);
  if (a->holds == BITS)
    ((uint32_t *)x)[k] = pen_rng_u32(t->seed, i, k);
  else if (a->holds == DOUBLES)
    ((double *)x)[k] = (double)f;
  else if (a->holds == IDS || a->holds == TARGETS)
    ((int32_t *)x)[k] = (int32_t)floorf(f);
  else if (a->holds == ELEMS && t->elem == PEN_ELEM_BF16)
    ((uint16_t *)x)[k] = pen_bf16_from_f32(f);
  else
    ((float *)x)[k] = f;
}

static void fill(const struct op_trial *t, size_t i)
{
  const struct case_array *a = &t->arrays[i];
  unsigned char *x = t->start + t->at[i];
  size_t drawn = a->n, bytes = op_trial_array_bytes(t, i);
  if (t->timed && drawn > TIMED_NUMBERS)
    drawn = TIMED_NUMBERS;
  if (a->holds == FIRST_KEYS) {
    fill_first_keys(t, (uint32_t *)x, a->n, i);
  } else if (a->holds == NUMBERS) {
    for (size_t k = 0; k < a->n; k++)
      ((uint32_t *)x)[k] = (uint32_t)k;
  } else if (a->read) {
    for (size_t k = 0; k < drawn; k++)
      fill_one(t, i, x, k);
    for (size_t done = drawn * elem_bytes(t, i); done < bytes; done *= 2)
      memcpy(x + done, x, done < bytes - done ? done : bytes - done);
  }
}

int op_trial_begin(struct op_trial *t)
{
  t->n = t->c->arrays(&t->shape, t->arrays);
  t->bytes = GUARD_BYTES;
  for (size_t i = 0; i < t->n; i++) {
    t->at[i] = t->bytes;
    t->bytes += (op_trial_array_bytes(t, i) + 255) / 256 * 256 + GUARD_BYTES;
  }
  unsigned char **images[] = {&t->start, &t->want, &t->got, &t->again};
  for (size_t i = 0; i < sizeof images / sizeof *images; i++)
    if (!(*images[i] = aligned_alloc(256, t->bytes)))
      return pen_error_set(-PEN_ENOFIT, "no memory for %zu bytes", t->bytes);
  memset(t->start, 0xff, t->bytes);
  for (size_t i = 0; i < t->n; i++)
    fill(t, i);
  memcpy(t->want, t->start, t->bytes);
  return 0;
}

void op_trial_done(struct op_trial *t)
{
  free(t->start);
  free(t->want);
  free(t->got);
  free(t->again);
}
