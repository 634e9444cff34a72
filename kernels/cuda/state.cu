/* state.cu: one AdamW step on state in a compact format, with the host's bits:
 * kernels/cpu/state_*.c say what the formats are and why, state16.h what they
 * share; what is done there sixteen elements at a time is done here to one.
 *
 * split32 and bf16: a thread per element.  int8: a warp per group of 64, of which
 * a lane has two neighbours.  Disadvantage: accesses of two bytes a thread. */
#include "kernels/cuda/adamw.cuh"
#include "kernels/cuda/elem.cuh"
#include "kernels/cuda/reduce.cuh"

namespace pen_cuda {
namespace {

constexpr uint32_t MAGNITUDE = 0x7fffffff, LARGEST = 0x7f7fffff;
constexpr unsigned GROUP = PEN_STATE_GROUP_ELEMS;

struct state_job {
  struct pen_adamw_params params;
  float decay;
  size_t n;
  uint64_t key, first;
  const bf16 *grad;
  uint16_t *half, *weight;
};

/* ---- as in state16.h ---- */

__device__ inline uint32_t random_bits(const state_job &job, size_t i)
{
  uint64_t number = job.first + i;
  uint32_t x = (uint32_t)number * 0x9e3779b1u + (uint32_t)job.key +
               (uint32_t)(number >> 32) * 0x85ebca6bu;
  x = (x ^ x >> 16) * 0x21f0aaadu;
  x = x ^ x >> 15 ^ (uint32_t)(job.key >> 32);
  x *= 0x735a2d97u;
  return x ^ x >> 15;
}

__device__ inline uint32_t at_least(uint32_t a, uint32_t b)
{
  return a > b ? a : b;
}

__device__ inline uint32_t at_most(uint32_t a, uint32_t b)
{
  return a < b ? a : b;
}

__device__ inline uint32_t raise(float x, uint32_t add)
{
  uint32_t bits = __float_as_uint(x), magnitude = bits & MAGNITUDE;
  uint32_t raised = at_most(magnitude + add, LARGEST);
  return (bits & ~MAGNITUDE) | at_least(raised, magnitude);
}

__device__ inline float join(uint32_t half, uint32_t low)
{
  return __uint_as_float(((half - (low >> 15)) << 16) | low);
}

/* The half into its two places. */
__device__ inline void store_half(const state_job &job, size_t i, uint32_t bits)
{
  uint16_t half = (uint16_t)((bits + 0x8000) >> 16);
  job.half[i] = half;
  job.weight[i] = half;
}

__device__ inline void step(const state_job &job, size_t i, float &p, float &m,
                            float &v)
{
  adamw_step(job.params, job.decay, to_f32(job.grad[i]), p, m, v);
}

/* ---- split32 ---- */

__global__ void split32_kernel(state_job job, uint16_t *low, float *m, float *v)
{
  size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= job.n)
    return;
  float p = join(job.half[i], low[i]);
  step(job, i, p, m[i], v[i]);
  uint32_t bits = __float_as_uint(p);
  store_half(job, i, bits);
  low[i] = (uint16_t)bits;
}

/* ---- bf16 ---- */

__global__ void bf16_kernel(state_job job, uint16_t *low, bf16 *m, bf16 *v)
{
  size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= job.n)
    return;
  float p = join(job.half[i], low[i]), a = to_f32(m[i]), b = to_f32(v[i]);
  step(job, i, p, a, b);
  uint32_t bits = __float_as_uint(p), random = random_bits(job, i);
  store_half(job, i, bits);
  low[i] = (uint16_t)bits;
  m[i] = bf16{(uint16_t)(raise(a, random >> 16) >> 16)};
  v[i] = bf16{(uint16_t)(raise(b, random & 0xffff) >> 16)};
}

/* ---- int8 ---- */

constexpr float M_MOST = 127, V_MOST = 255;
constexpr float M_UNIT = 16129.0f, V_UNIT = 4228250625.0f;
constexpr float M_LEAST = 1.92592994438723585e-34f; /* 2^-112 */
constexpr float V_LEAST = 5.04870979341447555e-29f; /* 2^-94 */

typedef pack<uint8_t, 2> codes;

struct int8_arrays {
  codes *low, *m, *v;
  float *m_scale, *v_scale;
};

__device__ inline float decode_m(uint32_t code, float scale)
{
  float k = (float)(code & 0x7f);
  float m = scale * (k * k * (1 / M_UNIT));
  return __uint_as_float(__float_as_uint(m) | (code & 0x80) << 24);
}

__device__ inline float decode_v(uint32_t code, float scale)
{
  float k = (float)code, k2 = k * k;
  return scale * (k2 * k2 * (1 / V_UNIT));
}

__device__ inline uint32_t magnitude_of(float x)
{
  return at_most(__float_as_uint(x) & MAGNITUDE, LARGEST);
}

__device__ inline float part_of_4096(uint32_t bits)
{
  return (float)bits * 2.44140625e-4f + 1.220703125e-4f; /* 2^-12, 2^-13 */
}

__device__ inline uint32_t choose(uint32_t k, float here, float next, float x,
                                  float draw, uint32_t most)
{
  bool up = draw * (next - here) < x - here;
  return at_most(k + up, most);
}

