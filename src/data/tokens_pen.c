/* The .pent format: header, tokens, loss bits, borders (docs/FORMATS.md).
 *
 * Invariant: every section's place and size follows from the counts in the
 * header, and the file has exactly the bytes they need; nothing is trusted
 * before the header's own checksum holds.  Any thread, as tokens.c.
 *
 * Disadvantage: one checksum per section, so that the tokens' can only be
 * checked by reading all of them (pen_tokens_verify). */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "src/data/bytes.h"
#include "src/data/crc32.h"
#include "src/data/tokens_format.h"

#define HEADER_BYTES 256
#define HEADER_VERSION 1
#define SECTION_ALIGN 64
#define FLAG_RECORDS 1u
#define FLAG_LOSS 2u
#define CHUNK_BYTES 16384

/* Sizes of the sections, each without its padding. */
struct layout {
  uint64_t tokens, loss, borders; /* bytes */
  uint64_t loss_offset, borders_offset, file_bytes;
};

/* False: the counts cannot belong to any file. */
static bool layout_of(const struct pen_tokens_info *info, struct layout *ret)
{
  const uint64_t limit = UINT64_MAX / 64; /* keeps every sum below from wrapping */
  struct layout l;

  if (info->n_tokens > limit || info->n_docs > limit)
    return false;
  l.tokens = info->n_tokens * info->token_bytes;
  l.loss = info->has_loss ? (info->n_tokens + 7) / 8 : 0;
  l.borders = (info->n_docs + 1) * 8;
  l.loss_offset = (HEADER_BYTES + l.tokens + SECTION_ALIGN - 1) / SECTION_ALIGN * SECTION_ALIGN;
  l.borders_offset = (l.loss_offset + l.loss + SECTION_ALIGN - 1) / SECTION_ALIGN * SECTION_ALIGN;
  l.file_bytes = l.borders_offset + l.borders;
  *ret = l;
  return true;
}

static int64_t optional_id(const uint8_t *at)
{
  return (int64_t)pen_bytes_u64(at);
}

static int header_parse(struct pen_tokens *tokens, const uint8_t h[HEADER_BYTES])
{
  struct pen_tokens_info *info = &tokens->info;
  uint32_t flags = pen_bytes_u32(h + 20);

  if (memcmp(h, "PENTOKEN", 8))
    return pen_error_set(PEN_EFORMAT, "%s is not a penstock token file (no PENTOKEN at "
                         "its start)", tokens->path);
  if (pen_bytes_u32(h + 8) != HEADER_VERSION || pen_bytes_u32(h + 12) != HEADER_BYTES)
    return pen_error_set(PEN_EUNSUPPORTED,
                         "%s is of version %" PRIu32 " with a header of %" PRIu32 " bytes; "
                         "this program reads version %d: make the file again with "
                         "penstock-prepare", tokens->path, pen_bytes_u32(h + 8),
                         pen_bytes_u32(h + 12), HEADER_VERSION);
  if (pen_crc32(0, h, HEADER_BYTES - 4) != pen_bytes_u32(h + HEADER_BYTES - 4))
    return pen_error_set(PEN_ECORRUPT, "the header of %s fails its checksum", tokens->path);

  info->token_bytes = pen_bytes_u32(h + 16);
  info->records = flags & FLAG_RECORDS;
  info->has_loss = flags & FLAG_LOSS;
  info->n_tokens = pen_bytes_u64(h + 24);
  info->n_docs = pen_bytes_u64(h + 32);
  info->n_trained = pen_bytes_u64(h + 40);
  info->vocab_size = pen_bytes_u32(h + 48);
  info->bos_id = optional_id(h + 56);
  info->eos_id = optional_id(h + 64);
  info->pad_id = optional_id(h + 72);
  memcpy(info->tokenizer_sha256, h + 80, PEN_SHA256_BYTES);
  for (int i = 0; i < PEN_SHA256_BYTES; i++)
    info->has_tokenizer |= h[80 + i] != 0;
  tokens->tokens_crc = pen_bytes_u32(h + 112);
  tokens->loss_crc = pen_bytes_u32(h + 116);
  info->content_crc = tokens->tokens_crc ^ tokens->loss_crc;

  if (flags & ~(FLAG_RECORDS | FLAG_LOSS))
    return pen_error_set(PEN_EUNSUPPORTED, "%s has flags 0x%" PRIx32 ", of which this "
                         "program does not know all", tokens->path, flags);
  if (info->token_bytes != 2 && info->token_bytes != 4)
    return pen_error_set(PEN_EFORMAT, "%s has tokens of %" PRIu32 " bytes; 2 or 4 are "
                         "possible", tokens->path, info->token_bytes);
  if (!info->vocab_size || info->vocab_size > INT32_MAX)
    return pen_error_set(PEN_EFORMAT, "%s has a vocabulary of %" PRIu32 " ids",
                         tokens->path, info->vocab_size);
  if (!info->n_docs || info->n_trained > info->n_tokens ||
      (!info->has_loss && info->n_trained != info->n_tokens))
    return pen_error_set(PEN_EFORMAT, "%s has %" PRIu64 " tokens in %" PRIu64 " documents, "
                         "%" PRIu64 " of them targets: these cannot all be true",
                         tokens->path, info->n_tokens, info->n_docs, info->n_trained);
  return 0;
}

