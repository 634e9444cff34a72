/* gemm_panels.c: penstock's own bf16 products, as a library among the others.
 *
 * Stateless.  Disadvantage: CPUs with AVX512_BF16 only; where there is AMX,
 * oneDNN is several times as fast. */
#include "base/error.h"
#include "kernels/cpu/panels.h"

static int panels_open(enum pen_elem ab_elem)
{
  if (ab_elem != PEN_ELEM_BF16)
    return pen_error_set(PEN_EUNSUPPORTED,
                         "panels multiplies bf16 only: choose openblas");
  if (pen_isa_detect() < PEN_ISA_AVX512BF16)
    return pen_error_set(PEN_EUNSUPPORTED,
                         "panels cannot be used: this CPU has no AVX512_BF16; "
                         "choose openblas");
  return 0;
}

static const char *panels_variant(void)
{
  return "avx512_bf16 1";
}

static int panels_tile(enum pen_isa isa, const struct pen_gemm *tile,
                       void *scratch)
{
  if (tile->ab_elem != PEN_ELEM_BF16)
    return -PEN_EUNSUPPORTED;
  pen_panels_tile(tile, scratch);
  return 0;
}

const struct pen_gemm_library pen_gemm_panels = {
    .name = "panels",
    .open = panels_open,
    .variant = panels_variant,
    .tile = panels_tile,
    .tile_rows = PEN_PANELS_ROWS,
    .tile_cols = PEN_PANELS_COLS,
    .any_cut = true,
};
