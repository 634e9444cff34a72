/* A directory as byte tokens: each text file in it is one document.
 *
 * Files are taken in the order of their paths' bytes, so that the same tree
 * gives the same tokens everywhere; hidden names, links, empty files and files
 * with a 0 byte in their first 4096 (not text) are left out.  Any thread, as
 * tokens.c.
 *
 * Disadvantage: a file is opened at every read, since a source tree has more
 * files than a process may hold open. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "src/data/tokens_format.h"

#define PROBE_BYTES 4096
#define DEEPEST 64

static int part_add(struct pen_tokens *tokens, const char *path, uint64_t n_bytes,
                    size_t *capacity)
{
  size_t n = (size_t)tokens->info.n_docs;

  if (n == *capacity) {
    size_t more = *capacity ? *capacity * 2 : 64;
    struct pen_tokens_file *parts = realloc(tokens->parts, more * sizeof *parts);
    if (!parts)
      return pen_error_set(-ENOMEM, "cannot list the %zu files of %s", n, tokens->path);
    tokens->parts = parts;
    *capacity = more;
  }
  char *copy = strdup(path);
  if (!copy)
    return pen_error_set(-ENOMEM, "cannot list the %zu files of %s", n, tokens->path);
  tokens->parts[n] = (struct pen_tokens_file){ .path = copy, .fd = -1, .n_bytes = n_bytes };
  tokens->info.n_docs++;
  return 0;
}

static int is_text(const char *path, bool *ret_text)
{
  uint8_t probe[PROBE_BYTES];
  struct pen_tokens_file file;
  int r = pen_tokens_file_open(path, &file);

  if (r < 0)
    return r;
  size_t n = file.n_bytes < PROBE_BYTES ? (size_t)file.n_bytes : PROBE_BYTES;
  r = pen_tokens_file_read(&file, 0, n, probe);
  pen_tokens_file_close(&file);
  if (r == 0)
    *ret_text = n && !memchr(probe, 0, n);
  return r;
}

static int walk(struct pen_tokens *tokens, const char *dir_path, int depth, size_t *capacity)
{
  DIR *dir = opendir(dir_path);
  struct dirent *entry;
  int r = 0;

  if (!dir)
    return pen_error_set(-errno, "cannot open the directory %s", dir_path);
  while (r == 0 && (errno = 0, entry = readdir(dir))) {
    char *path;
    struct stat st;
    bool text = false;
    if (entry->d_name[0] == '.')
      continue;
    if (asprintf(&path, "%s/%s", dir_path, entry->d_name) < 0) {
      r = pen_error_set(-ENOMEM, "cannot list %s", dir_path);
      break;
    }
    if (lstat(path, &st) < 0)
      r = pen_error_set(-errno, "cannot look at %s", path);
    else if (S_ISDIR(st.st_mode) && depth >= DEEPEST)
      r = pen_error_set(PEN_EUNSUPPORTED, "%s is more than %d directories deep", path, DEEPEST);
    else if (S_ISDIR(st.st_mode))
      r = walk(tokens, path, depth + 1, capacity);
    else if (S_ISREG(st.st_mode) && (r = is_text(path, &text)) == 0 && text)
      r = part_add(tokens, path, (uint64_t)st.st_size, capacity);
    free(path);
  }
  if (r == 0 && errno)
    r = pen_error_set(-errno, "cannot list the directory %s", dir_path);
  closedir(dir);
  return r;
}

static int by_path(const void *a, const void *b)
{
  return strcmp(((const struct pen_tokens_file *)a)->path,
                ((const struct pen_tokens_file *)b)->path);
}

static int directory_open(struct pen_tokens *tokens)
{
  size_t capacity = 0;
  int r = walk(tokens, tokens->path, 0, &capacity);
  uint64_t n_docs = tokens->info.n_docs;

  if (r < 0)
    return r;
  if (!n_docs)
    return pen_error_set(PEN_EFORMAT, "there is no text file in %s", tokens->path);
  qsort(tokens->parts, (size_t)n_docs, sizeof *tokens->parts, by_path);
  tokens->part_borders = malloc((size_t)(n_docs + 1) * sizeof *tokens->part_borders);
  if (!tokens->part_borders)
    return pen_error_set(-ENOMEM, "cannot list the %" PRIu64 " files of %s", n_docs,
                         tokens->path);
  tokens->part_borders[0] = 0;
  for (uint64_t i = 0; i < n_docs; i++)
    tokens->part_borders[i + 1] = tokens->part_borders[i] + tokens->parts[i].n_bytes;
  tokens->info.token_bytes = 1;
  tokens->info.vocab_size = PEN_TOKENS_BYTE_VOCABULARY;
  tokens->info.n_tokens = tokens->info.n_trained = tokens->part_borders[n_docs];
  tokens->info.file_bytes = tokens->info.n_tokens;
  return 0;
}

/* The last part that begins at or before `token`. */
static uint64_t part_of(const struct pen_tokens *tokens, uint64_t token)
{
  uint64_t low = 0, high = tokens->info.n_docs;

  while (high - low > 1) {
    uint64_t middle = low + (high - low) / 2;
    if (tokens->part_borders[middle] <= token)
      low = middle;
    else
      high = middle;
  }
  return low;
}

static int directory_raw(const struct pen_tokens *tokens, uint64_t begin, size_t n, void *ret_raw)
{
  uint8_t *at = ret_raw;

  for (uint64_t part = part_of(tokens, begin); n; part++) {
    struct pen_tokens_file file = tokens->parts[part];
    uint64_t offset = begin - tokens->part_borders[part];
    uint64_t left = file.n_bytes - offset;
    size_t n_part = left < n ? (size_t)left : n;
    file.fd = open(file.path, O_RDONLY | O_CLOEXEC);
    if (file.fd < 0)
      return pen_error_set(-errno, "cannot open %s again", file.path);
    int r = pen_tokens_file_read(&file, offset, n_part, at);
    close(file.fd);
    if (r < 0)
      return r;
    at += n_part;
    begin += n_part;
    n -= n_part;
  }
  return 0;
}

static int directory_borders(const struct pen_tokens *tokens, uint64_t first, size_t n,
                             uint64_t *ret_borders)
{
  memcpy(ret_borders, tokens->part_borders + first, n * sizeof *ret_borders);
  return 0;
}

const struct pen_tokens_ops pen_tokens_ops_directory = {
  .name = "bytes",
  .format = PEN_TOKENS_BYTES,
  .open = directory_open,
  .raw = directory_raw,
  .borders = directory_borders,
};
