/* every_master.c: all 2^32 master weights through split32's and bf16's half and
 * lower bits, at each level that this machine has, and back: the same bits, and
 * the half is the weight.  Those of int8: the nearest with 24 bits, the same when
 * packed again.
 *
 *   every_master [STRIDE]     every STRIDE-th number only
 *
 * Exit code 0: all as it should be; 1: not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/bf16.h"
#include "kernels/state.h"

#define N ((size_t)1 << 16)

static float p[N], back[N], m[N], v[N];
static uint16_t half[N];
static char arrays[12 * N];

static int fail(const struct pen_state_format *f, enum pen_isa isa, size_t i)
{
  printf("%s at %s: 0x%08x came back as 0x%08x, its half is 0x%04x\n", f->name,
         pen_isa_name(isa), pen_f32_bits(p[i]), pen_f32_bits(back[i]), half[i]);
  return 1;
}

/* The nearest number of 24 bits, ties away, finite if x is. */
static uint32_t nearest24(uint32_t x)
{
  uint32_t magnitude = x & 0x7fffffff, rounded = magnitude + 0x80;
  if (magnitude < 0x7f800000 && rounded >= 0x7f800000)
    rounded = 0x7f7fffff;
  return ((x & 0x80000000) | (magnitude < 0x7f800000 ? rounded : magnitude)) &
         0xffffff00;
}

static int check(const struct pen_state_format *f, enum pen_isa isa)
{
  struct pen_state_part part = {arrays, N, 0, N};
  bool whole = f != &pen_state_int8;
  pen_state_pack(f, isa, &part, half, p, m, v);
  pen_state_unpack(f, isa, &part, half, back, m, v);
  for (size_t i = 0; i < N; i++) {
    uint32_t x = pen_f32_bits(p[i]);
    if ((x & 0x7fffffff) > 0x7f800000)
      x = PEN_NAN_F32_BITS;
    if (!whole)
      x = nearest24(x);
    if (pen_f32_bits(back[i]) != x ||
        half[i] != pen_bf16_from_f32_away(pen_f32_from_bits(x)))
      return fail(f, isa, i);
  }
  return 0;
}

int main(int argc, char **argv)
{
  static const struct pen_state_format *const formats[] = {
    &pen_state_split32, &pen_state_bf16, &pen_state_int8};
  uint64_t stride = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, n = 0;
  enum pen_isa highest;
  if (!stride || pen_isa_choose(NULL, &highest) < 0) {
    printf("every_master [STRIDE]: %s\n", pen_error_text());
    return 1;
  }
  for (uint64_t first = 0; first < UINT64_C(1) << 32; first += N * stride) {
    for (size_t i = 0; i < N; i++) {
      uint32_t bits = (uint32_t)(first + i * stride);
      memcpy(&p[i], &bits, sizeof bits);
    }
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
      for (int isa = 0; isa <= (int)highest; isa++)
        if (formats[f]->rows[isa] && check(formats[f], (enum pen_isa)isa))
          return 1;
    n += N;
  }
  printf("%llu masters, levels up to %s: every one came back\n",
         (unsigned long long)n, pen_isa_name(highest));
  return 0;
}
