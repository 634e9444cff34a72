/* w16.h: sixteen 32-bit words beside the lanes of v16.h, and the bytes, halves
 * and numbers they come from.  The same on every instruction set. */
#ifndef PEN_KERNELS_CPU_W16_H
#define PEN_KERNELS_CPU_W16_H

#include "kernels/cpu/v16.h"

typedef struct {
  pen_nu p[PEN_PARTS];
} w16;

typedef uint8_t pen_nb __attribute__((vector_size(PEN_NATIVE)));

PEN_INLINE w16 w16_set1(uint32_t x)
{
  w16 r;
  PEN_EACH_PART r.p[i_] = (pen_nu){0} + x;
  return r;
}

/* x, x + 1, x + 2 ... */
PEN_INLINE w16 w16_count(uint32_t x)
{
  static const uint32_t lanes[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                     8, 9, 10, 11, 12, 13, 14, 15};
  w16 r;
  PEN_EACH_PART {
    __builtin_memcpy(&r.p[i_], lanes + i_ * PEN_NATIVE, sizeof r.p[0]);
    r.p[i_] += x;
  }
  return r;
}

PEN_INLINE w16 w16_bits(v16 a)
{
  w16 r;
  PEN_EACH_PART r.p[i_] = (pen_nu)a.p[i_];
  return r;
}

PEN_INLINE v16 v16_from_bits(w16 a)
{
  v16 r;
  PEN_EACH_PART r.p[i_] = (pen_nf)a.p[i_];
  return r;
}

#define PEN_W16_BINARY(name, op)                                              \
  PEN_INLINE w16 w16_##name(w16 a, w16 b)                                     \
  {                                                                           \
    PEN_EACH_PART a.p[i_] = a.p[i_] op b.p[i_];                               \
    return a;                                                                 \
  }                                                                           \
  PEN_INLINE w16 w16_##name##1(w16 a, uint32_t b)                             \
  {                                                                           \
    PEN_EACH_PART a.p[i_] = a.p[i_] op b;                                     \
    return a;                                                                 \
  }
PEN_W16_BINARY(add, +)
PEN_W16_BINARY(sub, -)
PEN_W16_BINARY(mul, *)
PEN_W16_BINARY(and, &)
PEN_W16_BINARY(or, |)
PEN_W16_BINARY(xor, ^)
PEN_W16_BINARY(left, <<)
PEN_W16_BINARY(right, >>)
#undef PEN_W16_BINARY

/* All ones where a < b, else 0. */
PEN_INLINE w16 w16_less1(w16 a, uint32_t b)
{
  PEN_EACH_PART a.p[i_] = (pen_nu)(a.p[i_] < b);
  return a;
}

PEN_INLINE w16 w16_select(w16 mask, w16 yes, w16 no)
{
  PEN_EACH_PART yes.p[i_] =
      (mask.p[i_] & yes.p[i_]) | (~mask.p[i_] & no.p[i_]);
  return yes;
}

/* The lesser and the greater, which C has no vector operator for. */
PEN_INLINE w16 w16_min(w16 a, w16 b)
{
#if PEN_NATIVE == 16
  a.p[0] = (pen_nu)_mm512_min_epu32((__m512i)a.p[0], (__m512i)b.p[0]);
#elif PEN_NATIVE == 8
  PEN_EACH_PART a.p[i_] =
      (pen_nu)_mm256_min_epu32((__m256i)a.p[i_], (__m256i)b.p[i_]);
#else
  PEN_EACH_PART {
    pen_nu less = (pen_nu)(a.p[i_] < b.p[i_]);
    a.p[i_] = (less & a.p[i_]) | (~less & b.p[i_]);
  }
#endif
  return a;
}

