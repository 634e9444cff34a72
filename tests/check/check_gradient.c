/* check_gradient.c: the kernels of kernels/gradient.h, for check.c. */
#include "kernels/gradient.h"
#include "tests/check/check.h"

enum { GRAD, STORED, SUMSQ, NONFINITE };

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
  size_t chunk = chunk_of(n, variant);
  uint64_t bad = pen_gradient_finish_bf16(isa, n, chunk, data[GRAD], data[STORED],
                                          data[SUMSQ]);
  if (variant >= 2) /* as it stands */
    bad = pen_gradient_finish_bf16(isa, n, chunk, NULL, data[STORED],
                                   data[SUMSQ]);
  if (n > 0)
    *(uint64_t *)data[NONFINITE] = bad;
}

static void call_finish_f32(enum pen_isa isa, size_t n, void *const *data,
                            unsigned variant)
{
  size_t chunk = chunk_of(n, variant);
  uint64_t bad = pen_gradient_finish_f32(isa, n, chunk, data[GRAD], data[STORED],
                                          data[SUMSQ]);
  if (variant >= 2) /* as it stands */
    bad = pen_gradient_finish_f32(isa, n, chunk, NULL, data[STORED],
                                   data[SUMSQ]);
  if (n > 0)
    *(uint64_t *)data[NONFINITE] = bad;
}

#define FINISH(name_, call_, stored_bytes)                                    \
  {.name = name_, .call = call_,                                              \
   .operands = {CHECK_ELEMS("grad", 4, CHECK_F32),                            \
                CHECK_ELEMS("stored", stored_bytes, CHECK_OUTPUT),            \
                CHECK_CHUNKS("sumsq", 8), CHECK_CHUNKS("nonfinite", 8)}}

const struct check_kernel check_gradient[] = {
  {.name = "gradient.accumulate", .call = call_accumulate,
   .elementwise = true,
   .operands = {CHECK_ELEMS("sum", 4, CHECK_F32),
                CHECK_ELEMS("add", 4, CHECK_F32)}},
  {.name = "gradient.scale", .call = call_scale, .elementwise = true,
   .operands = {CHECK_ELEMS("x", 4, CHECK_F32)}},
  FINISH("gradient.finish_bf16", call_finish_bf16, 2),
  FINISH("gradient.finish_f32", call_finish_f32, 4),
  {.name = NULL},
};
