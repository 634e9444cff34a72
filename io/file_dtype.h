/* file_dtype.h: number formats as tensor files store them, and exact scalar
 * conversions between them and fp32. */
#ifndef PEN_IO_FILE_DTYPE_H
#define PEN_IO_FILE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/* name in the file, bytes an element, name in config.json ("" when a model's
 * weights cannot have it). */
#define PEN_FILE_DTYPES(X)                                                    \
  X(PEN_FILE_BOOL, "BOOL", 1, "")                                             \
  X(PEN_FILE_U8, "U8", 1, "")                                                 \
  X(PEN_FILE_I8, "I8", 1, "")                                                 \
  X(PEN_FILE_F8_E4M3, "F8_E4M3", 1, "")                                       \
  X(PEN_FILE_F8_E5M2, "F8_E5M2", 1, "")                                       \
  X(PEN_FILE_F8_E8M0, "F8_E8M0", 1, "")                                       \
  X(PEN_FILE_I16, "I16", 2, "")                                               \
  X(PEN_FILE_U16, "U16", 2, "")                                               \
  X(PEN_FILE_F16, "F16", 2, "float16")                                        \
  X(PEN_FILE_BF16, "BF16", 2, "bfloat16")                                     \
  X(PEN_FILE_I32, "I32", 4, "")                                               \
  X(PEN_FILE_U32, "U32", 4, "")                                               \
  X(PEN_FILE_F32, "F32", 4, "float32")                                        \
  X(PEN_FILE_C64, "C64", 8, "")                                               \
  X(PEN_FILE_F64, "F64", 8, "float64")                                        \
  X(PEN_FILE_I64, "I64", 8, "")                                               \
  X(PEN_FILE_U64, "U64", 8, "")

enum pen_file_dtype {
  PEN_FILE_NONE,
#define X(name, text, bytes, torch) name,
  PEN_FILE_DTYPES(X)
#undef X
  PEN_FILE_N_DTYPES
};

/* Bytes of one element; 0 for NONE. */
size_t pen_file_dtype_bytes(enum pen_file_dtype dtype);

/* "BF16" and so on; "none" for NONE. */
const char *pen_file_dtype_name(enum pen_file_dtype dtype);

/* "bfloat16" and so on, as config.json says it; "" when it has no such name. */
const char *pen_file_dtype_torch_name(enum pen_file_dtype dtype);

/* NONE when the name is none of ours. */
enum pen_file_dtype pen_file_dtype_find(const char *name);
enum pen_file_dtype pen_file_dtype_find_torch(const char *name);

/* out [n] = in [n] as fp32; in need not be aligned.  F16, BF16, F32 are exact,
 * F64 rounds to nearest even.  -PEN_EUNSUPPORTED for every other format. */
int pen_file_dtype_to_f32(enum pen_file_dtype dtype, const void *in, size_t n,
                          float *out);

/* out [n] in `dtype` = in [n]; out need not be aligned.  BF16 rounds ties away
 * from zero, as every weight does (docs/NUMERICS.md); F16 rounds to nearest
 * even.  ret_overflow, where not NULL, counts finite values that became
 * infinite. */
int pen_file_dtype_from_f32(enum pen_file_dtype dtype, const float *in,
                            size_t n, void *out, size_t *ret_overflow);

#endif
