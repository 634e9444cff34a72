/* Megatron-LM's indexed data set: NAME.bin (tokens) and NAME.idx.
 *
 * The index is: 9 bytes "MMIDIDX" 0 0, uint64 version 1, one byte of type,
 * uint64 pieces, uint64 document indices, int32 length of each piece, int64
 * byte offset of each piece, int64 number of the first piece of each document
 * (and a last one: the number of pieces).  Documents are borders here; pieces
 * (its "sequences") only matter as parts of documents.  Any thread, as
 * tokens.c.
 *
 * Disadvantage: pieces out of order in the .bin are refused, although the
 * format could express them; no known writer makes them. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "src/data/bytes.h"
#include "src/data/tokens_format.h"

#define INDEX_HEADER_BYTES 34
#define CHUNK_NUMBERS 1024

/* Bytes of a token by the type code; 0: not a type of tokens. */
static const uint8_t type_bytes[] = { [1] = 1, [4] = 4, [8] = 2 };

static int index_header(struct pen_tokens *tokens, uint64_t *ret_lengths_offset)
{
  uint8_t h[INDEX_HEADER_BYTES];
  const struct pen_tokens_file *index = &tokens->index;
  int r;

  if (index->n_bytes < INDEX_HEADER_BYTES)
    return pen_error_set(PEN_ESHORT, "%s has %" PRIu64 " bytes, a Megatron index at least %d",
                         index->path, index->n_bytes, INDEX_HEADER_BYTES);
  r = pen_tokens_file_read(index, 0, sizeof h, h);
  if (r < 0)
    return r;
  if (memcmp(h, "MMIDIDX\0\0", 9) || pen_bytes_u64(h + 9) != 1)
    return pen_error_set(PEN_EFORMAT, "%s is no Megatron index of version 1", index->path);
  if (h[17] >= sizeof type_bytes || !type_bytes[h[17]])
    return pen_error_set(PEN_EUNSUPPORTED, "%s has tokens of type %d; uint8 (1), int32 (4) "
                         "and uint16 (8) are read", index->path, h[17]);
  uint64_t n_pieces = pen_bytes_u64(h + 18), n_indices = pen_bytes_u64(h + 26);
  const uint64_t limit = UINT64_MAX / 64;
  uint64_t need = 0;
  if (n_pieces < limit && n_indices < limit)
    need = INDEX_HEADER_BYTES + n_pieces * 12 + n_indices * 8;
  if (!n_pieces || n_indices < 2 || !need)
    return pen_error_set(PEN_EFORMAT, "%s has %" PRIu64 " pieces and %" PRIu64 " document "
                         "indices: at least 1 and 2 are needed", index->path, n_pieces,
                         n_indices);
  /* A mode byte per piece may follow (multimodal data); without use here. */
  if (index->n_bytes != need && index->n_bytes != need + n_pieces)
    return pen_error_set(index->n_bytes < need ? PEN_ESHORT : PEN_EFORMAT,
                         "%s has %" PRIu64 " bytes, but its %" PRIu64 " pieces and %" PRIu64
                         " document indices need %" PRIu64, index->path, index->n_bytes,
                         n_pieces, n_indices, need);
  tokens->info.token_bytes = type_bytes[h[17]];
  tokens->info.n_docs = n_indices - 1;
  tokens->n_pieces = n_pieces;
  tokens->pointers_offset = INDEX_HEADER_BYTES + n_pieces * 4;
  tokens->borders_offset = tokens->pointers_offset + n_pieces * 8;
  *ret_lengths_offset = INDEX_HEADER_BYTES;
  return 0;
}

