/* Opening and reading token files: what is common to all formats.
 *
 * A format is a row of pen_tokens_ops; everything here works on whole tokens
 * through it.  Invariant: after open, border[d] <= border[d+1] <= n_tokens,
 * and offsets plus sizes lie inside the files as they were at open.  Any
 * thread may read; nothing changes after open.
 *
 * Disadvantage: ids are checked when they are read and not at open, so that a
 * bad id deep in a large file is found only when training reaches it
 * (pen_tokens_verify reads all). */
#include "src/data/tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "src/data/bytes.h"
#include "src/data/crc32.h"
#include "src/data/tokens_format.h"

#define READ_CHUNK_TOKENS 4096

static const struct pen_tokens_ops *const format_ops[PEN_TOKENS_N_FORMATS] = {
  [PEN_TOKENS_PEN] = &pen_tokens_ops_pen,
  [PEN_TOKENS_U16] = &pen_tokens_ops_u16,
  [PEN_TOKENS_U32] = &pen_tokens_ops_u32,
  [PEN_TOKENS_LLMC] = &pen_tokens_ops_llmc,
  [PEN_TOKENS_MEGATRON] = &pen_tokens_ops_megatron,
  [PEN_TOKENS_BYTES] = &pen_tokens_ops_bytes,
};

const char *pen_tokens_format_name(enum pen_tokens_format format)
{
  return format_ops[format] ? format_ops[format]->name : "auto";
}

int pen_tokens_file_open(const char *path, struct pen_tokens_file *ret_file)
{
  struct stat st;
  int r;
  int fd = open(path, O_RDONLY | O_CLOEXEC);

  if (fd < 0)
    return pen_error_set(-errno, "cannot open %s", path);
  if (fstat(fd, &st) < 0) {
    r = pen_error_set(-errno, "cannot get the size of %s", path);
    goto fail;
  }
  if (!S_ISREG(st.st_mode)) {
    r = pen_error_set(PEN_EFORMAT, "%s is not a regular file: write it to one, or "
                      "make a token file of it (penstock-prepare --output)", path);
    goto fail;
  }
  char *copy = strdup(path);
  if (!copy) {
    r = pen_error_set(-ENOMEM, "cannot open %s", path);
    goto fail;
  }
  *ret_file = (struct pen_tokens_file){
    .path = copy, .fd = fd, .n_bytes = (uint64_t)st.st_size };
  return 0;
fail:
  close(fd);
  return r;
}

void pen_tokens_file_close(struct pen_tokens_file *file)
{
  if (!file->path)
    return;
  if (file->fd >= 0)
    close(file->fd);
  free(file->path);
  *file = (struct pen_tokens_file){ .fd = -1 };
}

int pen_tokens_file_read(const struct pen_tokens_file *file, uint64_t offset,
                         size_t n_bytes, void *ret_bytes)
{
  uint8_t *at = ret_bytes;

  while (n_bytes) {
    ssize_t n = pread(file->fd, at, n_bytes, (off_t)offset);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return pen_error_set(-errno, "cannot read %zu bytes at offset %" PRIu64 " of %s",
                           n_bytes, offset, file->path);
    if (n == 0)
      return pen_error_set(PEN_ESHORT,
                           "unexpected end of %s at byte %" PRIu64 ": %zu more bytes were "
                           "expected (it had %" PRIu64 " bytes when it was opened)",
                           file->path, offset, n_bytes, file->n_bytes);
    at += n;
    offset += (uint64_t)n;
    n_bytes -= (size_t)n;
  }
  return 0;
}

static bool has_suffix(const char *path, const char *suffix)
{
  size_t n_path = strlen(path), n_suffix = strlen(suffix);

  return n_path > n_suffix && !strcmp(path + n_path - n_suffix, suffix);
}

