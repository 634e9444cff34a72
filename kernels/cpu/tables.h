/* tables.h: the host operations of every instruction set in this build. */
#ifndef PEN_KERNELS_CPU_TABLES_H
#define PEN_KERNELS_CPU_TABLES_H

#include "kernels/ops.h"

struct pen_cpu_table {
  struct pen_ops ops;
  int (*gemm_tile)(const struct pen_gemm *tile, void *scratch);
};

extern const struct pen_cpu_table pen_cpu_table_scalar_bf16;
extern const struct pen_cpu_table pen_cpu_table_scalar_f32;
#if defined(__x86_64__)
extern const struct pen_cpu_table pen_cpu_table_avx2_bf16;
extern const struct pen_cpu_table pen_cpu_table_avx2_f32;
extern const struct pen_cpu_table pen_cpu_table_avx512_bf16;
extern const struct pen_cpu_table pen_cpu_table_avx512_f32;
extern const struct pen_cpu_table pen_cpu_table_avx512bf16_bf16;
#endif

/* Never NULL; plain C where the level has no table. */
const struct pen_cpu_table *pen_cpu_table(enum pen_isa isa,
                                          enum pen_elem elem);

#endif
