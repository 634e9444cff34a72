/* gemm_onednn_none.c: stands in where the build has no oneDNN.
 *
 * Stateless.  Disadvantage: none but slowness. */
#include "base/error.h"
#include "kernels/gemm.h"

static int none_open(enum pen_elem ab_elem)
{
  return pen_error_set(PEN_EUNSUPPORTED,
                       "this build has no oneDNN: configure it with "
                       "-Donednn=enabled");
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

const struct pen_gemm_library pen_gemm_onednn = {
    .name = "onednn",
    .open = none_open,
    .variant = none_variant,
    .tile = none_tile,
    .tile_rows = 64,
    .tile_cols = 64,
};