static int detect_by_name(const char *path, uint32_t vocab_size,
                          const struct pen_tokens_ops **ret_ops)
{
  if (has_suffix(path, ".bin")) {
    char *index = strdup(path);
    if (!index)
      return pen_error_set(-ENOMEM, "cannot open %s", path);
    memcpy(index + strlen(index) - 3, "idx", 3);
    bool found = access(index, F_OK) == 0;
    free(index);
    if (found) {
      *ret_ops = &pen_tokens_ops_megatron;
      return 0;
    }
  }
  if (has_suffix(path, ".u32") || (has_suffix(path, ".bin") && vocab_size > 65536))
    *ret_ops = &pen_tokens_ops_u32;
  else if (has_suffix(path, ".u16") || has_suffix(path, ".bin"))
    *ret_ops = &pen_tokens_ops_u16;
  else
    *ret_ops = &pen_tokens_ops_bytes;
  return 0;
}

/* What opens `path` where no format is asked for. */
static int detect(const char *path, uint32_t vocab_size, const struct pen_tokens_ops **ret_ops)
{
  struct pen_tokens_file file;
  struct stat st;
  uint8_t head[8] = { 0 };
  int r = 0;

  if (stat(path, &st) < 0)
    return pen_error_set(-errno, "cannot find the data %s", path);
  if (S_ISDIR(st.st_mode)) {
    *ret_ops = &pen_tokens_ops_directory;
    return 0;
  }
  r = pen_tokens_file_open(path, &file);
  if (r < 0)
    return r;
  if (file.n_bytes >= sizeof head)
    r = pen_tokens_file_read(&file, 0, sizeof head, head);
  pen_tokens_file_close(&file);
  if (r < 0)
    return r;
  if (!memcmp(head, "PENTOKEN", 8) || has_suffix(path, PEN_TOKENS_SUFFIX))
    *ret_ops = &pen_tokens_ops_pen;
  else if (pen_bytes_u32(head) == 20240520 || pen_bytes_u32(head) == 20240801)
    *ret_ops = &pen_tokens_ops_llmc;
  else
    return detect_by_name(path, vocab_size, ret_ops);
  return 0;
}

int pen_tokens_detect(const char *path, uint32_t vocab_size,
                      enum pen_tokens_format *ret_format)
{
  const struct pen_tokens_ops *ops = NULL;
  int r = detect(path, vocab_size, &ops);

  if (r == 0)
    *ret_format = ops->format;
  return r;
}

/* What opens `path` as the caller asked. */
static int choose(const char *path, const struct pen_tokens_options *options,
                  const struct pen_tokens_ops **ret_ops)
{
  int r = detect(path, options->vocab_size, ret_ops);

  if (r < 0 || options->format == PEN_TOKENS_AUTO || options->format == (*ret_ops)->format)
    return r;
  if (*ret_ops == &pen_tokens_ops_directory)
    return pen_error_set(PEN_EUSAGE, "%s is a directory, not a %s file", path,
                         pen_tokens_format_name(options->format));
  *ret_ops = format_ops[options->format];
  return 0;
}

/* The file against the model it is to train. */
static int check_model(struct pen_tokens *tokens,
                       const struct pen_tokens_options *options)
{
  const struct pen_tokens_info *info = &tokens->info;
  char file_hex[2 * PEN_SHA256_BYTES + 1], model_hex[2 * PEN_SHA256_BYTES + 1];

  if (options->tokenizer_sha256 && !info->has_tokenizer &&
      (info->format == PEN_TOKENS_BYTES || info->format == PEN_TOKENS_PEN))
    return pen_error_set(PEN_EMISMATCH,
                         "%s holds bytes, but the model has a tokenizer of its own: make "
                         "a token file from it with penstock-prepare", tokens->path);
  if (options->tokenizer_sha256 && info->has_tokenizer &&
      memcmp(options->tokenizer_sha256, info->tokenizer_sha256, PEN_SHA256_BYTES)) {
    pen_sha256_hex(info->tokenizer_sha256, file_hex);
    pen_sha256_hex(options->tokenizer_sha256, model_hex);
    return pen_error_set(PEN_EMISMATCH,
                         "%s was made with another tokenizer (sha256 %.12s...) than the "
                         "model's (%.12s...): make it again with penstock-prepare "
                         "--tokenizer MODEL", tokens->path, file_hex, model_hex);
  }
  if (options->vocab_size && info->vocab_size > options->vocab_size)
    return pen_error_set(PEN_EMISMATCH,
                         "%s has a vocabulary of %" PRIu32 " ids, the model only %" PRIu32,
                         tokens->path, info->vocab_size, options->vocab_size);
  tokens->id_limit = info->vocab_size      ? info->vocab_size
                     : options->vocab_size ? options->vocab_size
                                           : (uint32_t)INT32_MAX;
  return 0;
}