/* The pieces must lie one behind the other and fill the .bin exactly. */
static int pieces_check(struct pen_tokens *tokens, uint64_t lengths_offset)
{
  uint8_t lengths[CHUNK_NUMBERS * 4], pointers[CHUNK_NUMBERS * 8];
  uint64_t end = 0; /* bytes */

  for (uint64_t at = 0; at < tokens->n_pieces;) {
    uint64_t left = tokens->n_pieces - at;
    size_t n = left < CHUNK_NUMBERS ? (size_t)left : CHUNK_NUMBERS;
    int r = pen_tokens_file_read(&tokens->index, lengths_offset + at * 4, n * 4, lengths);
    if (r == 0)
      r = pen_tokens_file_read(&tokens->index, tokens->pointers_offset + at * 8, n * 8, pointers);
    if (r < 0)
      return r;
    for (size_t i = 0; i < n; i++) {
      uint32_t length = pen_bytes_u32(lengths + 4 * i);
      uint64_t pointer = pen_bytes_u64(pointers + 8 * i);
      if (length > INT32_MAX || pointer != end)
        return pen_error_set(PEN_EFORMAT, "piece %" PRIu64 " of %s has %" PRIu32 " tokens at "
                             "byte %" PRIu64 "; byte %" PRIu64 " was expected", at + i,
                             tokens->index.path, length, pointer, end);
      end += (uint64_t)length * tokens->info.token_bytes;
      if (end > tokens->data.n_bytes)
        return pen_error_set(PEN_ESHORT, "%s has %" PRIu64 " bytes, but piece %" PRIu64
                             " of its index ends at byte %" PRIu64, tokens->path,
                             tokens->data.n_bytes, at + i, end);
    }
    at += n;
  }
  if (end != tokens->data.n_bytes)
    return pen_error_set(PEN_EFORMAT, "%s has %" PRIu64 " bytes, but its index ends at byte "
                         "%" PRIu64, tokens->path, tokens->data.n_bytes, end);
  tokens->info.n_tokens = tokens->info.n_trained = end / tokens->info.token_bytes;
  return 0;
}

/* Document indices must rise from 0 to the number of pieces. */
static int documents_check(const struct pen_tokens *tokens)
{
  uint8_t indices[CHUNK_NUMBERS * 8];
  uint64_t n_indices = tokens->info.n_docs + 1, last = 0;

  for (uint64_t at = 0; at < n_indices;) {
    size_t n = n_indices - at < CHUNK_NUMBERS ? (size_t)(n_indices - at) : CHUNK_NUMBERS;
    int r = pen_tokens_file_read(&tokens->index, tokens->borders_offset + at * 8, n * 8, indices);
    if (r < 0)
      return r;
    for (size_t i = 0; i < n; i++) {
      uint64_t piece = pen_bytes_u64(indices + 8 * i);
      bool first = at + i == 0, end = at + i == n_indices - 1;
      if (piece < last || (first && piece) || piece > tokens->n_pieces ||
          (end && piece != tokens->n_pieces))
        return pen_error_set(PEN_EFORMAT, "document index %" PRIu64 " of %s is %" PRIu64
                             ": they rise from 0 to the %" PRIu64 " pieces", at + i,
                             tokens->index.path, piece, tokens->n_pieces);
      last = piece;
    }
    at += n;
  }
  return 0;
}

static int megatron_open(struct pen_tokens *tokens)
{
  size_t n_path = strlen(tokens->path);
  uint64_t lengths_offset;
  int r;

  if (n_path < 5 || strcmp(tokens->path + n_path - 4, ".bin"))
    return pen_error_set(PEN_EUSAGE, "%s: Megatron data is named by its .bin", tokens->path);
  char *index_path = strdup(tokens->path);
  if (!index_path)
    return pen_error_set(-ENOMEM, "cannot open %s", tokens->path);
  memcpy(index_path + n_path - 3, "idx", 3);
  r = pen_tokens_file_open(index_path, &tokens->index);
  free(index_path);
  if (r == 0)
    r = pen_tokens_file_open(tokens->path, &tokens->data);
  if (r == 0)
    r = index_header(tokens, &lengths_offset);
  if (r == 0)
    r = pieces_check(tokens, lengths_offset);
  if (r == 0)
    r = documents_check(tokens);
  tokens->info.file_bytes = tokens->data.n_bytes + tokens->index.n_bytes;
  return r;
}

static int megatron_borders(const struct pen_tokens *tokens, uint64_t first, size_t n,
                            uint64_t *ret_borders)
{
  uint8_t number[8];

  for (size_t i = 0; i < n; i++) {
    int r = pen_tokens_file_read(&tokens->index, tokens->borders_offset + (first + i) * 8, 8,
                                 number);
    if (r < 0)
      return r;
    uint64_t piece = pen_bytes_u64(number);
    ret_borders[i] = tokens->info.n_tokens;
    if (piece >= tokens->n_pieces)
      continue;
    r = pen_tokens_file_read(&tokens->index, tokens->pointers_offset + piece * 8, 8, number);
    if (r < 0)
      return r;
    ret_borders[i] = pen_bytes_u64(number) / tokens->info.token_bytes;
  }
  return 0;
}

const struct pen_tokens_ops pen_tokens_ops_megatron = {
  .name = "megatron",
  .format = PEN_TOKENS_MEGATRON,
  .open = megatron_open,
  .borders = megatron_borders,
};
