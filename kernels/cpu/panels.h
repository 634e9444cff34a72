/* panels.h: penstock's own bf16 product, for CPUs with AVX512_BF16. */
#ifndef PEN_KERNELS_CPU_PANELS_H
#define PEN_KERNELS_CPU_PANELS_H

#include "kernels/gemm.h"

/* Greatest tile; its panels and sums fit in PEN_STREAM_SCRATCH_BYTES. */
#define PEN_PANELS_ROWS ((size_t)512)
#define PEN_PANELS_COLS ((size_t)1024)

/* One tile of bf16 operands.  scratch: 64-byte aligned.  Where the CPU lacks
 * AVX512_BF16 it ends the program by a signal. */
void pen_panels_tile(const struct pen_gemm *tile, void *scratch);

#endif