int pen_tokens_open(const char *path, const struct pen_tokens_options *options,
                    struct pen_tokens **ret_tokens)
{
  struct pen_tokens *tokens = calloc(1, sizeof *tokens);
  int r;

  if (!tokens || !(tokens->path = strdup(path))) {
    free(tokens);
    return pen_error_set(-ENOMEM, "cannot open %s", path);
  }
  tokens->data.fd = tokens->index.fd = -1;
  tokens->info.bos_id = tokens->info.eos_id = tokens->info.pad_id = -1;
  r = choose(path, options, &tokens->ops);
  if (r == 0) {
    tokens->info.format = tokens->ops->format;
    r = tokens->ops->open(tokens);
  }
  if (r == 0 && !tokens->info.n_tokens)
    r = pen_error_set(PEN_EFORMAT, "%s holds no tokens", path);
  if (r == 0)
    r = check_model(tokens, options);
  if (r < 0) {
    pen_tokens_close(&tokens);
    return r;
  }
  *ret_tokens = tokens;
  return 0;
}

void pen_tokens_close(struct pen_tokens **tokens)
{
  struct pen_tokens *t = *tokens;

  if (!t)
    return;
  pen_tokens_file_close(&t->data);
  pen_tokens_file_close(&t->index);
  for (uint64_t i = 0; t->parts && i < t->info.n_docs; i++)
    pen_tokens_file_close(&t->parts[i]);
  free(t->parts);
  free(t->part_borders);
  free(t->path);
  free(t);
  *tokens = NULL;
}

const struct pen_tokens_info *pen_tokens_info(const struct pen_tokens *tokens)
{
  return &tokens->info;
}

const char *pen_tokens_path(const struct pen_tokens *tokens)
{
  return tokens->path;
}

static int read_raw(const struct pen_tokens *tokens, uint64_t begin, size_t n, void *ret_raw)
{
  if (tokens->ops->raw)
    return tokens->ops->raw(tokens, begin, n, ret_raw);
  return pen_tokens_file_read(&tokens->data,
                              tokens->tokens_offset + begin * tokens->info.token_bytes,
                              n * tokens->info.token_bytes, ret_raw);
}

static int read_ids(const struct pen_tokens *tokens, uint64_t begin, size_t n,
                    uint32_t *ret_ids)
{
  uint8_t raw[READ_CHUNK_TOKENS * 4];
  uint32_t width = tokens->info.token_bytes;

  for (size_t done = 0; done < n;) {
    size_t part = n - done < READ_CHUNK_TOKENS ? n - done : READ_CHUNK_TOKENS;
    int r = read_raw(tokens, begin + done, part, raw);
    if (r < 0)
      return r;
    for (size_t i = 0; i < part; i++) {
      uint32_t id = width == 1   ? raw[i]
                    : width == 2 ? pen_bytes_u16(raw + 2 * i)
                                 : pen_bytes_u32(raw + 4 * i);
      if (id >= tokens->id_limit)
        return pen_error_set(PEN_EFORMAT,
                             "token %" PRIu64 " of %s is id %" PRIu32 ", but the vocabulary "
                             "has only %" PRIu32 " ids: wrong format, or made for another "
                             "model", begin + done + i, tokens->path, id, tokens->id_limit);
      ret_ids[done + i] = id;
    }
    done += part;
  }
  return 0;
}

