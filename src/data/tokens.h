/* tokens.h: read token ids, loss flags and document borders from a file of any
 * of the supported formats, without holding it in memory.
 *
 * Formats: penstock's own (.pent, docs/FORMATS.md), plain uint16 and uint32,
 * llm.c's .bin, Megatron's .bin with .idx, and any other file or directory as
 * raw bytes through the built-in byte tokenizer (ids 0..255, vocabulary 256).
 * An open file is read with pread only and never written: every thread may
 * read from it at once. */
#ifndef PEN_SRC_DATA_TOKENS_H
#define PEN_SRC_DATA_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/data/sha256.h"

#define PEN_TOKENS_BYTE_VOCABULARY 256
#define PEN_TOKENS_SUFFIX ".pent"

enum pen_tokens_format {
  PEN_TOKENS_AUTO,     /* by magic number, then by name; see pen_tokens_open */
  PEN_TOKENS_PEN,      /* .pent */
  PEN_TOKENS_U16,      /* nothing but little-endian uint16 */
  PEN_TOKENS_U32,      /* nothing but little-endian uint32 */
  PEN_TOKENS_LLMC,     /* llm.c, magic 20240520 (uint16) or 20240801 (uint32) */
  PEN_TOKENS_MEGATRON, /* NAME.bin beside NAME.idx */
  PEN_TOKENS_BYTES,    /* one id per byte; a directory is one document per file */
  PEN_TOKENS_N_FORMATS
};

struct pen_tokens_options {
  enum pen_tokens_format format;
  /* The model's vocabulary; ids at or above it are refused.  0: not known. */
  uint32_t vocab_size;
  /* The model's tokenizer (pen_tokens_hash_tokenizer), PEN_SHA256_BYTES bytes,
   * borrowed during open; NULL: the model has none or it is not to be checked. */
  const uint8_t *tokenizer_sha256;
};

struct pen_tokens_info {
  enum pen_tokens_format format;
  uint64_t n_tokens;
  uint64_t n_docs;     /* documents, at least 1 */
  uint64_t n_trained;  /* tokens that are targets by the file's own count */
  uint64_t file_bytes; /* of all its files */
  uint32_t token_bytes; /* 1, 2 or 4 */
  uint32_t content_crc; /* of ids and loss flags as the file states it, else of
                           the ids once pen_tokens_verify has read them; 0: none */
  uint32_t vocab_size; /* the file's own, 0 where the format has none */
  int64_t bos_id, eos_id, pad_id; /* -1: none or not known */
  bool records;        /* one document is one sample, never cut into several */
  bool has_tokenizer;  /* tokenizer_sha256 is set */
  bool has_loss;       /* there are loss flags; without: all tokens are targets */
  uint8_t tokenizer_sha256[PEN_SHA256_BYTES];
};

struct pen_tokens; /* opaque */

/* The format AUTO takes `path` for: by magic number; else a .bin beside an .idx
 * is Megatron's; else .bin and .u16 are uint16 (uint32 where vocab_size, the
 * model's or 0, is above 65536) and .u32 is uint32; all else, and a directory,
 * is bytes.  Negative errno where it cannot be read. */
int pen_tokens_detect(const char *path, uint32_t vocab_size,
                      enum pen_tokens_format *ret_format);

/* Opens `path`; the caller owns *ret_tokens until pen_tokens_close.
 *
 * Headers, sizes and borders are checked here (time in proportion to the
 * number of documents, not of tokens).  Errors: negative errno, -PEN_ESHORT
 * (file shorter than its header says), -PEN_EFORMAT (counts, ids, longer than
 * its header says), -PEN_ECORRUPT (checksum), -PEN_EMISMATCH (made with
 * another tokenizer, or vocabulary larger than the model's). */
int pen_tokens_open(const char *path, const struct pen_tokens_options *options,
                    struct pen_tokens **ret_tokens);
void pen_tokens_close(struct pen_tokens **tokens);

/* Borrowed until close. */
const struct pen_tokens_info *pen_tokens_info(const struct pen_tokens *tokens);
const char *pen_tokens_path(const struct pen_tokens *tokens);

/* Reads tokens begin .. begin+n-1: ids to ret_ids[n], and to ret_trained[n]
 * 1 where the token is a trained target, else 0.  Either may be NULL.
 * Allocates nothing.  An id at or above the vocabulary is -PEN_EFORMAT with
 * its position, a file that has shrunk since open -PEN_ESHORT. */
int pen_tokens_read(const struct pen_tokens *tokens, uint64_t begin, size_t n,
                    uint32_t *ret_ids, uint8_t *ret_trained);

/* Borders first .. first+n-1 of the n_docs+1: document d is tokens
 * border[d] .. border[d+1]-1; border[0] = 0, border[n_docs] = n_tokens. */
int pen_tokens_borders(const struct pen_tokens *tokens, uint64_t first, size_t n,
                       uint64_t *ret_borders);

/* Reads all of the file once: checksums, every id, the count of trained tokens.
 * Sets content_crc where the format has none. */
int pen_tokens_verify(struct pen_tokens *tokens);

/* The hash by which token files name a tokenizer: SHA-256 of tokenizer.json in
 * `dir`, or where there is none of vocab.json followed by merges.txt, or where
 * there is neither of tokenizer.model.  *ret_found false, and the hash
 * untouched: the directory has no tokenizer. */
int pen_tokens_hash_tokenizer(const char *dir, uint8_t ret_sha256[PEN_SHA256_BYTES],
                              bool *ret_found);

/* "pent", "u16", "u32", "llm.c", "megatron", "bytes". */
const char *pen_tokens_format_name(enum pen_tokens_format format);

#endif