PEN_INLINE w16 w16_max(w16 a, w16 b)
{
#if PEN_NATIVE == 16
  a.p[0] = (pen_nu)_mm512_max_epu32((__m512i)a.p[0], (__m512i)b.p[0]);
#elif PEN_NATIVE == 8
  PEN_EACH_PART a.p[i_] =
      (pen_nu)_mm256_max_epu32((__m256i)a.p[i_], (__m256i)b.p[i_]);
#else
  PEN_EACH_PART {
    pen_nu more = (pen_nu)(a.p[i_] > b.p[i_]);
    a.p[i_] = (more & a.p[i_]) | (~more & b.p[i_]);
  }
#endif
  return a;
}

/* A comparison's lanes as words. */
PEN_INLINE w16 w16_mask(m16 m)
{
  w16 r;
  PEN_EACH_PART r.p[i_] = (pen_nu)m.p[i_];
  return r;
}

/* Numbers below 2^31, exactly where they are below 2^24; and towards 0. */
PEN_INLINE v16 v16_from_words(w16 a)
{
  v16 r;
  PEN_EACH_PART r.p[i_] = __builtin_convertvector((pen_ni)a.p[i_], pen_nf);
  return r;
}

PEN_INLINE w16 w16_from_numbers(v16 a)
{
  w16 r;
  PEN_EACH_PART r.p[i_] = (pen_nu)__builtin_convertvector(a.p[i_], pen_ni);
  return r;
}

/* Compilers take halves and bytes apart in pieces, but for these instructions. */
PEN_INLINE w16 w16_load_u16(const uint16_t *x)
{
  w16 r;
#if PEN_NATIVE == 16
  r.p[0] = (pen_nu)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)x));
#elif PEN_NATIVE == 8
  PEN_EACH_PART r.p[i_] = (pen_nu)_mm256_cvtepu16_epi32(
      _mm_loadu_si128((const void *)(x + 8 * i_)));
#else
  PEN_EACH_PART {
    pen_nh h;
    __builtin_memcpy(&h, x + i_ * PEN_NATIVE, sizeof h);
    r.p[i_] = __builtin_convertvector(h, pen_nu);
  }
#endif
  return r;
}

/* bf16 numbers. */
PEN_INLINE v16 w16_load_bf16(const uint16_t *x)
{
#if PEN_NATIVE == 16
  v16 r;
  const __m512i to_upper = _mm512_slli_epi32(
      _mm512_cvtepu16_epi32(_mm256_set_epi16(15, 14, 13, 12, 11, 10, 9, 8, 7, 6,
                                             5, 4, 3, 2, 1, 0)), 16);
  __m512i halves = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)x));
  r.p[0] = (pen_nf)_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, to_upper, halves);
  return r;
#else
  return v16_from_bits(w16_left1(w16_load_u16(x), 16));
#endif
}

/* Words below 65,536. */
PEN_INLINE void w16_store_u16(uint16_t *x, w16 a)
{
#if PEN_NATIVE == 16
  _mm256_storeu_si256((void *)x, _mm512_cvtepi32_epi16((__m512i)a.p[0]));
#elif PEN_NATIVE == 8
  _mm256_storeu_si256(
      (void *)x,
      _mm256_permute4x64_epi64(
          _mm256_packus_epi32((__m256i)a.p[0], (__m256i)a.p[1]), 0xd8));
#else
  PEN_EACH_PART {
    pen_nh h = __builtin_convertvector(a.p[i_], pen_nh);
    __builtin_memcpy(x + i_ * PEN_NATIVE, &h, sizeof h);
  }
#endif
}

PEN_INLINE w16 w16_load_u8(const uint8_t *x)
{
  w16 r;
#if PEN_NATIVE == 16
  r.p[0] = (pen_nu)_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)x));
#elif PEN_NATIVE == 8
  PEN_EACH_PART r.p[i_] = (pen_nu)_mm256_cvtepu8_epi32(
      _mm_loadl_epi64((const void *)(x + 8 * i_)));
