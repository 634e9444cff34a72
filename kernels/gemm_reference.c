/* gemm_reference.c: our own products: the oracle, and what runs where no
 * library is installed or may run (ThreadSanitizer).
 *
 * Stateless, any thread.  Disadvantage: see cpu/gemm_tile.c. */
#include "kernels/cpu/tables.h"
#include "kernels/gemm.h"

static int reference_open(enum pen_elem ab_elem)
{
  return 0;
}

static const char *reference_variant(void)
{
  return "1";
}

static int reference_tile(enum pen_isa isa, const struct pen_gemm *tile,
                          void *scratch)
{
  return pen_cpu_table(isa, tile->ab_elem)->gemm_tile(tile, scratch);
}

const struct pen_gemm_library pen_gemm_reference = {
    .name = "reference",
    .open = reference_open,
    .variant = reference_variant,
    .tile = reference_tile,
    .tile_rows = 192,
    .tile_cols = 256,
};
