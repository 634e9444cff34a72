/* tokens_format.h: what tokens.c and the formats it reads share; not for
 * callers of tokens.h. */
#ifndef PEN_SRC_DATA_TOKENS_FORMAT_H
#define PEN_SRC_DATA_TOKENS_FORMAT_H

#include "src/data/tokens.h"

/* One regular file, opened for reading.  `fd` is -1 where a format has many
 * files and opens each when it is read. */
struct pen_tokens_file {
  char *path; /* owned */
  int fd;
  uint64_t n_bytes;
};

struct pen_tokens {
  char *path; /* owned, as the caller gave it */
  const struct pen_tokens_ops *ops;
  struct pen_tokens_info info;
  uint32_t id_limit; /* every id must be below it */

  struct pen_tokens_file data;  /* tokens, for .pent also the rest */
  uint64_t tokens_offset;       /* in data, bytes */
  uint64_t loss_offset;         /* .pent */
  uint64_t borders_offset;      /* .pent; Megatron: document indices in index */
  uint32_t tokens_crc, loss_crc; /* .pent */

  struct pen_tokens_file index; /* Megatron's .idx */
  uint64_t pointers_offset;     /* in index, bytes */
  uint64_t n_pieces;            /* Megatron: its "sequences" */

  struct pen_tokens_file *parts; /* a directory's files, [n_docs] */
  uint64_t *part_borders;        /* [n_docs+1] */
};

/* The hooks of one format; NULL where the common one serves. */
struct pen_tokens_ops {
  const char *name;
  enum pen_tokens_format format;
  /* Fills offsets, borders and the info but for its format; the path is set.
   * On failure the caller frees what is there. */
  int (*open)(struct pen_tokens *tokens);
  /* `n` tokens from `begin` as stored; the common one: one file at an offset. */
  int (*raw)(const struct pen_tokens *tokens, uint64_t begin, size_t n, void *ret_raw);
  /* The common one: a single document. */
  int (*borders)(const struct pen_tokens *tokens, uint64_t first, size_t n,
                 uint64_t *ret_borders);
  /* One flag per token; the common one: all are targets. */
  int (*trained)(const struct pen_tokens *tokens, uint64_t begin, size_t n,
                 uint8_t *ret_trained);
  /* Checksums beyond what open has checked. */
  int (*verify)(const struct pen_tokens *tokens);
};

extern const struct pen_tokens_ops pen_tokens_ops_pen, pen_tokens_ops_u16,
  pen_tokens_ops_u32, pen_tokens_ops_llmc, pen_tokens_ops_megatron,
  pen_tokens_ops_bytes, pen_tokens_ops_directory;

/* Opens `path` into `ret_file` (refuses what is not a regular file). */
int pen_tokens_file_open(const char *path, struct pen_tokens_file *ret_file);
void pen_tokens_file_close(struct pen_tokens_file *file);
/* Exactly n bytes at offset, or -PEN_ESHORT naming the byte where it ended. */
int pen_tokens_file_read(const struct pen_tokens_file *file, uint64_t offset,
                         size_t n_bytes, void *ret_bytes);

#endif
