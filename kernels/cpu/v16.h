/* v16.h: sixteen fp32 lanes in as many native vectors as the instruction set
 * needs.  Every instruction set performs the same IEEE operations on the same
 * lanes, so the same source gives the same bits on all of them. */
#ifndef PEN_KERNELS_CPU_V16_H
#define PEN_KERNELS_CPU_V16_H

#include <stddef.h>
#include <stdint.h>

#if defined(__AVX512F__)
#define PEN_NATIVE 16
#elif defined(__AVX2__)
#define PEN_NATIVE 8
#else
#define PEN_NATIVE 4
#endif
#define PEN_PARTS (16 / PEN_NATIVE)

#if PEN_NATIVE > 4 || defined(__SSE__)
#include <immintrin.h> /* for v16_fma and v16_sqrt alone */
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

typedef float pen_nf __attribute__((vector_size(4 * PEN_NATIVE)));
typedef int32_t pen_ni __attribute__((vector_size(4 * PEN_NATIVE)));
typedef uint32_t pen_nu __attribute__((vector_size(4 * PEN_NATIVE)));
typedef uint16_t pen_nh __attribute__((vector_size(2 * PEN_NATIVE)));

typedef struct {
  pen_nf p[PEN_PARTS];
} v16;

/* Lanes of all ones or all zeros. */
typedef struct {
  pen_ni p[PEN_PARTS];
} m16;

/* Sanitizers turn what is inlined everywhere into minutes of compiling. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PEN_INLINE static inline
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define PEN_INLINE static inline
#elif !defined(PEN_INLINE)
#define PEN_INLINE static inline __attribute__((always_inline))
#endif

#define PEN_EACH_PART                                                         \
  _Pragma("GCC unroll 4") for (int i_ = 0; i_ < PEN_PARTS; i_++)

PEN_INLINE v16 v16_set1(float x)
{
  v16 r;
  PEN_EACH_PART r.p[i_] = (pen_nf){0} + x;
  return r;
}

PEN_INLINE v16 v16_load(const float *x)
{
  v16 r;
  PEN_EACH_PART __builtin_memcpy(&r.p[i_], x + i_ * PEN_NATIVE, sizeof r.p[0]);
  return r;
}

PEN_INLINE void v16_store(float *x, v16 a)
{
  PEN_EACH_PART __builtin_memcpy(x + i_ * PEN_NATIVE, &a.p[i_], sizeof a.p[0]);
}

PEN_INLINE v16 v16_load_bf16(const uint16_t *x)
{
  v16 r;
  PEN_EACH_PART {
    pen_nh h;
    __builtin_memcpy(&h, x + i_ * PEN_NATIVE, sizeof h);
    r.p[i_] = (pen_nf)(__builtin_convertvector(h, pen_nu) << 16);
  }
  return r;
}

/* Rounds to nearest even; every NaN becomes 0x7fc0, as in bf16.h. */
PEN_INLINE void v16_store_bf16(uint16_t *x, v16 a)
{
  PEN_EACH_PART {
    pen_nu u = (pen_nu)a.p[i_];
    pen_nu rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    pen_nu nan = (pen_nu)(a.p[i_] != a.p[i_]);
    pen_nh h =
        __builtin_convertvector((nan & 0x7fc0) | (~nan & rounded), pen_nh);
    __builtin_memcpy(x + i_ * PEN_NATIVE, &h, sizeof h);
  }
}

#define PEN_V16_BINARY(name, op)                                              \
  PEN_INLINE v16 v16_##name(v16 a, v16 b)                                     \
  {                                                                           \
    PEN_EACH_PART a.p[i_] = a.p[i_] op b.p[i_];                               \
    return a;                                                                 \
  }
PEN_V16_BINARY(add, +)
PEN_V16_BINARY(sub, -)
PEN_V16_BINARY(mul, *)
PEN_V16_BINARY(div, /)
#undef PEN_V16_BINARY

/* a + b * c, rounded twice. */
PEN_INLINE v16 v16_muladd(v16 a, v16 b, v16 c)
{
  return v16_add(a, v16_mul(b, c));
}

/* a + b * c, rounded once.  Where no instruction does that, libm's fmaf, lane
 * by lane: the same bits, slowly. */
PEN_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
#if PEN_NATIVE == 16
  a.p[0] = (pen_nf)_mm512_fmadd_ps((__m512)b.p[0], (__m512)c.p[0],
                                   (__m512)a.p[0]);
#elif PEN_NATIVE == 8
  PEN_EACH_PART a.p[i_] = (pen_nf)_mm256_fmadd_ps(
      (__m256)b.p[i_], (__m256)c.p[i_], (__m256)a.p[i_]);
#elif defined(__aarch64__)
  PEN_EACH_PART a.p[i_] = (pen_nf)vfmaq_f32(
      (float32x4_t)a.p[i_], (float32x4_t)b.p[i_], (float32x4_t)c.p[i_]);
#else
  PEN_EACH_PART {
    pen_nf sum = a.p[i_];
    for (int l = 0; l < PEN_NATIVE; l++)
      sum[l] = __builtin_fmaf(b.p[i_][l], c.p[i_][l], sum[l]);
    a.p[i_] = sum;
  }
#endif
  return a;
}

