/* cast.c: the way into the conversion kernels: sets the floating-point mode,
 * picks the level's row.  No state; any thread.
 * Disadvantage: no direct f16 to bf16; a file in f16 passes through fp32. */
#include "kernels/cast.h"

#include "kernels/cpu/rows.h"
#include "kernels/fpmode.h"

static const struct pen_cast_row *const rows[PEN_ISA_COUNT] =
    PEN_ISA_ROWS(cast);

void pen_cast_f32_to_bf16(enum pen_isa isa, size_t n, const float *src,
                          uint16_t *dst)
{
  rows[isa]->f32_to_bf16(n, src, dst);
}

void pen_cast_f32_to_bf16_away(enum pen_isa isa, size_t n, const float *src,
                               uint16_t *dst)
{
  rows[isa]->f32_to_bf16_away(n, src, dst);
}

void pen_cast_bf16_to_f32(enum pen_isa isa, size_t n, const uint16_t *src,
                          float *dst)
{
  rows[isa]->bf16_to_f32(n, src, dst);
}

void pen_cast_f32_to_f16(enum pen_isa isa, size_t n, const float *src,
                         uint16_t *dst)
{
  uint64_t outer = pen_fpmode_begin();
  rows[isa]->f32_to_f16(n, src, dst);
  pen_fpmode_set(outer);
}

void pen_cast_f16_to_f32(enum pen_isa isa, size_t n, const uint16_t *src,
                         float *dst)
{
  uint64_t outer = pen_fpmode_begin();
  rows[isa]->f16_to_f32(n, src, dst);
  pen_fpmode_set(outer);
}

void pen_cast_f64_to_f32(enum pen_isa isa, size_t n, const double *src,
                         float *dst)
{
  uint64_t outer = pen_fpmode_begin();
  rows[isa]->f64_to_f32(n, src, dst);
  pen_fpmode_set(outer);
}
