/* gemm_panels_none.c: stands in where the build is for another kind of CPU.
 *
 * Stateless.  Disadvantage: none. */
#include "base/error.h"
#include "kernels/gemm.h"

static int none_open(enum pen_elem ab_elem)
{
  return pen_error_set(PEN_EUNSUPPORTED,
                       "panels cannot be used: it is for x86-64 CPUs with "
                       "AVX512_BF16; choose openblas");
}

static const char *none_variant(void)
{
  return "";
}

static int none_tile(enum pen_isa isa, const struct pen_gemm *tile,
                     void *scratch)
{
  return -PEN_EUNSUPPORTED;
}

const struct pen_gemm_library pen_gemm_panels = {
    .name = "panels",
    .open = none_open,
    .variant = none_variant,
    .tile = none_tile,
    .tile_rows = 64,
    .tile_cols = 64,
};