__device__ inline uint32_t encode_m(float m, float inverse, float draw)
{
  float x = __uint_as_float(__float_as_uint(m) & MAGNITUDE) * inverse;
  uint32_t k = (uint32_t)(sqrtf(x) * M_MOST);
  float here = (float)k, next = here + 1;
  k = choose(k, here * here, next * next, x * M_UNIT, draw, (uint32_t)M_MOST);
  return k | (__float_as_uint(m) >> 24 & 0x80);
}

__device__ inline uint32_t encode_v(float v, float inverse, float draw)
{
  float x = v * inverse;
  uint32_t k = (uint32_t)(sqrtf(sqrtf(x)) * V_MOST);
  float here = (float)k, next = here + 1;
  here = here * here;
  next = next * next;
  k = choose(k, here * here, next * next, x * V_UNIT, draw, (uint32_t)V_MOST);
  return at_least(k, 0 < v && 0 < inverse);
}

/* 0 for a group that is stored as zeros. */
__device__ inline float scale_of(uint32_t most, float least)
{
  float scale = __uint_as_float(reduce_lanes<WARP>(most, greater{}));
  return scale < least ? 0 : scale;
}

__device__ inline float inverse_of(float scale)
{
  return scale > 0 ? 1 / scale : 0;
}

__global__ void int8_kernel(state_job job, int8_arrays a)
{
  size_t group = (size_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
  size_t i = group * GROUP + threadIdx.x % WARP * 2;
  if (group * GROUP >= job.n)
    return; /* whole warps */
  float m_scale = a.m_scale[group], v_scale = a.v_scale[group];
  codes low = a.low[i / 2], m_codes = a.m[i / 2], v_codes = a.v[i / 2];
  float p[2], m[2], v[2];
#pragma unroll
  for (int j = 0; j < 2; j++) {
    p[j] = join(job.half[i + j], (uint32_t)low.v[j] << 8);
    m[j] = decode_m(m_codes.v[j], m_scale);
    v[j] = decode_v(v_codes.v[j], v_scale);
    step(job, i + j, p[j], m[j], v[j]);
    uint32_t sign = __float_as_uint(m[j]) & ~MAGNITUDE;
    m[j] = __uint_as_float(magnitude_of(m[j]) | sign);
    v[j] = __uint_as_float(magnitude_of(v[j]));
  }
  m_scale = scale_of(at_least(magnitude_of(m[0]), magnitude_of(m[1])), M_LEAST);
  v_scale = scale_of(at_least(magnitude_of(v[0]), magnitude_of(v[1])), V_LEAST);
#pragma unroll
  for (int j = 0; j < 2; j++) {
    uint32_t random = random_bits(job, i + j);
    uint32_t bits = raise(p[j], random & 0xff) & 0xffffff00u;
    store_half(job, i + j, bits);
    low.v[j] = (uint8_t)(bits >> 8);
    m_codes.v[j] = (uint8_t)encode_m(m[j], inverse_of(m_scale),
                                     part_of_4096(random >> 20));
    v_codes.v[j] = (uint8_t)encode_v(v[j], inverse_of(v_scale),
                                     part_of_4096(random >> 8 & 0xfff));
  }
  a.low[i / 2] = low;
  a.m[i / 2] = m_codes;
  a.v[i / 2] = v_codes;
  __syncwarp(); /* all have read the old scales; a shuffle orders no memory */
  if (threadIdx.x % WARP == 0) {
    a.m_scale[group] = m_scale;
    a.v_scale[group] = v_scale;
  }
}

} // namespace
} // namespace pen_cuda

using namespace pen_cuda;

int pen_cuda_state_update(pen_cuda_stream s, enum pen_state_kind kind,
                          const struct pen_state_update *u, void *const *arrays,
                          void *weight)
{
  bool decays = u->decay_end > u->decay_begin;
  state_job job = {*u->params, decays ? u->params->decay : 1, u->part.n, u->key,
                   u->first, (const bf16 *)u->grad, (uint16_t *)u->weight,
                   (uint16_t *)weight};
  dim3 grid((unsigned)ceil_div<size_t>(job.n, THREADS));
  uint16_t *low = (uint16_t *)arrays[0];
  switch (kind) {
  case PEN_STATE_SPLIT32:
    return launch(split32_kernel, grid, THREADS, 0, s, job, low,
                  (float *)arrays[1], (float *)arrays[2]);
  case PEN_STATE_BF16:
    return launch(bf16_kernel, grid, THREADS, 0, s, job, low, (bf16 *)arrays[1],
                  (bf16 *)arrays[2]);
  case PEN_STATE_INT8: {
    int8_arrays a = {(codes *)arrays[0], (codes *)arrays[1],
                     (codes *)arrays[2], (float *)arrays[3],
                     (float *)arrays[4]};
    size_t blocks = ceil_div<size_t>(job.n, GROUP * (THREADS / WARP));
    return launch(int8_kernel, dim3((unsigned)blocks), THREADS, 0, s, job, a);
  }
  default:
    return cudaErrorInvalidValue;
  }
}
