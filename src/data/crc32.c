/* CRC-32, eight bytes at a time through eight tables.
 *
 * The tables are filled once, under pthread_once; every thread may call.
 * Disadvantage: about 2 GB/s per core; a carry-less multiply would be faster,
 * but a token file is checked once and then the disk is slower. */
#include "src/data/crc32.h"

#include <pthread.h>

#include "src/data/bytes.h"

static uint32_t crc_tables[8][256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void crc_tables_fill(void)
{
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++)
      crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xEDB88320) : 0);
    crc_tables[0][byte] = crc;
  }
  /* Table k is the effect of a byte with k zero bytes behind it. */
  for (uint32_t byte = 0; byte < 256; byte++)
    for (int k = 1; k < 8; k++)
      crc_tables[k][byte] = crc_tables[k - 1][byte] >> 8 ^
                            crc_tables[0][crc_tables[k - 1][byte] & 0xff];
}

uint32_t pen_crc32(uint32_t crc, const void *bytes, size_t n_bytes)
{
  const uint8_t *at = bytes;

  pthread_once(&crc_once, crc_tables_fill);
  crc = ~crc;
  for (; n_bytes >= 8; at += 8, n_bytes -= 8) {
    uint32_t low = pen_bytes_u32(at) ^ crc;
    uint32_t high = pen_bytes_u32(at + 4);
    crc = crc_tables[7][low & 0xff] ^ crc_tables[6][low >> 8 & 0xff] ^
          crc_tables[5][low >> 16 & 0xff] ^ crc_tables[4][low >> 24] ^
          crc_tables[3][high & 0xff] ^ crc_tables[2][high >> 8 & 0xff] ^
          crc_tables[1][high >> 16 & 0xff] ^ crc_tables[0][high >> 24];
  }
  for (; n_bytes; at++, n_bytes--)
    crc = crc >> 8 ^ crc_tables[0][(crc ^ *at) & 0xff];
  return ~crc;
}
