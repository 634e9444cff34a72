/* safetensors.h: one safetensors file, its table of tensors and any byte range
 * of any of them.  Format: 8 bytes little-endian header length, JSON header,
 * tensor bytes without gaps (https://github.com/huggingface/safetensors). */
#ifndef PEN_IO_SAFETENSORS_H
#define PEN_IO_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/file_dtype.h"

/* The format's own bound on a header. */
#define PEN_SAFETENSORS_HEADER_BYTES_MAX ((uint64_t)100000000)

struct pen_safetensors;

struct pen_safetensors_tensor {
  const char *name; /* this and shape borrowed until close */
  enum pen_file_dtype dtype;
  size_t rank;
  const uint64_t *shape; /* [rank] */
  uint64_t elems;
  uint64_t offset; /* in the file; any alignment */
  uint64_t bytes;
};

/* Opens a file and checks its header against its size: every byte after the
 * header belongs to exactly one tensor.  -PEN_EFORMAT, with file and numbers,
 * for anything else.  lenient: bytes after the last tensor and white space
 * before the header are accepted, and pen_safetensors_warning tells of them.
 * Caller owns *ret_file. */
int pen_safetensors_open(const char *path, bool lenient,
                         struct pen_safetensors **ret_file);

/* NULL is fine; sets *file to NULL. */
void pen_safetensors_close(struct pen_safetensors **file);

const char *pen_safetensors_path(const struct pen_safetensors *file);

/* What was accepted only because of `lenient`; "" when nothing. */
const char *pen_safetensors_warning(const struct pen_safetensors *file);

uint64_t pen_safetensors_file_bytes(const struct pen_safetensors *file);

size_t pen_safetensors_n_tensors(const struct pen_safetensors *file);

/* Tensor i, in the order of the header. */
const struct pen_safetensors_tensor *
pen_safetensors_tensor(const struct pen_safetensors *file, size_t i);

/* Index of a tensor, SIZE_MAX when there is none of that name. */
size_t pen_safetensors_find(const struct pen_safetensors *file,
                            const char *name);

/* out [n_bytes] = bytes [begin, begin + n_bytes) of tensor i.  Any thread,
 * several at once.  -EINVAL when the range is not inside the tensor. */
int pen_safetensors_read(const struct pen_safetensors *file, size_t i,
                         uint64_t begin, size_t n_bytes, void *out);

#endif
