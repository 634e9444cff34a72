/* rng.c: Philox4x32-10 and what is made from it.
 *
 * Counter words: index low, index high, stream low, stream high; key: the
 * seed.  Any thread.  Disadvantage: a u32 costs a whole block of ten rounds;
 * bulk users should call pen_rng_philox and use all four words. */
#include "base/rng.h"

#include <math.h>
#include <string.h>

#define ROUNDS 10
#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define WEYL_0 0x9E3779B9u /* golden ratio */
#define WEYL_1 0xBB67AE85u /* sqrt(3) - 1 */

void pen_rng_philox(const uint32_t counter[4], const uint32_t key[2],
                    uint32_t ret_bits[4])
{
  uint32_t c[4], k0 = key[0], k1 = key[1];
  memcpy(c, counter, sizeof c);
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t a = (uint64_t)MULTIPLIER_0 * c[0];
    uint64_t b = (uint64_t)MULTIPLIER_1 * c[2];
    c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k0;
    c[1] = (uint32_t)b;
    c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k1;
    c[3] = (uint32_t)a;
    k0 += WEYL_0;
    k1 += WEYL_1;
  }
  memcpy(ret_bits, c, sizeof c);
}

static void block(uint64_t seed, uint64_t stream, uint64_t index,
                  uint32_t ret_bits[4])
{
  const uint32_t counter[4] = { (uint32_t)index, (uint32_t)(index >> 32),
                                (uint32_t)stream, (uint32_t)(stream >> 32) };
  const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
  pen_rng_philox(counter, key, ret_bits);
}

static uint64_t join(uint32_t low, uint32_t high)
{
  return (uint64_t)high << 32 | low;
}

uint32_t pen_rng_u32(uint64_t seed, uint64_t stream, uint64_t index)
{
  uint32_t bits[4];
  block(seed, stream, index, bits);
  return bits[0];
}

uint64_t pen_rng_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
  uint32_t bits[4];
  block(seed, stream, index, bits);
  return join(bits[0], bits[1]);
}

uint64_t pen_rng_below(uint64_t seed, uint64_t stream, uint64_t index,
                       uint64_t n)
{
  unsigned __int128 product = pen_rng_u64(seed, stream, index);
  return (uint64_t)(product * n >> 64);
}

double pen_rng_double(uint64_t seed, uint64_t stream, uint64_t index)
{
  return (double)(pen_rng_u64(seed, stream, index) >> 11) * 0x1p-53;
}

void pen_rng_normal_pair(uint64_t seed, uint64_t stream, uint64_t index,
                         double ret_pair[2])
{
  uint32_t bits[4];
  block(seed, stream, index, bits);
  /* (0, 1], so that the logarithm is finite */
  double u = ((double)(join(bits[0], bits[1]) >> 11) + 1) * 0x1p-53;
  double v = (double)(join(bits[2], bits[3]) >> 11) * 0x1p-53;
  double radius = sqrt(-2 * log(u));
  double angle = 6.283185307179586476925286766559 * v;
  ret_pair[0] = radius * cos(angle);
  ret_pair[1] = radius * sin(angle);
}