/* Correctly rounded, as IEEE has it. */
PEN_INLINE v16 v16_sqrt(v16 a)
{
#if PEN_NATIVE == 16
  a.p[0] = (pen_nf)_mm512_sqrt_ps((__m512)a.p[0]);
#elif PEN_NATIVE == 8
  PEN_EACH_PART a.p[i_] = (pen_nf)_mm256_sqrt_ps((__m256)a.p[i_]);
#elif defined(__aarch64__)
  PEN_EACH_PART a.p[i_] = (pen_nf)vsqrtq_f32((float32x4_t)a.p[i_]);
#elif defined(__SSE__)
  PEN_EACH_PART a.p[i_] = (pen_nf)_mm_sqrt_ps((__m128)a.p[i_]);
#else
  PEN_EACH_PART for (int l = 0; l < PEN_NATIVE; l++) a.p[i_][l] =
      __builtin_sqrtf(a.p[i_][l]);
#endif
  return a;
}

PEN_INLINE m16 v16_less(v16 a, v16 b)
{
  m16 r;
  PEN_EACH_PART r.p[i_] = a.p[i_] < b.p[i_];
  return r;
}

PEN_INLINE v16 v16_select(m16 m, v16 yes, v16 no)
{
  PEN_EACH_PART yes.p[i_] =
      (pen_nf)((m.p[i_] & (pen_ni)yes.p[i_]) | (~m.p[i_] & (pen_ni)no.p[i_]));
  return yes;
}

/* The greater; b where either is NaN. */
PEN_INLINE v16 v16_max(v16 a, v16 b)
{
  return v16_select(v16_less(b, a), a, b);
}

/* Sum of the lanes by a fixed tree: halves, quarters, eighths, pairs. */
PEN_INLINE float v16_sum(v16 a)
{
  float x[16];
  v16_store(x, a);
  for (int n = 8; n; n /= 2)
    for (int i = 0; i < n; i++)
      x[i] += x[i + n];
  return x[0];
}

PEN_INLINE float v16_max_lane(v16 a)
{
  float x[16];
  v16_store(x, a);
  for (int n = 8; n; n /= 2)
    for (int i = 0; i < n; i++)
      x[i] = x[i] > x[i + n] ? x[i] : x[i + n];
  return x[0];
}

/* The first n lanes (n <= 16) from memory, the others 0. */
PEN_INLINE v16 v16_load_n(const float *x, size_t n)
{
  if (n >= 16)
    return v16_load(x);
  float buffer[16] = {0};
  for (size_t i = 0; i < n; i++)
    buffer[i] = x[i];
  return v16_load(buffer);
}

/* The same with `rest` in the others. */
PEN_INLINE v16 v16_load_rest(const float *x, size_t n, float rest)
{
  if (n >= 16)
    return v16_load(x);
  float buffer[16];
  for (size_t i = 0; i < 16; i++)
    buffer[i] = i < n ? x[i] : rest;
  return v16_load(buffer);
}

PEN_INLINE void v16_store_n(float *x, v16 a, size_t n)
{
  if (n >= 16) {
    v16_store(x, a);
    return;
  }
  float buffer[16];
  v16_store(buffer, a);
  for (size_t i = 0; i < n; i++)
    x[i] = buffer[i];
}

PEN_INLINE v16 v16_load_bf16_n(const uint16_t *x, size_t n)
{
  if (n >= 16)
    return v16_load_bf16(x);
  uint16_t buffer[16] = {0};
  for (size_t i = 0; i < n; i++)
    buffer[i] = x[i];
  return v16_load_bf16(buffer);
}

PEN_INLINE void v16_store_bf16_n(uint16_t *x, v16 a, size_t n)
{
  if (n >= 16) {
    v16_store_bf16(x, a);
    return;
  }
  uint16_t buffer[16];
  v16_store_bf16(buffer, a);
  for (size_t i = 0; i < n; i++)
    x[i] = buffer[i];
}

/* e^x within 1.5 ulp for x in [-87.3, 88.37]; 0 below, Inf above, NaN for NaN.
 * x = k ln2 + r, |r| <= ln2/2 (Cody and Waite: ln2 in two parts, the first with
 * 15 bits so that k times it is exact); e^r by its Taylor series to r^7, whose
 * rest is below r^8/8! = 5.2e-9 relative; 2^k by its bits. */
PEN_INLINE v16 v16_exp(v16 x)
{
  const float log2e = 1.44269504f, shift = 12582912.0f; /* 1.5 * 2^23 */
  const float ln2_high = 0.693145751953125f, ln2_low = 1.42860682030941723e-6f;
  v16 out;
  PEN_EACH_PART {
    pen_nf a = x.p[i_];
    pen_ni low = a < -87.3f, high = a > 88.37f;
    pen_ni inside = ~(low | high);
    a = (pen_nf)(inside & (pen_ni)a); /* NaN stays inside */
    pen_nf t = a * log2e + shift;
    pen_nf k = t - shift;
    pen_nf r = (a - k * ln2_high) - k * ln2_low;
    pen_nf e = r * (1.0f / 5040) + 1.0f / 720;
    e = e * r + 1.0f / 120;
    e = e * r + 1.0f / 24;
    e = e * r + 1.0f / 6;
    e = e * r + 0.5f;
    e = e * (r * r) + r;
    e = e + 1.0f;
    pen_nu bits = (pen_nu)t - 0x4b400000; /* k as an integer */
    pen_nf scale = (pen_nf)((bits + 127) << 23);
    pen_ni result = (inside & (pen_ni)(e * scale)) | (high & 0x7f800000);
    out.p[i_] = (pen_nf)result;
  }
  return out;
}

#endif
