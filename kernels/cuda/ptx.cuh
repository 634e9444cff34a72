/* ptx.cuh: every instruction that CUDA C++ has no name for (PTX ISA 8, sm_80
 * and later); nothing else of the project holds assembly for a GPU.
 *
 * tests/gpu/simt/ptx.cuh stands first on the tests' include path and gives
 * the same functions their plain meaning. */
#ifndef PEN_KERNELS_CUDA_PTX_CUH
#define PEN_KERNELS_CUDA_PTX_CUH

#include "kernels/cuda/launch.cuh"

namespace pen_cuda {

/* A place in shared memory; bytes can be added to it. */
typedef uint32_t ptx_shared;

__device__ inline ptx_shared ptx_shared_of(const void *shared)
{
  return (uint32_t)__cvta_generic_to_shared(shared);
}

/* C [16, 8] += A [16, 16] B [16, 8], bf16 to fp32, by a warp.  With g = lane/4
 * and t = lane%4, a register holds two neighbours:
 *   a: rows g, g+8, g, g+8; columns 2t (a[0], a[1]) and 2t+8 (a[2], a[3])
 *   b: rows 2t and 2t+8 of column g
 *   c: row g columns 2t, 2t+1; row g+8 columns 2t, 2t+1 */
__device__ inline void ptx_mma_bf16(float (&c)[4], const uint32_t (&a)[4],
                                    uint32_t b0, uint32_t b1)
{
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four 8 x 8 matrices of 16-bit elements from shared memory, whose rows of 16
 * bytes the lanes point to (lane 8 i + j: row j of matrix i).  out[i]: row
 * lane/4, columns 2 (lane%4) and the next, of matrix i. */
__device__ inline void ptx_load_matrices(uint32_t (&out)[4], ptx_shared row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
               "{%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(row)
               : "memory");
}

/* The same with each matrix transposed. */
__device__ inline void ptx_load_transposed(uint32_t (&out)[4],
                                           ptx_shared row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
               "{%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(row)
               : "memory");
}

/* Begins to copy `bytes` (16 or 0) bytes from global to shared memory and to
 * fill with zeros what is left of 16; both 16-byte aligned. */
__device__ inline void ptx_copy_async(void *shared, const void *global,
                                      unsigned bytes)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(ptx_shared_of(shared)), "l"(global), "r"(bytes)
               : "memory");
}

/* Waits for all copies this thread has begun. */
__device__ inline void ptx_copy_wait()
{
  asm volatile("cp.async.wait_all;" : : : "memory");
}

/* 2^x within 2 ulp; results below 2^-126 are 0. */
__device__ inline float ptx_exp2(float x)
{
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* Two fp32 as bf16, each to nearest even; `low` in the lower half. */
__device__ inline uint32_t ptx_pack_bf16(float low, float high)
{
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

} // namespace pen_cuda

#endif
