/* bytes.h: little-endian numbers out of file bytes, on any host. */
#ifndef PEN_SRC_DATA_BYTES_H
#define PEN_SRC_DATA_BYTES_H

#include <stdint.h>

static inline uint32_t pen_bytes_u16(const uint8_t *at)
{
  return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static inline uint32_t pen_bytes_u32(const uint8_t *at)
{
  return pen_bytes_u16(at) | pen_bytes_u16(at + 2) << 16;
}

static inline uint64_t pen_bytes_u64(const uint8_t *at)
{
  return (uint64_t)pen_bytes_u32(at) | (uint64_t)pen_bytes_u32(at + 4) << 32;
}

#endif
