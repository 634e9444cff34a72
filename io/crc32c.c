/* crc32c.c: CRC-32C by the SSE4.2 instruction where there is one, else by
 * table.
 *
 * The instruction has a latency of three cycles and one result a cycle, so
 * three neighbouring runs are taken side by side and joined by a product of
 * polynomials over GF(2).  Any thread; the table is made once.
 * Disadvantage: other CPUs than x86-64 use the table (about 2 GB/s). */
#include "io/crc32c.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* reflected: bit 31 is x^0 */
#define RUN_BYTES 4096         /* of each of the three runs side by side */

static pthread_once_t tables_once = PTHREAD_ONCE_INIT;
static uint32_t tables[8][256];

static void make_tables(void)
{
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t r = i;
    for (int bit = 0; bit < 8; bit++)
      r = r & 1 ? r >> 1 ^ POLYNOMIAL : r >> 1;
    tables[0][i] = r;
  }
  for (int t = 1; t < 8; t++)
    for (int i = 0; i < 256; i++)
      tables[t][i] =
          tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xff];
}

/* Slicing by 8: table t advances a byte over t zero bytes that follow it. */
uint32_t pen_crc32c_table(uint32_t crc, const void *data, size_t bytes)
{
  const unsigned char *p = data;
  pthread_once(&tables_once, make_tables);
  crc = ~crc;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 |
                          (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
    crc = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff] ^
          tables[5][low >> 16 & 0xff] ^ tables[4][low >> 24] ^
          tables[3][p[4]] ^ tables[2][p[5]] ^ tables[1][p[6]] ^
          tables[0][p[7]];
  }
  for (; bytes; bytes--, p++)
    crc = crc >> 8 ^ tables[0][(crc ^ *p) & 0xff];
  return ~crc;
}

/* a * b mod P. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
  uint32_t product = 0;
  for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
    if (a & bit)
      product ^= b;
    b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1;
  }
  return product;
}

/* x^(8 bytes) mod P: what appending `bytes` zero bytes multiplies by. */
static uint32_t shift_of(uint64_t bytes)
{
  uint32_t power = 1u << 23; /* x^8 */
  uint32_t result = 1u << 31;
  for (; bytes; bytes >>= 1) {
    if (bytes & 1)
      result = multiply(result, power);
    power = multiply(power, power);
  }
  return result;
}

uint32_t pen_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t bytes_b)
{
  return multiply(shift_of(bytes_b), crc_a) ^ crc_b;
}

#if defined(__x86_64__)
#include <nmmintrin.h>

static uint64_t load64(const unsigned char *p)
{
  uint64_t x;
  memcpy(&x, p, sizeof x);
  return x;
}

static pthread_once_t run_shift_once = PTHREAD_ONCE_INIT;
static uint32_t run_shift;

static void make_run_shift(void) { run_shift = shift_of(RUN_BYTES); }

__attribute__((target("sse4.2"))) static uint32_t
crc32c_sse42(uint32_t crc, const void *data, size_t bytes)
{
  const unsigned char *p = data;
  uint64_t a = (uint32_t)~crc;
  pthread_once(&run_shift_once, make_run_shift);
  for (; bytes >= 3 * RUN_BYTES; bytes -= 3 * RUN_BYTES, p += 3 * RUN_BYTES) {
    uint64_t b = 0, c = 0;
    for (size_t i = 0; i < RUN_BYTES; i += 8) {
      a = _mm_crc32_u64(a, load64(p + i));
      b = _mm_crc32_u64(b, load64(p + RUN_BYTES + i));
      c = _mm_crc32_u64(c, load64(p + 2 * RUN_BYTES + i));
    }
    a = multiply(run_shift, (uint32_t)a) ^ b;
    a = multiply(run_shift, (uint32_t)a) ^ c;
  }
  for (; bytes >= 8; bytes -= 8, p += 8)
    a = _mm_crc32_u64(a, load64(p));
  for (; bytes; bytes--, p++)
    a = _mm_crc32_u8((uint32_t)a, *p);
  return ~(uint32_t)a;
}

uint32_t pen_crc32c(uint32_t crc, const void *data, size_t bytes)
{
  return __builtin_cpu_supports("sse4.2") ? crc32c_sse42(crc, data, bytes)
                                          : pen_crc32c_table(crc, data, bytes);
}
#else
uint32_t pen_crc32c(uint32_t crc, const void *data, size_t bytes)
{
  return pen_crc32c_table(crc, data, bytes);
}
#endif
