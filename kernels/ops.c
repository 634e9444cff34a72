/* ops.c: which table of operations runs, and for which shapes.
 *
 * Pure functions, any thread.  Disadvantage: 64-bit Arm runs the plain table,
 * whose four-lane vectors the compiler turns into NEON. */
#include "kernels/ops.h"

#include "base/error.h"
#include "kernels/cpu/tables.h"

const struct pen_cpu_table *pen_cpu_table(enum pen_isa isa, enum pen_elem elem)
{
  bool bf16 = elem == PEN_ELEM_BF16;
#if defined(__x86_64__)
  if (isa == PEN_ISA_AVX512BF16 && bf16)
    return &pen_cpu_table_avx512bf16_bf16;
  if (isa >= PEN_ISA_AVX512)
    return bf16 ? &pen_cpu_table_avx512_bf16 : &pen_cpu_table_avx512_f32;
  if (isa == PEN_ISA_AVX2)
    return bf16 ? &pen_cpu_table_avx2_bf16 : &pen_cpu_table_avx2_f32;
#endif
  return bf16 ? &pen_cpu_table_scalar_bf16 : &pen_cpu_table_scalar_f32;
}

const struct pen_ops *pen_ops_host(enum pen_isa isa, enum pen_elem elem)
{
  return &pen_cpu_table(isa, elem)->ops;
}

int pen_ops_check_shape(size_t heads, size_t kv_heads, size_t dim)
{
  if (!dim || dim % 2 || dim > PEN_ATTENTION_DIM_MAX)
    return pen_error_set(PEN_EUNSUPPORTED,
                         "head_dim %zu: attention takes even sizes up to %zu",
                         dim, PEN_ATTENTION_DIM_MAX);
  if (!kv_heads || heads % kv_heads)
    return pen_error_set(PEN_EUNSUPPORTED,
                         "%zu heads are not a multiple of %zu key heads", heads,
                         kv_heads);
  return 0;
}
