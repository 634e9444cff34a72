/* params.h: the parameter table: every tensor of a model, and where each of
 * its elements lies in the blocks that are streamed. */
#ifndef PEN_SRC_MODEL_PARAMS_H
#define PEN_SRC_MODEL_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/file_dtype.h"
#include "offload/workload.h"
#include "src/model/config.h"
#include "src/model/role.h"

struct pen_hfdir;
struct pen_hfdir_writer;

/* An untied head's tensor, in every family. */
#define PEN_PARAMS_HEAD_NAME "lm_head.weight"

/* One tensor as the model directory names it. */
struct pen_param_tensor {
  const char *name; /* owned by the table */
  enum pen_param_role role;
  size_t layer;      /* SIZE_MAX outside the decoder layers */
  size_t rank;       /* 1 or 2 */
  uint64_t shape[2]; /* [rows, cols]; rank 1: [n, 1] */
  size_t first_param, n_params; /* its pieces; none for BUFFER, head_copy */
  size_t dir_index; /* in the hfdir it was bound to; SIZE_MAX when unbound */
};

/* The rows [row_begin, row_begin + rows) of one tensor, in one block, row after
 * row, from element `offset` of the block on. */
struct pen_param {
  size_t tensor; /* index into tensors */
  enum pen_param_role role;
  size_t block;
  size_t offset; /* elements; a multiple of PEN_BLOCK_ALIGN_ELEMS */
  size_t row_begin;
  size_t rows, cols; /* cols 1 for vectors */
  bool decays;       /* matrices do; vectors and padded vocabulary rows not */
};

enum pen_param_block_kind {
  PEN_BLOCK_POSITIONS, /* the table of learned positions, where there is one */
  PEN_BLOCK_LAYER,
  PEN_BLOCK_ATTENTION, /* a layer with experts is this, ... */
  PEN_BLOCK_ROUTER,    /* this: the MLP's norm and the router, ... */
  PEN_BLOCK_EXPERT,    /* and these, which come after all other blocks */
  PEN_BLOCK_FINAL_NORM,
  PEN_BLOCK_EMBED, /* rows of an untied embedding */
  PEN_BLOCK_HEAD,  /* rows of the head, which is the embedding too when tied */
  PEN_N_BLOCK_KINDS
};

/* What the model side knows of one block. */
struct pen_param_block {
  enum pen_param_block_kind kind;
  size_t layer; /* LAYER, ATTENTION, ROUTER, EXPERT */
  size_t first_param, n_params;
  size_t row_begin, rows; /* EMBED, HEAD: vocabulary rows, padded ones too */
  size_t rows_valid; /* of them below vocab_size; the rest get no probability
                        and no gradient, and do not decay */
  size_t role_offset[PEN_N_ROLES]; /* elements; SIZE_MAX: not in this block */
};

/* The table.  Arrays are owned by it; read them, change nothing but
 * blocks[].saved_bytes (the forward pass knows that). */
struct pen_params {
  struct pen_model_config config; /* `tied` is what was decided at bind */
  const char *prefix; /* of the names; the family's, or "" where the files of a
                         bare model lack it */
  size_t head_rows;  /* vocabulary rows per block (the last may have less) */
  size_t vocab_rows; /* rows of the embedding in the file, >= vocab_size */

  struct pen_param_tensor *tensors; /* files' names, model order */
  size_t n_tensors;
  size_t head_copy; /* tensor under which a tied model's files hold the head a
                       second time; SIZE_MAX: they do not */
  struct pen_param *params; /* block after block */
  size_t n_params;
  struct pen_block *blocks; /* offload's view: name, elems, ranges, FLOPs */
  struct pen_param_block *infos; /* our view of the same */
  size_t n_blocks;
  size_t rows_begin, rows_end; /* as in struct pen_workload */
  size_t body_begin, body_end;
  size_t head_begin, head_end;
  size_t experts_begin, experts_end;
  uint64_t n_elems; /* parameters without padding; tied counted once */
};

