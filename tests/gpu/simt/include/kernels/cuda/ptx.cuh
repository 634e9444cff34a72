/* ptx.cuh (stand-in): the plain meaning of each function of the project's
 * kernels/cuda/ptx.cuh, after the PTX ISA's description of fragments. */
#ifndef PEN_KERNELS_CUDA_PTX_CUH
#define PEN_KERNELS_CUDA_PTX_CUH

#include "kernels/cuda/launch.cuh"

namespace pen_cuda {

/* What a lane holds of A and B. */
struct simt_fragment {
  uint32_t a[4], b[2];
};

/* Element i (0 the lower) of a pair of bf16. */
inline double simt_half(uint32_t pair, unsigned i)
{
  return __uint_as_float(i ? pair & 0xffff0000 : pair << 16);
}

/* Row i, column k of A: lane 4 (i % 8) + (k % 8) / 2 has it. */
inline double simt_a(const unsigned char *all, unsigned i, unsigned k)
{
  auto f = simt_given<simt_fragment>(all, i % 8 * 4 + k % 8 / 2);
  return simt_half(f.a[i / 8 + k / 8 * 2], k % 2);
}

/* Row k, column j of B: lane 4 j + (k % 8) / 2 has it. */
inline double simt_b(const unsigned char *all, unsigned k, unsigned j)
{
  auto f = simt_given<simt_fragment>(all, j * 4 + k % 8 / 2);
  return simt_half(f.b[k / 8], k % 2);
}

inline void ptx_mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                         uint32_t b1, SIMT_SITE_ARGS)
{
  simt_fragment mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const unsigned char *all =
      simt_exchange(SIMT_HERE, FULL_WARP, &mine, sizeof mine);
  unsigned lane = threadIdx.x % WARP;
  for (unsigned i = 0; i < 4; i++) {
    double sum = c[i];
    for (unsigned k = 0; k < 16; k++)
      sum += simt_a(all, lane / 4 + i / 2 * 8, k) *
             simt_b(all, k, lane % 4 * 2 + i % 2);
    c[i] = (float)sum;
  }
}

typedef const char *ptx_shared;

inline ptx_shared ptx_shared_of(const void *shared)
{
  return (const char *)shared;
}

inline void simt_matrices(uint32_t (&out)[4], ptx_shared row, bool transposed,
                          simt_site site)
{
  const unsigned char *all = simt_exchange(site, FULL_WARP, &row, sizeof row);
  unsigned lane = threadIdx.x % WARP;
  for (unsigned i = 0; i < 4; i++) {
    uint32_t pair[2];
    for (unsigned j = 0; j < 2; j++) {
      unsigned r = lane / 4, c = lane % 4 * 2 + j;
      if (transposed) {
        unsigned swapped = r;
        r = c;
        c = swapped;
      }
      pair[j] = simt_given<const uint16_t *>(all, i * 8 + r)[c];
    }
    out[i] = pair[0] | pair[1] << 16;
  }
}

inline void ptx_load_matrices(uint32_t (&out)[4], ptx_shared row,
                              SIMT_SITE_ARGS)
{
  simt_matrices(out, row, false, SIMT_HERE);
}

inline void ptx_load_transposed(uint32_t (&out)[4], ptx_shared row,
                                SIMT_SITE_ARGS)
{
  simt_matrices(out, row, true, SIMT_HERE);
}

/* The destination is NaN until it is waited for. */
inline void ptx_copy_async(void *shared, const void *global, unsigned bytes)
{
  simt_copy copy = {shared, global, bytes};
  uint4 nan = {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff};
  *(uint4 *)shared = nan;
  simt_copies *copies = simt_current_copies;
  if (copies->n == SIMT_COPIES_MAX)
    __builtin_trap(); /* make it larger */
  copies->list[copies->n++] = copy;
}

inline void ptx_copy_wait()
{
  for (unsigned i = 0; i < simt_current_copies->n; i++) {
    simt_copy copy = simt_current_copies->list[i];
    uint4 data = {0, 0, 0, 0};
    if (copy.bytes)
      data = *(const uint4 *)copy.from;
    *(uint4 *)copy.to = data;
  }
  simt_current_copies->n = 0;
}

inline float ptx_exp2(float x)
{
  float y = exp2f(x);
  return y < 0x1p-126f ? 0 : y;
}

inline uint32_t ptx_pack_bf16(float low, float high)
{
  float pair[2] = {low, high};
  uint32_t out = 0;
  for (unsigned i = 0; i < 2; i++) {
    uint32_t bits = __float_as_uint(pair[i]);
    uint32_t half = isnan(pair[i])
                        ? 0x7fff
                        : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    out |= half << 16 * i;
  }
  return out;
}

} // namespace pen_cuda

#endif