/* Borders must rise from 0 to n_tokens; one pass, which is also the checksum's. */
static int borders_check(const struct pen_tokens *tokens, uint32_t expected_crc)
{
  uint8_t chunk[CHUNK_BYTES];
  uint64_t n_borders = tokens->info.n_docs + 1, last = 0;
  uint32_t crc = 0;

  for (uint64_t at = 0; at < n_borders;) {
    size_t n = n_borders - at < CHUNK_BYTES / 8 ? (size_t)(n_borders - at) : CHUNK_BYTES / 8;
    int r = pen_tokens_file_read(&tokens->data, tokens->borders_offset + at * 8, n * 8, chunk);
    if (r < 0)
      return r;
    crc = pen_crc32(crc, chunk, n * 8);
    for (size_t i = 0; i < n; i++) {
      uint64_t border = pen_bytes_u64(chunk + 8 * i);
      bool first = at + i == 0, end = at + i == n_borders - 1;
      if (border < last || (first && border) || (end && border != tokens->info.n_tokens))
        return pen_error_set(PEN_EFORMAT,
                             "border %" PRIu64 " of %s is %" PRIu64 ": borders rise from 0 "
                             "to the %" PRIu64 " tokens, and the one before is %" PRIu64,
                             at + i, tokens->path, border, tokens->info.n_tokens, last);
      last = border;
    }
    at += n;
  }
  if (crc != expected_crc)
    return pen_error_set(PEN_ECORRUPT, "the document borders of %s fail their checksum",
                         tokens->path);
  return 0;
}

static int pen_open(struct pen_tokens *tokens)
{
  uint8_t header[HEADER_BYTES];
  struct layout layout;
  int r = pen_tokens_file_open(tokens->path, &tokens->data);

  if (r < 0)
    return r;
  if (tokens->data.n_bytes < HEADER_BYTES)
    return pen_error_set(PEN_ESHORT, "%s has %" PRIu64 " bytes, a token file's header "
                         "alone has %d", tokens->path, tokens->data.n_bytes, HEADER_BYTES);
  r = pen_tokens_file_read(&tokens->data, 0, HEADER_BYTES, header);
  if (r == 0)
    r = header_parse(tokens, header);
  if (r < 0)
    return r;
  if (!layout_of(&tokens->info, &layout) || pen_bytes_u64(header + 128) != layout.file_bytes)
    return pen_error_set(PEN_EFORMAT, "%s says it has %" PRIu64 " bytes, which does not "
                         "fit its %" PRIu64 " tokens and %" PRIu64 " documents",
                         tokens->path, pen_bytes_u64(header + 128),
                         tokens->info.n_tokens, tokens->info.n_docs);
  if (tokens->data.n_bytes != layout.file_bytes)
    return pen_error_set(tokens->data.n_bytes < layout.file_bytes ? PEN_ESHORT : PEN_EFORMAT,
                         "%s has %" PRIu64 " bytes, but its %" PRIu64 " tokens and %" PRIu64
                         " documents need %" PRIu64 ": make or copy it again",
                         tokens->path, tokens->data.n_bytes, tokens->info.n_tokens,
                         tokens->info.n_docs, layout.file_bytes);
  tokens->tokens_offset = HEADER_BYTES;
  tokens->loss_offset = layout.loss_offset;
  tokens->borders_offset = layout.borders_offset;
  tokens->info.file_bytes = layout.file_bytes;
  return borders_check(tokens, pen_bytes_u32(header + 120));
}

