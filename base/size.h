/* size.h: byte counts that cannot wrap, and how people write them. */
#ifndef PEN_BASE_SIZE_H
#define PEN_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEN_KIB ((uint64_t)1 << 10)
#define PEN_MIB ((uint64_t)1 << 20)
#define PEN_GIB ((uint64_t)1 << 30)

/* Bytes pen_size_format writes at most, the terminating 0 included. */
#define PEN_SIZE_TEXT_BYTES 16

/* *ret = a + b, a * b, or a rounded up to a multiple of `multiple` (> 0, any
 * number).  True if it fits; false, and *ret untouched, if it would wrap.
 * The u64 forms are for file offsets. */
static inline bool pen_size_add(size_t a, size_t b, size_t *ret)
{
  size_t sum;
  if (__builtin_add_overflow(a, b, &sum))
    return false;
  *ret = sum;
  return true;
}

static inline bool pen_size_mul(size_t a, size_t b, size_t *ret)
{
  size_t product;
  if (__builtin_mul_overflow(a, b, &product))
    return false;
  *ret = product;
  return true;
}

static inline bool pen_size_round_up(size_t a, size_t multiple, size_t *ret)
{
  size_t rest = a % multiple;
  return pen_size_add(a, rest ? multiple - rest : 0, ret);
}

static inline bool pen_size_add_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
  uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum))
    return false;
  *ret = sum;
  return true;
}

static inline bool pen_size_mul_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product))
    return false;
  *ret = product;
  return true;
}

static inline bool pen_size_round_up_u64(uint64_t a, uint64_t multiple,
                                         uint64_t *ret)
{
  uint64_t rest = a % multiple;
  return pen_size_add_u64(a, rest ? multiple - rest : 0, ret);
}

/* Reads "4096", "24GiB", "1.5 GiB", "800GB": KiB MiB GiB TiB are powers of
 * 1024, kB MB GB TB powers of 1000, B or nothing is bytes; case does not
 * matter.  A fraction is rounded to the nearest byte.  -PEN_EUSAGE, naming the
 * text, for anything else, for negative numbers and for 2^64 and beyond. */
int pen_size_parse(const char *text, uint64_t *ret_bytes);

/* Writes a short form: "0 B", "512 B", "1.50 GiB".  Three significant digits,
 * for people; not meant to be parsed back to the same number. */
void pen_size_format(uint64_t n_bytes, char ret_text[PEN_SIZE_TEXT_BYTES]);

/* Writes a form that pen_size_parse reads back exactly: "24GiB", "800GB",
 * "4097". */
void pen_size_format_exact(uint64_t n_bytes,
                           char ret_text[PEN_SIZE_TEXT_BYTES + 8]);

#endif