/* Builds the table for a model whose embedding has vocab_rows rows (0: exactly
 * vocab_size) in blocks of head_rows rows (0: chosen by the config, about a
 * decoder layer's size).  Caller owns *ret_params. */
int pen_params_build(const struct pen_model_config *config, size_t head_rows,
                     size_t vocab_rows, struct pen_params **ret_params);

/* The same with names that begin with `prefix`, borrowed for ever. */
int pen_params_build_named(const struct pen_model_config *config,
                           const char *prefix, size_t head_rows,
                           size_t vocab_rows, struct pen_params **ret_params);

/* Builds the table and binds it to a directory's tensors.  Every tensor must be
 * there with its shape (-PEN_EMISMATCH with both shapes; missing: its name) and
 * every tensor of the directory must be used (-PEN_EMISMATCH with its name).
 * A tied model that stores a head as well: identical is accepted, a different
 * one is -PEN_EMISMATCH, unless `untie` makes the model untied.
 * `dir` is borrowed during the call. */
int pen_params_open(const struct pen_model_config *config,
                    const struct pen_hfdir *dir, size_t head_rows, bool untie,
                    struct pen_params **ret_params);

/* NULL is fine; sets *params to NULL. */
void pen_params_free(struct pen_params **params);

/* The first block of a kind, NULL where there is none; those of decoder layers
 * all have the same layout as the first of their kind. */
const struct pen_param_block *
pen_params_first(const struct pen_params *params, enum pen_param_block_kind kind);

/* Elements of a role's tensor in the block; 0 where it has none. */
size_t pen_params_elems(const struct pen_params *params,
                        const struct pen_param_block *info,
                        enum pen_param_role role);

/* Sets the fields of `workload` that come from the table: the blocks and the
 * ranges of rows, body and head.  Borrowed from params until its free. */
void pen_params_workload(const struct pen_params *params,
                         struct pen_workload *workload);

/* out [n] = elements [begin, begin + n) of a block, from the bound directory,
 * converted to fp32; padding is 0.  Allocates nothing; any thread, any order. */
int pen_params_load_elems(const struct pen_params *params,
                          const struct pen_hfdir *dir, size_t block,
                          size_t begin, size_t n, float *out);

/* Writes elements [begin, begin + n) of a block, w [n] in `dtype` (bf16 or
 * fp32), to every tensor they belong to, in that tensor's stored dtype. */
int pen_params_save_elems(const struct pen_params *params,
                          struct pen_hfdir_writer *writer, size_t block,
                          size_t begin, size_t n, const void *w,
                          enum pen_file_dtype dtype);

/* The whole block: w [blocks[block].elems]. */
int pen_params_save_block(const struct pen_params *params,
                          struct pen_hfdir_writer *writer, size_t block,
                          const void *w, enum pen_file_dtype dtype);

/* Starts a directory like `source` (the one params was opened on): same names,
 * shapes and shards, dtypes too unless `dtype` (else NONE) is asked for,
 * config.json saying the same dtype, tokenizer files along, buffers copied.
 * Then save every block and pen_hfdir_commit.  Caller owns *ret_writer. */
int pen_params_create_dir_like(const struct pen_params *params,
                               const struct pen_hfdir *source,
                               enum pen_file_dtype dtype, const char *path,
                               bool overwrite,
                               struct pen_hfdir_writer **ret_writer);

/* Starts a directory for a new model: config.json from the file `config_path`
 * with this dtype and the table's tying and vocabulary, shards of at most
 * max_shard_bytes of tensors each (one tensor may be more). */
int pen_params_create_dir(const struct pen_params *params,
                          const char *config_path, enum pen_file_dtype dtype,
                          uint64_t max_shard_bytes, const char *path,
                          bool overwrite,
                          struct pen_hfdir_writer **ret_writer);

#endif