static int pen_borders(const struct pen_tokens *tokens, uint64_t first, size_t n,
                       uint64_t *ret_borders)
{
  int r = pen_tokens_file_read(&tokens->data, tokens->borders_offset + first * 8, n * 8,
                               ret_borders);

  for (size_t i = 0; r == 0 && i < n; i++)
    ret_borders[i] = pen_bytes_u64((const uint8_t *)&ret_borders[i]);
  return r;
}

static int pen_trained(const struct pen_tokens *tokens, uint64_t begin, size_t n,
                       uint8_t *ret_trained)
{
  uint8_t bits[CHUNK_BYTES];

  if (!tokens->info.has_loss) {
    memset(ret_trained, 1, n);
    return 0;
  }
  for (size_t done = 0; done < n;) {
    uint64_t from = begin + done;
    size_t part = n - done, most = (CHUNK_BYTES - 1) * 8;
    if (part > most)
      part = most;
    size_t n_bytes = (size_t)((from + part + 7) / 8 - from / 8);
    int r = pen_tokens_file_read(&tokens->data, tokens->loss_offset + from / 8, n_bytes, bits);
    if (r < 0)
      return r;
    for (size_t i = 0; i < part; i++) {
      uint64_t bit = from % 8 + i;
      ret_trained[done + i] = bits[bit / 8] >> (bit % 8) & 1;
    }
    done += part;
  }
  return 0;
}

static int section_verify(const struct pen_tokens *tokens, const char *name,
                          uint64_t offset, uint64_t n_bytes, uint32_t expected_crc)
{
  uint8_t chunk[CHUNK_BYTES];
  uint32_t crc = 0;

  for (uint64_t at = 0; at < n_bytes;) {
    size_t n = n_bytes - at < CHUNK_BYTES ? (size_t)(n_bytes - at) : CHUNK_BYTES;
    int r = pen_tokens_file_read(&tokens->data, offset + at, n, chunk);
    if (r < 0)
      return r;
    crc = pen_crc32(crc, chunk, n);
    at += n;
  }
  if (crc != expected_crc)
    return pen_error_set(PEN_ECORRUPT, "the %s of %s fail their checksum (%08" PRIx32
                         " instead of %08" PRIx32 "): make or copy it again", name,
                         tokens->path, crc, expected_crc);
  return 0;
}

static int pen_verify(const struct pen_tokens *tokens)
{
  struct layout layout = { 0 };
  int r;

  layout_of(&tokens->info, &layout);
  r = section_verify(tokens, "tokens", tokens->tokens_offset, layout.tokens,
                     tokens->tokens_crc);
  if (r == 0)
    r = section_verify(tokens, "loss bits", tokens->loss_offset, layout.loss,
                       tokens->loss_crc);
  return r;
}

const struct pen_tokens_ops pen_tokens_ops_pen = {
  .name = "pent",
  .format = PEN_TOKENS_PEN,
  .open = pen_open,
  .borders = pen_borders,
  .trained = pen_trained,
  .verify = pen_verify,
};
