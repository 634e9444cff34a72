/* cpu/adamw_avx512.c: AdamW, 32 elements at a time, the bf16 weight stored
 * past the cache in whole 64-byte lines.
 *
 * Memory is the limit, so division and square root stay exact.  Elements
 * before the weight's first whole line, and after its last, go through the
 * plain C row: same bits.  Disadvantage: a weight read right after its update
 * comes from DRAM. */
#include "kernels/cpu/avx512.h"
#include "kernels/cpu/rows.h"

#define STEP 32           /* bf16 numbers in a 64-byte line */
#define AHEAD_BYTES 1024  /* prefetch distance */

struct constants {
  __m512 factor, one_minus_beta1, beta2, one_minus_beta2, decay, step_size, eps;
};

static inline struct constants spread(const struct pen_adamw_params *c,
                                      float decay)
{
  return (struct constants){
    .factor = _mm512_set1_ps(c->factor),
    .one_minus_beta1 = _mm512_set1_ps(c->one_minus_beta1),
    .beta2 = _mm512_set1_ps(c->beta2),
    .one_minus_beta2 = _mm512_set1_ps(c->one_minus_beta2),
    .decay = _mm512_set1_ps(decay),
    .step_size = _mm512_set1_ps(c->step_size),
    .eps = _mm512_set1_ps(c->eps),
  };
}

/* Below the smallest normal (exponent bits 0) it is 0. */
static inline __m512 stored_moment(__m512 x)
{
  __mmask16 normal = _mm512_test_epi32_mask(_mm512_castps_si512(x),
                                            _mm512_set1_epi32(0x7f800000));
  return pen_avx512_one_nan(_mm512_maskz_mov_ps(normal, x));
}

static inline __m512 update16(const struct constants *c, __m512 grad, float *p,
                              float *m, float *v)
{
  __m512 g = _mm512_mul_ps(c->factor, grad);
  __m512 m0 = _mm512_loadu_ps(m), v0 = _mm512_loadu_ps(v);
  __m512 m1 = stored_moment(_mm512_add_ps(
      m0, _mm512_mul_ps(c->one_minus_beta1, _mm512_sub_ps(g, m0))));
  __m512 v1 = stored_moment(_mm512_add_ps(
      _mm512_mul_ps(c->beta2, v0),
      _mm512_mul_ps(_mm512_mul_ps(c->one_minus_beta2, g), g)));
  __m512 step = _mm512_mul_ps(
      c->step_size,
      _mm512_div_ps(m1, _mm512_add_ps(_mm512_sqrt_ps(v1), c->eps)));
  __m512 p1 = pen_avx512_one_nan(_mm512_sub_ps(
      _mm512_mul_ps(c->decay, _mm512_loadu_ps(p)),
      _mm512_add_ps(step, _mm512_setzero_ps())));
  _mm512_storeu_ps(m, m1);
  _mm512_storeu_ps(v, v1);
  _mm512_storeu_ps(p, p1);
  return p1;
}

static inline void prefetch(const void *p)
{
  _mm_prefetch((const char *)p + AHEAD_BYTES, _MM_HINT_T0);
}

/* One line of weights from two lines of each of p, m, v. */
static inline void update_line(const struct constants *c, __m512 grad0,
                               __m512 grad1, float *p, float *m, float *v,
                               uint16_t *weight)
{
  prefetch(p);
  prefetch(p + 16);
  prefetch(m);
  prefetch(m + 16);
  prefetch(v);
  prefetch(v + 16);
  __m512 p0 = update16(c, grad0, p, m, v);
  __m512 p1 = update16(c, grad1, p + 16, m + 16, v + 16);
  __m512i line = _mm512_inserti64x4(
      _mm512_castsi256_si512(pen_avx512_to_bf16_away(p0)),
      pen_avx512_to_bf16_away(p1), 1);
  _mm512_stream_si512((__m512i *)weight, line);
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
    __m512i line = _mm512_loadu_si512(grad + i);
    update_line(&c, pen_avx512_from_bf16(_mm512_castsi512_si256(line)),
                pen_avx512_from_bf16(_mm512_extracti64x4_epi64(line, 1)),
                p + i, m + i, v + i, weight + i);
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
    prefetch(grad + i);
    prefetch(grad + i + 16);
    update_line(&c, _mm512_loadu_ps(grad + i), _mm512_loadu_ps(grad + i + 16),
                p + i, m + i, v + i, weight + i);
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
  for (; n - i >= 16; i += 16) {
    prefetch(p + i);
    prefetch(m + i);
    prefetch(v + i);
    prefetch(grad + i);
    __m512 p1 = update16(&c, _mm512_loadu_ps(grad + i), p + i, m + i, v + i);
    _mm512_storeu_ps(weight + i, p1);
  }
  pen_adamw_scalar.f32(params, decay, n - i, p + i, m + i, v + i, grad + i,
                       weight + i);
}

const struct pen_adamw_row pen_adamw_avx512 = {
  .bf16 = update_bf16,
  .bf16_f32grad = update_bf16_f32grad,
  .f32 = update_f32,
};
