/* crc32c.h: CRC-32C (Castagnoli) of bytes, the checksum of everything stored.
 *
 * Reflected polynomial 0x82f63b78, initial and final inversion (RFC 3720,
 * B.4): pen_crc32c(0, "123456789", 9) is 0xe3069283.  Any thread. */
#ifndef PEN_IO_CRC32C_H
#define PEN_IO_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues `crc` (0 at the start) over `bytes` bytes of `data`. */
uint32_t pen_crc32c(uint32_t crc, const void *data, size_t bytes);

/* The same by table, on every CPU: the reference. */
uint32_t pen_crc32c_table(uint32_t crc, const void *data, size_t bytes);

/* The CRC of A followed by B, from the CRC of each and B's length. */
uint32_t pen_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t bytes_b);

#endif