#else
  PEN_EACH_PART {
    pen_nb b;
    __builtin_memcpy(&b, x + i_ * PEN_NATIVE, sizeof b);
    r.p[i_] = __builtin_convertvector(b, pen_nu);
  }
#endif
  return r;
}

/* Words below 256. */
PEN_INLINE void w16_store_u8(uint8_t *x, w16 a)
{
#if PEN_NATIVE == 16
  _mm_storeu_si128((void *)x, _mm512_cvtepi32_epi8((__m512i)a.p[0]));
#elif PEN_NATIVE == 8
  __m256i halves = _mm256_permute4x64_epi64(
      _mm256_packus_epi32((__m256i)a.p[0], (__m256i)a.p[1]), 0xd8);
  _mm_storeu_si128((void *)x,
                   _mm_packus_epi16(_mm256_castsi256_si128(halves),
                                    _mm256_extracti128_si256(halves, 1)));
#else
  PEN_EACH_PART {
    pen_nb b = __builtin_convertvector(a.p[i_], pen_nb);
    __builtin_memcpy(x + i_ * PEN_NATIVE, &b, sizeof b);
  }
#endif
}

#if PEN_NATIVE == 16
/* 0, 1, .. 15 in the lower halves of words, and `plus` in the upper ones. */
PEN_INLINE __m512i w16_words_of_both(unsigned lower, unsigned upper)
{
  w16 lanes = w16_count(0);
  lanes = w16_or(w16_add1(lanes, lower), w16_left1(w16_add1(lanes, upper), 16));
  return (__m512i)lanes.p[0];
}

/* Halves of words of a and b that follow one another: of a's those numbered
 * `a_odd`, 2 + a_odd .., of b's likewise. */
PEN_INLINE __m512i w16_halves_of_both(__m512i a, unsigned a_odd, __m512i b,
                                      unsigned b_odd)
{
  w16 lanes = w16_left1(w16_count(0), 2); /* of sixteen, the first half's */
  lanes = w16_or(lanes, w16_left1(w16_add1(lanes, 2), 16));
  w16 from_a = w16_add1(lanes, a_odd | a_odd << 16);
  w16 from_b = w16_add1(lanes, (32 + b_odd) | (32 + b_odd) << 16);
  __m512i which = _mm512_inserti64x4(
      (__m512i)from_a.p[0], _mm512_castsi512_si256((__m512i)from_b.p[0]), 1);
  return _mm512_permutex2var_epi16(a, which, b);
}
#endif

/* A number of which `upper` has the half that rounding to nearest, ties away
 * from zero, gives, and `lower` the 16 bits below. */
PEN_INLINE w16 w16_load_split(const uint16_t *upper, const uint16_t *lower)
{
#if PEN_NATIVE == 16
  w16 r;
  __m256i low = _mm256_loadu_si256((const void *)lower);
  __m256i high = _mm256_sub_epi16(_mm256_loadu_si256((const void *)upper),
                                  _mm256_srli_epi16(low, 15));
  r.p[0] = (pen_nu)_mm512_permutex2var_epi16(
      _mm512_castsi256_si512(low), w16_words_of_both(0, 32),
      _mm512_castsi256_si512(high));
  return r;
#else
  w16 low = w16_load_u16(lower);
  w16 high = w16_sub(w16_load_u16(upper), w16_right1(low, 15));
  return w16_or(w16_left1(high, 16), low);
#endif
}

PEN_INLINE void w16_store_split(uint16_t *upper, uint16_t *lower, w16 bits)
{
  w16 rounded = w16_add1(bits, 0x8000);
#if PEN_NATIVE == 16
  __m512i both =
      w16_halves_of_both((__m512i)rounded.p[0], 1, (__m512i)bits.p[0], 0);
  _mm256_storeu_si256((void *)upper, _mm512_castsi512_si256(both));
  _mm256_storeu_si256((void *)lower, _mm512_extracti64x4_epi64(both, 1));
#else
  w16_store_u16(upper, w16_right1(rounded, 16));
  w16_store_u16(lower, w16_and1(bits, 0xffff));
#endif
}

