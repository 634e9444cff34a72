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
  return v16_from_bits(w16_left1(w16_load_u16(x), 16));
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
