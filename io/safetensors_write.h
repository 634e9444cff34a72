/* safetensors_write.h: one safetensors file, its tensors written in any order
 * and any pieces; it gets its name only when whole and durable. */
#ifndef PEN_IO_SAFETENSORS_WRITE_H
#define PEN_IO_SAFETENSORS_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "io/file_dtype.h"

struct pen_safetensors_writer;

struct pen_safetensors_spec {
  const char *name; /* this and shape borrowed during create */
  enum pen_file_dtype dtype;
  size_t rank;
  const uint64_t *shape; /* [rank] */
};

/* Starts PATH.tmp: header and room for every byte (-ENOSPC when the drive has
 * too little, before anything is written).  Tensor i of every later call is
 * specs[i].  Data lie wider formats first, so that each tensor is aligned to
 * its element.  Caller owns *ret_writer. */
int pen_safetensors_create(const char *path,
                           const struct pen_safetensors_spec *specs, size_t n,
                           struct pen_safetensors_writer **ret_writer);

/* Bytes [begin, begin + n_bytes) of tensor i.  A byte written twice, or outside
 * the tensor, is -EINVAL.  One thread at a time. */
int pen_safetensors_write(struct pen_safetensors_writer *writer, size_t i,
                          uint64_t begin, const void *bytes, size_t n_bytes);

/* Checks that every byte was written (-PEN_EMISMATCH names the first tensor
 * that lacks some), syncs, renames PATH.tmp to PATH and syncs the folder.  On
 * failure PATH is as it was.  Frees the writer either way. */
int pen_safetensors_finish(struct pen_safetensors_writer **writer);

/* Gives up: removes PATH.tmp.  NULL is fine; sets *writer to NULL. */
void pen_safetensors_abandon(struct pen_safetensors_writer **writer);

#endif
