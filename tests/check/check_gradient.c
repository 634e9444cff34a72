/* check_gradient.c: the kernels of kernels/gradient.h, for check.c. */
#include "kernels/gradient.h"
#include "tests/check/check.h"

enum { GRAD, EXTRA, STORED, SUMSQ, NONFINITE };

/* Odd variants: the whole range is one chunk. */
static size_t chunk_of(size_t n, unsigned variant)
{
  return variant & 1 ? n + 1 : CHECK_CHUNK_ELEMS;
}

static void call_accumulate(enum pen_isa isa, size_t n, void *const *data,
                            unsigned variant)
{
  pen_gradient_accumulate(isa, n, data[0], data[1]);
}

static void call_scale(enum pen_isa isa, size_t n, void *const *data,
                       unsigned variant)
{
  pen_gradient_scale(isa, n, data[0], variant & 1 ? 1e-20f : 0.3f);
}

static void call_finish_bf16(enum pen_isa isa, size_t n, void *const *data,
                             unsigned variant)
{
  uint64_t bad = pen_gradient_finish_bf16(
      isa, n, chunk_of(n, variant), data[GRAD],
      variant < 2 ? data[EXTRA] : NULL, data[STORED], data[SUMSQ]);
  if (n > 0)
    *(uint64_t *)data[NONFINITE] = bad;
}

static void call_finish_f32(enum pen_isa isa, size_t n, void *const *data,
                            unsigned variant)
{
  uint64_t bad = pen_gradient_finish_f32(
      isa, n, chunk_of(n, variant), data[GRAD],
      variant < 2 ? data[EXTRA] : NULL, data[STORED], data[SUMSQ]);
  if (n > 0)
    *(uint64_t *)data[NONFINITE] = bad;
}

#define GRADS {"grad", 4, CHECK_F32}, {"extra", 4, CHECK_F32}
#define RESULTS                                                               \
  {"sumsq", 8, CHECK_OUTPUT, true}, {"nonfinite", 8, CHECK_OUTPUT, true}

const struct check_kernel check_gradient[] = {
  {.name = "gradient.accumulate", .call = call_accumulate,
   .elementwise = true,
   .operands = {{"sum", 4, CHECK_F32}, {"add", 4, CHECK_F32}}},
  {.name = "gradient.scale", .call = call_scale, .elementwise = true,
   .operands = {{"x", 4, CHECK_F32}}},
  {.name = "gradient.finish_bf16", .call = call_finish_bf16,
   .operands = {GRADS, {"stored", 2, CHECK_OUTPUT}, RESULTS}},
  {.name = "gradient.finish_f32", .call = call_finish_f32,
   .operands = {GRADS, {"stored", 4, CHECK_OUTPUT}, RESULTS}},
  {.name = NULL},
};
