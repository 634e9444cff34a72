/* cpu/adamw_avx2.c: AdamW, 32 elements at a time, the bf16 weight stored past
 * the cache in whole 64-byte lines; the plan of cpu/adamw_avx512.c with half
 * the width.  Disadvantage: a weight read right after its update comes from
 * DRAM. */
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/rows.h"

#define STEP 32          /* bf16 numbers in a 64-byte line */
#define AHEAD_BYTES 1024 /* prefetch distance */

struct constants {
  __m256 factor, one_minus_beta1, beta2, one_minus_beta2, decay, step_size, eps;
};

static inline struct constants spread(const struct pen_adamw_params *c,
                                      float decay)
{
  return (struct constants){
    .factor = _mm256_set1_ps(c->factor),
    .one_minus_beta1 = _mm256_set1_ps(c->one_minus_beta1),
    .beta2 = _mm256_set1_ps(c->beta2),
    .one_minus_beta2 = _mm256_set1_ps(c->one_minus_beta2),
    .decay = _mm256_set1_ps(decay),
    .step_size = _mm256_set1_ps(c->step_size),
    .eps = _mm256_set1_ps(c->eps),
  };
}

/* Below the smallest normal (exponent bits 0) it is 0. */
static inline __m256 stored_moment(__m256 x)
{
  __m256i exponent = _mm256_and_si256(_mm256_castps_si256(x),
                                      _mm256_set1_epi32(0x7f800000));
  __m256i tiny = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
  return pen_avx2_one_nan(_mm256_andnot_ps(_mm256_castsi256_ps(tiny), x));
}

static inline __m256 update8(const struct constants *c, __m256 grad, float *p,
                             float *m, float *v)
{
  __m256 g = _mm256_mul_ps(c->factor, grad);
  __m256 m0 = _mm256_loadu_ps(m), v0 = _mm256_loadu_ps(v);
  __m256 m1 = stored_moment(_mm256_add_ps(
      m0, _mm256_mul_ps(c->one_minus_beta1, _mm256_sub_ps(g, m0))));
  __m256 v1 = stored_moment(_mm256_add_ps(
      _mm256_mul_ps(c->beta2, v0),
      _mm256_mul_ps(_mm256_mul_ps(c->one_minus_beta2, g), g)));
  __m256 step = _mm256_mul_ps(
      c->step_size,
      _mm256_div_ps(m1, _mm256_add_ps(_mm256_sqrt_ps(v1), c->eps)));
  __m256 p1 = pen_avx2_one_nan(_mm256_sub_ps(
      _mm256_mul_ps(c->decay, _mm256_loadu_ps(p)),
      _mm256_add_ps(step, _mm256_setzero_ps())));
  _mm256_storeu_ps(m, m1);
  _mm256_storeu_ps(v, v1);
  _mm256_storeu_ps(p, p1);
  return p1;
}

static inline void prefetch(const void *p)
{
  _mm_prefetch((const char *)p + AHEAD_BYTES, _MM_HINT_T0);
}

/* Half a line of weights from one line of each of p, m, v. */
static inline void update16(const struct constants *c, __m256 grad0,
                            __m256 grad1, float *p, float *m, float *v,
                            uint16_t *weight)
{
  prefetch(p);
  prefetch(m);
  prefetch(v);
  __m256 p0 = update8(c, grad0, p, m, v);
  __m256 p1 = update8(c, grad1, p + 8, m + 8, v + 8);
  _mm256_stream_si256((__m256i *)weight, pen_avx2_to_bf16_away(p0, p1));
}

/* Elements before the first whole line of weights. */
static inline size_t head_elems(const uint16_t *weight, size_t n)
{
  size_t head = (64 - (uintptr_t)weight % 64) % 64 / sizeof *weight;
  return head < n ? head : n;
}

static void update_bf16(const struct pen_adamw_params *params, float decay,
                        size_t n, float *p, float *m, float *v,
                        const uint16_t *grad, uint16_t *weight)
{
  struct constants c = spread(params, decay);
  size_t i = head_elems(weight, n);
  pen_adamw_scalar.bf16(params, decay, i, p, m, v, grad, weight);
  for (; n - i >= STEP; i += STEP) {
    prefetch(grad + i);
    for (size_t j = i; j < i + STEP; j += 16)
      update16(&c, pen_avx2_load_bf16(grad + j),
               pen_avx2_load_bf16(grad + j + 8), p + j, m + j, v + j,
               weight + j);
  }
  _mm_sfence();
  pen_adamw_scalar.bf16(params, decay, n - i, p + i, m + i, v + i, grad + i,
                        weight + i);
}

static void update_bf16_f32grad(const struct pen_adamw_params *params,
                                float decay, size_t n, float *p, float *m,
                                float *v, const float *grad, uint16_t *weight)
{
  struct constants c = spread(params, decay);
  size_t i = head_elems(weight, n);
  pen_adamw_scalar.bf16_f32grad(params, decay, i, p, m, v, grad, weight);
  for (; n - i >= STEP; i += STEP) {
    for (size_t j = i; j < i + STEP; j += 16) {
      prefetch(grad + j);
      update16(&c, _mm256_loadu_ps(grad + j), _mm256_loadu_ps(grad + j + 8),
               p + j, m + j, v + j, weight + j);
    }
  }
  _mm_sfence();
  pen_adamw_scalar.bf16_f32grad(params, decay, n - i, p + i, m + i, v + i,
                                grad + i, weight + i);
}

static void update_f32(const struct pen_adamw_params *params, float decay,
                       size_t n, float *p, float *m, float *v,
                       const float *grad, float *weight)
{
  struct constants c = spread(params, decay);
  size_t i = 0;
  for (; n - i >= 8; i += 8) {
    prefetch(p + i);
    prefetch(m + i);
    prefetch(v + i);
    prefetch(grad + i);
    __m256 p1 = update8(&c, _mm256_loadu_ps(grad + i), p + i, m + i, v + i);
    _mm256_storeu_ps(weight + i, p1);
  }
  pen_adamw_scalar.f32(params, decay, n - i, p + i, m + i, v + i, grad + i,
                       weight + i);
}

const struct pen_adamw_row pen_adamw_avx2 = {
  .bf16 = update_bf16,
  .bf16_f32grad = update_bf16_f32grad,
  .f32 = update_f32,
};
