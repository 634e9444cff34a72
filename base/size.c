/* size.c: reading and writing byte counts.
 *
 * Invariant: what pen_size_format_exact writes, pen_size_parse reads back to
 * the same number; digits are summed as integers, so "18446744073709551615"
 * is exact.  Disadvantage: no locale, no exponents. */
#include "base/size.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

static const struct {
  const char *name;
  uint64_t bytes;
} units[] = {
  { "TiB", (uint64_t)1 << 40 }, { "GiB", (uint64_t)1 << 30 },
  { "MiB", (uint64_t)1 << 20 }, { "KiB", (uint64_t)1 << 10 },
  { "TB", 1000000000000u },     { "GB", 1000000000u },
  { "MB", 1000000u },           { "kB", 1000u },
  { "B", 1 },
};

#define N_UNITS (sizeof units / sizeof units[0])

static int refuse(const char *text, const char *why)
{
  return pen_error_set(-PEN_EUSAGE,
                       "\"%.64s\" is not a size (%s); write it like 4096, "
                       "512MiB, 1.5GiB or 800GB", text, why);
}

static bool find_unit(const char *name, uint64_t *ret_bytes)
{
  if (*name == '\0') {
    *ret_bytes = 1;
    return true;
  }
  for (size_t i = 0; i < N_UNITS; i++)
    if (strcasecmp(name, units[i].name) == 0) {
      *ret_bytes = units[i].bytes;
      return true;
    }
  return false;
}

int pen_size_parse(const char *text, uint64_t *ret_bytes)
{
  const char *p = text;
  uint64_t whole = 0;
  uint64_t fraction = 0, scale = 1; /* fraction / scale, 9 digits are kept */
  bool any = false;
  while (isspace((unsigned char)*p))
    p++;
  for (; isdigit((unsigned char)*p); p++, any = true)
    if (!pen_size_mul_u64(whole, 10, &whole) ||
        !pen_size_add_u64(whole, (uint64_t)(*p - '0'), &whole))
      return refuse(text, "too large");
  if (*p == '.')
    for (p++; isdigit((unsigned char)*p); p++, any = true)
      if (scale < 1000000000u) {
        fraction = fraction * 10 + (uint64_t)(*p - '0');
        scale *= 10;
      }
  if (!any)
    return refuse(text, "no number");
  while (isspace((unsigned char)*p))
    p++;
  uint64_t unit;
  if (!find_unit(p, &unit))
    return refuse(text, "unknown unit");
  if (fraction && unit == 1)
    return refuse(text, "part of a byte");
  /* unit <= 2^40 and fraction < 1e9 < 2^30: the product could pass 64 bits. */
  unsigned __int128 rest =
      ((unsigned __int128)unit * fraction + scale / 2) / scale;
  uint64_t bytes;
  if (!pen_size_mul_u64(whole, unit, &bytes) ||
      !pen_size_add_u64(bytes, (uint64_t)rest, &bytes))
    return refuse(text, "too large");
  *ret_bytes = bytes;
  return 0;
}

void pen_size_format(uint64_t n_bytes, char ret_text[PEN_SIZE_TEXT_BYTES])
{
  static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB",
                                       "EiB" };
  double value = (double)n_bytes;
  size_t i = 0;
  /* 999.5 and not 1024: "1000 MiB" would be four digits wide. */
  while (value >= (i ? 999.5 : 1024) && i + 1 < sizeof names / sizeof names[0]) {
    value /= 1024;
    i++;
  }
  if (i == 0)
    snprintf(ret_text, PEN_SIZE_TEXT_BYTES, "%" PRIu64 " B", n_bytes);
  else
    snprintf(ret_text, PEN_SIZE_TEXT_BYTES, "%.*f %s",
             value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, names[i]);
}

void pen_size_format_exact(uint64_t n_bytes,
                           char ret_text[PEN_SIZE_TEXT_BYTES + 8])
{
  for (size_t i = 0; i < N_UNITS && n_bytes; i++)
    if (units[i].bytes > 1 && n_bytes % units[i].bytes == 0) {
      snprintf(ret_text, PEN_SIZE_TEXT_BYTES + 8, "%" PRIu64 "%s",
               n_bytes / units[i].bytes, units[i].name);
      return;
    }
  snprintf(ret_text, PEN_SIZE_TEXT_BYTES + 8, "%" PRIu64, n_bytes);
}
