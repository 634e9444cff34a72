/* hfdir.h: a model directory as Hugging Face lays it out, read: one
 * safetensors file, or shards and their index. */
#ifndef PEN_IO_HFDIR_H
#define PEN_IO_HFDIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/file_dtype.h"

#define PEN_HFDIR_SINGLE "model.safetensors"
#define PEN_HFDIR_INDEX "model.safetensors.index.json"

struct pen_hfdir;

struct pen_hfdir_tensor {
  const char *name; /* this and shape borrowed until close */
  enum pen_file_dtype dtype;
  size_t rank;
  const uint64_t *shape; /* [rank] */
  uint64_t elems, bytes;
  size_t shard;    /* which file */
  size_t in_shard; /* which tensor of that file */
};

/* Opens every file of the directory and checks the index against them: a
 * missing shard, a tensor in two shards, one that the index lacks or puts into
 * the wrong shard are errors that name it.  lenient: as pen_safetensors_open.
 * Caller owns *ret_dir; files stay open until close. */
int pen_hfdir_open(const char *path, bool lenient, struct pen_hfdir **ret_dir);

/* NULL is fine; sets *dir to NULL. */
void pen_hfdir_close(struct pen_hfdir **dir);

const char *pen_hfdir_path(const struct pen_hfdir *dir);
bool pen_hfdir_has_index(const struct pen_hfdir *dir);
size_t pen_hfdir_n_shards(const struct pen_hfdir *dir);
/* File name without the folder; borrowed until close. */
const char *pen_hfdir_shard_name(const struct pen_hfdir *dir, size_t shard);
uint64_t pen_hfdir_shard_bytes(const struct pen_hfdir *dir, size_t shard);
/* What only `lenient` accepted in that file, "" when nothing. */
const char *pen_hfdir_shard_warning(const struct pen_hfdir *dir, size_t shard);

/* Tensors, shard after shard in the order of their headers. */
size_t pen_hfdir_n_tensors(const struct pen_hfdir *dir);
const struct pen_hfdir_tensor *pen_hfdir_tensor(const struct pen_hfdir *dir,
                                                size_t i);
/* Index of a tensor, SIZE_MAX when there is none of that name. */
size_t pen_hfdir_find(const struct pen_hfdir *dir, const char *name);

/* The format that most parameter bytes have (F15). */
enum pen_file_dtype pen_hfdir_dtype(const struct pen_hfdir *dir);

/* out [n] = elements [begin, begin + n) of tensor i in `dtype` (F32 or BF16),
 * from BF16, F16, F32 or F64.  Allocates nothing; any thread. */
int pen_hfdir_read_elems(const struct pen_hfdir *dir, size_t i, uint64_t begin,
                         size_t n, enum pen_file_dtype dtype, void *out);

/* out [n_bytes] = bytes of tensor i as stored. */
int pen_hfdir_read_bytes(const struct pen_hfdir *dir, size_t i, uint64_t begin,
                         size_t n_bytes, void *out);

#endif
