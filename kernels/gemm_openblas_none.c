/* gemm_openblas_none.c: stands in where the build has no OpenBLAS.
 *
 * Stateless.  Disadvantage: none but slowness. */
#include "base/error.h"
#include "kernels/gemm.h"

static int none_open(enum pen_elem ab_elem)
{
  return pen_error_set(PEN_EUNSUPPORTED,
                       "this build has no OpenBLAS: configure it with "
                       "-Dopenblas=enabled");
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

const struct pen_gemm_library pen_gemm_openblas = {
    .name = "openblas",
    .open = none_open,
    .variant = none_variant,
    .tile = none_tile,
    .tile_rows = 64,
    .tile_cols = 64,
};
