/* Formats that are one run of numbers: uint16, uint32, llm.c's .bin, bytes.
 *
 * Each is a single document without loss flags.  Any thread, as tokens.c.
 *
 * Disadvantage: none of them says where documents end, so that windows cross
 * them (llm.c puts an end-of-text id between documents; it stays a plain
 * token). */
#include <errno.h>
#include <inttypes.h>

#include "base/error.h"
#include "src/data/bytes.h"
#include "src/data/tokens_format.h"

#define LLMC_HEADER_BYTES 1024
#define LLMC_MAGIC_U16 20240520
#define LLMC_MAGIC_U32 20240801

static void plain_info(struct pen_tokens *tokens, uint32_t token_bytes, uint64_t n_tokens)
{
  tokens->info.token_bytes = token_bytes;
  tokens->info.n_tokens = tokens->info.n_trained = n_tokens;
  tokens->info.n_docs = 1;
  tokens->info.file_bytes = tokens->data.n_bytes;
}

static int plain_open(struct pen_tokens *tokens, uint32_t token_bytes)
{
  int r = pen_tokens_file_open(tokens->path, &tokens->data);

  if (r < 0)
    return r;
  if (tokens->data.n_bytes % token_bytes)
    return pen_error_set(PEN_ESHORT, "%s has %" PRIu64 " bytes, which is no whole number of "
                         "tokens of %" PRIu32 " bytes: truncated, or of another format",
                         tokens->path, tokens->data.n_bytes, token_bytes);
  plain_info(tokens, token_bytes, tokens->data.n_bytes / token_bytes);
  return 0;
}

static int u16_open(struct pen_tokens *tokens)
{
  return plain_open(tokens, 2);
}

static int u32_open(struct pen_tokens *tokens)
{
  return plain_open(tokens, 4);
}

static int bytes_open(struct pen_tokens *tokens)
{
  int r = plain_open(tokens, 1);

  tokens->info.vocab_size = PEN_TOKENS_BYTE_VOCABULARY;
  return r;
}

static int llmc_open(struct pen_tokens *tokens)
{
  uint8_t header[LLMC_HEADER_BYTES];
  int r = pen_tokens_file_open(tokens->path, &tokens->data);

  if (r < 0)
    return r;
  if (tokens->data.n_bytes < LLMC_HEADER_BYTES)
    return pen_error_set(PEN_ESHORT, "%s has %" PRIu64 " bytes, an llm.c header alone has %d",
                         tokens->path, tokens->data.n_bytes, LLMC_HEADER_BYTES);
  r = pen_tokens_file_read(&tokens->data, 0, sizeof header, header);
  if (r < 0)
    return r;
  uint32_t magic = pen_bytes_u32(header), version = pen_bytes_u32(header + 4);
  uint32_t n_tokens = pen_bytes_u32(header + 8);
  /* The versions llm.c's own writer gives the two kinds. */
  if (!(magic == LLMC_MAGIC_U16 && version == 1) && !(magic == LLMC_MAGIC_U32 && version == 7))
    return pen_error_set(PEN_EUNSUPPORTED,
                         "%s has llm.c magic %" PRIu32 ", version %" PRIu32 "; known are "
                         "%d version 1 (uint16) and %d version 7 (uint32)",
                         tokens->path, magic, version, LLMC_MAGIC_U16, LLMC_MAGIC_U32);
  uint32_t width = magic == LLMC_MAGIC_U16 ? 2 : 4;
  uint64_t need = LLMC_HEADER_BYTES + (uint64_t)n_tokens * width;
  if (n_tokens > INT32_MAX || tokens->data.n_bytes != need)
    return pen_error_set(tokens->data.n_bytes < need ? PEN_ESHORT : PEN_EFORMAT,
                         "%s has %" PRIu64 " bytes, but the %" PRIu32 " tokens in its header "
                         "need %" PRIu64, tokens->path, tokens->data.n_bytes, n_tokens, need);
  plain_info(tokens, width, n_tokens);
  tokens->tokens_offset = LLMC_HEADER_BYTES;
  return 0;
}

const struct pen_tokens_ops pen_tokens_ops_u16 = {
  .name = "u16", .format = PEN_TOKENS_U16, .open = u16_open };
const struct pen_tokens_ops pen_tokens_ops_u32 = {
  .name = "u32", .format = PEN_TOKENS_U32, .open = u32_open };
const struct pen_tokens_ops pen_tokens_ops_llmc = {
  .name = "llm.c", .format = PEN_TOKENS_LLMC, .open = llmc_open };
const struct pen_tokens_ops pen_tokens_ops_bytes = {
  .name = "bytes", .format = PEN_TOKENS_BYTES, .open = bytes_open };
