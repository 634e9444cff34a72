/* file_dtype.c: number formats of tensor files.
 *
 * Plain scalar loops: loading and saving are bound by the drive, and these are
 * what every faster conversion is compared with.  No state, any thread. */
#include "io/file_dtype.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

struct row {
  const char *name;
  size_t bytes;
  const char *torch_name;
};

static const struct row rows[PEN_FILE_N_DTYPES] = {
  [PEN_FILE_NONE] = {"none", 0, ""},
#define X(dtype, text, n_bytes, torch) [dtype] = {text, n_bytes, torch},
  PEN_FILE_DTYPES(X)
#undef X
};

size_t pen_file_dtype_bytes(enum pen_file_dtype dtype)
{
  return rows[dtype].bytes;
}

const char *pen_file_dtype_name(enum pen_file_dtype dtype)
{
  return rows[dtype].name;
}

const char *pen_file_dtype_torch_name(enum pen_file_dtype dtype)
{
  return rows[dtype].torch_name;
}

enum pen_file_dtype pen_file_dtype_find(const char *name)
{
  for (int i = PEN_FILE_NONE + 1; i < PEN_FILE_N_DTYPES; i++)
    if (!strcmp(rows[i].name, name))
      return (enum pen_file_dtype)i;
  return PEN_FILE_NONE;
}

enum pen_file_dtype pen_file_dtype_find_torch(const char *name)
{
  for (int i = PEN_FILE_NONE + 1; i < PEN_FILE_N_DTYPES; i++)
    if (name[0] && !strcmp(rows[i].torch_name, name))
      return (enum pen_file_dtype)i;
  return PEN_FILE_NONE;
}

static float f32_of_bits(uint32_t bits)
{
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t bits_of_f32(float value)
{
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float f32_of_f16(uint16_t half)
{
  uint32_t sign = (uint32_t)(half & 0x8000) << 16;
  uint32_t exponent = half >> 10 & 31;
  uint32_t fraction = half & 0x3ff;
  if (exponent == 31)
    return f32_of_bits(sign | 0x7f800000 | fraction << 13);
  if (exponent)
    return f32_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
  float value = (float)fraction * 0x1p-24f; /* subnormal: exact */
  return f32_of_bits(sign | bits_of_f32(value));
}

/* Nearest, ties to even.  Below 2^-14 the sum with 0.5 has a unit of 2^-24, the
 * smallest f16: the addition rounds, and the low bits are the result. */
static uint16_t f16_of_f32(float value)
{
  uint32_t bits = bits_of_f32(value);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return sign | 0x7e00;
  if (magnitude < 0x38800000) { /* 2^-14 */
    uint32_t sum = bits_of_f32(f32_of_bits(magnitude) + 0.5f);
    return sign | (uint16_t)(sum - bits_of_f32(0.5f));
  }
  if (magnitude >= 0x477ff000) /* 65520: halfway to what does not exist */
    return sign | 0x7c00;
  uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return sign | (uint16_t)((rounded - (112u << 23)) >> 13);
}

/* Ties away from zero; a NaN stays one. */
static uint16_t bf16_of_f32(float value)
{
  uint32_t bits = bits_of_f32(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return (uint16_t)(bits >> 16 | 0x40);
  if ((bits & 0x7fffffff) == 0x7f800000)
    return (uint16_t)(bits >> 16);
  return (uint16_t)((bits + 0x8000) >> 16);
}

int pen_file_dtype_to_f32(enum pen_file_dtype dtype, const void *in, size_t n,
                          float *out)
{
  const unsigned char *bytes = in;
  uint16_t half;
  double wide;
  switch (dtype) {
  case PEN_FILE_F32:
    if (n)
      memcpy(out, in, n * sizeof *out);
    return 0;
  case PEN_FILE_BF16:
    for (size_t i = 0; i < n; i++) {
      memcpy(&half, bytes + 2 * i, 2);
      out[i] = f32_of_bits((uint32_t)half << 16);
    }
    return 0;
  case PEN_FILE_F16:
    for (size_t i = 0; i < n; i++) {
      memcpy(&half, bytes + 2 * i, 2);
      out[i] = f32_of_f16(half);
    }
    return 0;
  case PEN_FILE_F64:
    for (size_t i = 0; i < n; i++) {
      memcpy(&wide, bytes + 8 * i, 8);
      out[i] = (float)wide;
    }
    return 0;
  default:
    return pen_error_set(-PEN_EUNSUPPORTED,
                         "cannot use %s numbers as weights; BF16, F16, F32 and "
                         "F64 are read",
                         pen_file_dtype_name(dtype));
  }
}

int pen_file_dtype_from_f32(enum pen_file_dtype dtype, const float *in,
                            size_t n, void *out, size_t *ret_overflow)
{
  unsigned char *bytes = out;
  size_t overflow = 0;
  switch (dtype) {
  case PEN_FILE_F32:
    if (n)
      memcpy(out, in, n * sizeof *in);
    break;
  case PEN_FILE_BF16:
    for (size_t i = 0; i < n; i++) {
      uint16_t half = bf16_of_f32(in[i]);
      overflow += (half & 0x7fff) == 0x7f80 && isfinite(in[i]);
      memcpy(bytes + 2 * i, &half, 2);
    }
    break;
  case PEN_FILE_F16:
    for (size_t i = 0; i < n; i++) {
      uint16_t half = f16_of_f32(in[i]);
      overflow += (half & 0x7fff) == 0x7c00 && isfinite(in[i]);
      memcpy(bytes + 2 * i, &half, 2);
    }
    break;
  case PEN_FILE_F64:
    for (size_t i = 0; i < n; i++) {
      double wide = in[i];
      memcpy(bytes + 8 * i, &wide, 8);
    }
    break;
  default:
    return pen_error_set(-PEN_EUNSUPPORTED, "cannot write weights as %s",
                         pen_file_dtype_name(dtype));
  }
  if (ret_overflow)
    *ret_overflow = overflow;
  return 0;
}
