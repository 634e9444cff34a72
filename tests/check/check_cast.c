/* check_cast.c: the kernels of kernels/cast.h, for check.c. */
#include "kernels/cast.h"
#include "tests/check/check.h"

#define CALL(function)                                                        \
  static void call_##function(enum pen_isa isa, size_t n, void *const *data, \
                              unsigned variant)                               \
  {                                                                           \
    pen_cast_##function(isa, n, data[0], data[1]);                            \
  }

CALL(f32_to_bf16)
CALL(f32_to_bf16_away)
CALL(bf16_to_f32)
CALL(f32_to_f16)
CALL(f16_to_f32)
CALL(f64_to_f32)

#define ROW(function, src_bytes, src_fill, dst_bytes)                         \
  {.name = "cast." #function, .call = call_##function, .elementwise = true,   \
   .operands = {CHECK_ELEMS("src", src_bytes, src_fill),                      \
                CHECK_ELEMS("dst", dst_bytes, CHECK_OUTPUT)}}

const struct check_kernel check_cast[] = {
  ROW(f32_to_bf16, 4, CHECK_F32, 2),
  ROW(f32_to_bf16_away, 4, CHECK_F32, 2),
  ROW(bf16_to_f32, 2, CHECK_U16, 4),
  ROW(f32_to_f16, 4, CHECK_F32, 2),
  ROW(f16_to_f32, 2, CHECK_U16, 4),
  ROW(f64_to_f32, 8, CHECK_F64, 4),
  {.name = NULL},
};
