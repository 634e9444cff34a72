/* crc32.h: the CRC-32 of token files (the one of zlib and Ethernet, since the
 * tool that writes them has that one in its standard library; the state store
 * uses CRC32C). */
#ifndef PEN_SRC_DATA_CRC32_H
#define PEN_SRC_DATA_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Continues `crc` (0 to begin) over `n_bytes` bytes.  Reflected polynomial
 * 0xEDB88320, start and final inversion included, so that the CRC of a
 * sequence of parts is the CRC of the whole. */
uint32_t pen_crc32(uint32_t crc, const void *bytes, size_t n_bytes);

#endif
