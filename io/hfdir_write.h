/* hfdir_write.h: a model directory written: its tensors in any order and any
 * pieces; the directory gets its name only when whole and durable. */
#ifndef PEN_IO_HFDIR_WRITE_H
#define PEN_IO_HFDIR_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/file_dtype.h"
#include "io/hfdir.h"
#include "io/safetensors_write.h"

struct pen_hfdir_writer;

/* What the directory will hold; all borrowed during create. */
struct pen_hfdir_layout {
  const struct pen_safetensors_spec *specs; /* [n] */
  const size_t *shards;                     /* [n], file of each tensor */
  size_t n;
  const char *const *shard_names; /* [n_shards] file names */
  size_t n_shards;
  bool has_index; /* false: one file, without an index */
};

/* Starts PATH.tmp with room for every byte; -PEN_ENOFIT, before anything is
 * there, where the drive has too little for all of them.  A PATH that is a file
 * or would lie in one is -ENOTDIR.  A folder that is not empty is -EEXIST unless
 * `overwrite`, and then still unless it is a model directory without other folders
 * than that of chat templates in it; a PATH.tmp that an earlier process left is
 * removed, and is -EEXIST if it holds such folders or what is of no model.  Tensor i
 * of later calls is layout->specs[i].
 * Caller owns *ret_writer; one thread at a time. */
int pen_hfdir_create(const char *path, const struct pen_hfdir_layout *layout,
                     bool overwrite, struct pen_hfdir_writer **ret_writer);

/* Index of a tensor, SIZE_MAX when there is none of that name. */
size_t pen_hfdir_writer_find(const struct pen_hfdir_writer *writer,
                             const char *name);

/* Elements [begin, begin + n) of tensor i from in [n] (`dtype` BF16 or F32), in
 * the tensor's own format.  A finite number that the format cannot hold is
 * -ERANGE with the tensor's name. */
int pen_hfdir_write_elems(struct pen_hfdir_writer *writer, size_t i,
                          uint64_t begin, size_t n, const void *in,
                          enum pen_file_dtype dtype);

/* The same without conversion. */
int pen_hfdir_write_bytes(struct pen_hfdir_writer *writer, size_t i,
                          uint64_t begin, const void *bytes, size_t n_bytes);

/* Adds a small file of these bytes. */
int pen_hfdir_put_file(struct pen_hfdir_writer *writer, const char *name,
                       const void *bytes, size_t n);

/* Adds a small file by copying another. */
int pen_hfdir_copy_file(struct pen_hfdir_writer *writer, const char *name,
                        const char *from);

/* Copies from another model directory what of these is there: tokenizer, chat
 * templates, generation config; not config.json. */
int pen_hfdir_copy_companions(struct pen_hfdir_writer *writer,
                              const char *from_dir);

/* Checks that every byte of every tensor was written, writes the index, syncs
 * all, and makes PATH.tmp be PATH: before that PATH is as it was, after it
 * whole.  Frees the writer either way. */
int pen_hfdir_commit(struct pen_hfdir_writer **writer);

/* Gives up: removes PATH.tmp.  NULL is fine; sets *writer to NULL. */
void pen_hfdir_abandon(struct pen_hfdir_writer **writer);

#endif