/* Upper halves of both. */
PEN_INLINE void w16_store_uppers(uint16_t *x, uint16_t *y, w16 a, w16 b)
{
#if PEN_NATIVE == 16
  __m512i both = w16_halves_of_both((__m512i)a.p[0], 1, (__m512i)b.p[0], 1);
  _mm256_storeu_si256((void *)x, _mm512_castsi512_si256(both));
  _mm256_storeu_si256((void *)y, _mm512_extracti64x4_epi64(both, 1));
#else
  w16_store_u16(x, w16_right1(a, 16));
  w16_store_u16(y, w16_right1(b, 16));
#endif
}

/* Has any word these bits among those of `mask`? */
PEN_INLINE int w16_any(w16 a, uint32_t mask, uint32_t bits)
{
#if PEN_NATIVE == 16
  return _mm512_cmpeq_epi32_mask(
             _mm512_and_si512((__m512i)a.p[0], _mm512_set1_epi32((int)mask)),
             _mm512_set1_epi32((int)bits)) != 0;
#else
  pen_nu found = {0};
  uint32_t any = 0;
  PEN_EACH_PART found |= (pen_nu)((a.p[i_] & mask) == bits);
#if PEN_NATIVE == 8
  any = (uint32_t)_mm256_movemask_epi8((__m256i)found);
#else
  for (int l = 0; l < PEN_NATIVE; l++)
    any |= found[l];
#endif
  return any != 0;
#endif
}

/* Every NaN as the one that kernels store. */
PEN_INLINE v16 w16_one_nan(v16 x)
{
#if PEN_NATIVE == 16
  /* Of the eight kinds of numbers, four bits each, quiet and signalling NaN
   * take the first operand, all others themselves. */
  x.p[0] = (pen_nf)_mm512_fixupimm_ps(
      _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)), (__m512)x.p[0],
      _mm512_set1_epi32(0x11111100), 0);
  return x;
#else
  m16 is_nan;
  PEN_EACH_PART is_nan.p[i_] = x.p[i_] != x.p[i_];
  return v16_select(is_nan, v16_from_bits(w16_set1(0x7fc00000)), x);
#endif
}

/* And what is below the smallest normal number as 0. */
PEN_INLINE v16 w16_one_nan_no_denormal(v16 x)
{
#if PEN_NATIVE == 16
  __mmask16 normal = _mm512_test_epi32_mask((__m512i)x.p[0],
                                            _mm512_set1_epi32(0x7f800000));
  x.p[0] = (pen_nf)_mm512_maskz_fixupimm_ps(
      normal, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)),
      (__m512)x.p[0], _mm512_set1_epi32(0x11111100), 0);
  return x;
#else
  w16 bits = w16_bits(x);
  w16 tiny = w16_less1(w16_and1(bits, 0x7fffffff), 0x00800000);
  return w16_one_nan(v16_from_bits(w16_select(tiny, w16_set1(0), bits)));
#endif
}

/* The greatest word. */
PEN_INLINE uint32_t w16_greatest(w16 a)
{
#if PEN_NATIVE == 16
  return _mm512_reduce_max_epu32((__m512i)a.p[0]);
#elif PEN_NATIVE == 8
  __m256i both = _mm256_max_epu32((__m256i)a.p[0], (__m256i)a.p[1]);
  __m128i x = _mm_max_epu32(_mm256_castsi256_si128(both),
                            _mm256_extracti128_si256(both, 1));
  x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0x4e));
  x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0xb1));
  return (uint32_t)_mm_cvtsi128_si32(x);
#else
  uint32_t greatest = 0;
  PEN_EACH_PART for (int l = 0; l < PEN_NATIVE; l++) greatest =
      a.p[i_][l] > greatest ? a.p[i_][l] : greatest;
  return greatest;
#endif
}

#endif
