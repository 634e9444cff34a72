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

PEN_INLINE w16 w16_min1(w16 a, uint32_t b)
{
  return w16_select(w16_less1(a, b), a, w16_set1(b));
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

PEN_INLINE w16 w16_load_u16(const uint16_t *x)
{
  w16 r;
  PEN_EACH_PART {
    pen_nh h;
    __builtin_memcpy(&h, x + i_ * PEN_NATIVE, sizeof h);
    r.p[i_] = __builtin_convertvector(h, pen_nu);
  }
  return r;
}

PEN_INLINE void w16_store_u16(uint16_t *x, w16 a)
{
  PEN_EACH_PART {
    pen_nh h = __builtin_convertvector(a.p[i_], pen_nh);
    __builtin_memcpy(x + i_ * PEN_NATIVE, &h, sizeof h);
  }
}

PEN_INLINE w16 w16_load_u8(const uint8_t *x)
{
  w16 r;
  PEN_EACH_PART {
    pen_nb b;
    __builtin_memcpy(&b, x + i_ * PEN_NATIVE, sizeof b);
    r.p[i_] = __builtin_convertvector(b, pen_nu);
  }
  return r;
}

PEN_INLINE void w16_store_u8(uint8_t *x, w16 a)
{
  PEN_EACH_PART {
    pen_nb b = __builtin_convertvector(a.p[i_], pen_nb);
    __builtin_memcpy(x + i_ * PEN_NATIVE, &b, sizeof b);
  }
}

#endif