int pen_tokens_read(const struct pen_tokens *tokens, uint64_t begin, size_t n,
                    uint32_t *ret_ids, uint8_t *ret_trained)
{
  int r = 0;

  if (begin > tokens->info.n_tokens || n > tokens->info.n_tokens - begin)
    return pen_error_set(-EINVAL, "tokens %" PRIu64 " + %zu asked of %s, which has %" PRIu64,
                         begin, n, tokens->path, tokens->info.n_tokens);
  if (ret_ids)
    r = read_ids(tokens, begin, n, ret_ids);
  if (r == 0 && ret_trained) {
    if (tokens->ops->trained)
      r = tokens->ops->trained(tokens, begin, n, ret_trained);
    else
      memset(ret_trained, 1, n);
  }
  return r;
}

int pen_tokens_borders(const struct pen_tokens *tokens, uint64_t first, size_t n,
                       uint64_t *ret_borders)
{
  if (first > tokens->info.n_docs + 1 || n > tokens->info.n_docs + 1 - first)
    return pen_error_set(-EINVAL, "borders %" PRIu64 " + %zu asked of %s, which has %" PRIu64,
                         first, n, tokens->path, tokens->info.n_docs + 1);
  if (tokens->ops->borders)
    return tokens->ops->borders(tokens, first, n, ret_borders);
  for (size_t i = 0; i < n; i++)
    ret_borders[i] = first + i ? tokens->info.n_tokens : 0;
  return 0;
}

int pen_tokens_verify(struct pen_tokens *tokens)
{
  uint32_t ids[READ_CHUNK_TOKENS];
  uint8_t trained[READ_CHUNK_TOKENS];
  uint64_t n_trained = 0;
  uint32_t crc = 0;

  if (tokens->ops->verify) {
    int r = tokens->ops->verify(tokens);
    if (r < 0)
      return r;
  }
  for (uint64_t at = 0; at < tokens->info.n_tokens;) {
    uint64_t left = tokens->info.n_tokens - at;
    size_t n = left < READ_CHUNK_TOKENS ? (size_t)left : READ_CHUNK_TOKENS;
    int r = pen_tokens_read(tokens, at, n, ids, trained);
    if (r < 0)
      return r;
    for (size_t i = 0; i < n; i++)
      n_trained += trained[i];
    crc = pen_crc32(crc, ids, n * sizeof *ids);
    at += n;
  }
  if (!tokens->info.content_crc)
    tokens->info.content_crc = crc;
  if (n_trained != tokens->info.n_trained)
    return pen_error_set(PEN_EFORMAT, "%s says that %" PRIu64 " of its tokens are targets, "
                         "but %" PRIu64 " are marked", tokens->path,
                         tokens->info.n_trained, n_trained);
  return 0;
}

int pen_tokens_hash_tokenizer(const char *dir, uint8_t ret_sha256[PEN_SHA256_BYTES],
                              bool *ret_found)
{
  /* Each row: the files hashed one after the other. */
  static const char *const sets[][2] = {
    { "tokenizer.json", NULL }, { "vocab.json", "merges.txt" }, { "tokenizer.model", NULL },
  };
  char path[4096];
  struct pen_sha256 sha;

  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
    size_t n_files = sets[i][1] ? 2 : 1, n_there = 0;
    for (size_t k = 0; k < n_files; k++) {
      if (snprintf(path, sizeof path, "%s/%s", dir, sets[i][k]) >= (int)sizeof path)
        return pen_error_set(-ENAMETOOLONG, "cannot look for a tokenizer in %s", dir);
      n_there += access(path, F_OK) == 0;
    }
    if (n_there < n_files)
      continue;
    pen_sha256_begin(&sha);
    for (size_t k = 0; k < n_files; k++) {
      snprintf(path, sizeof path, "%s/%s", dir, sets[i][k]);
      int r = pen_sha256_add_file(&sha, path);
      if (r < 0)
        return r;
    }
    pen_sha256_end(&sha, ret_sha256);
    *ret_found = true;
    return 0;
  }
  *ret_found = false;
  return 0;
}
