/* gguf.c: walks over a GGUF file's metadata and tensor list to see whether all
 * its tensors are in it.
 *
 * Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (little
 * endian).  One thread.  Disadvantage: a number format that is not in the table
 * counts as empty, so that only its tensor's begin is known to be there. */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "src/cli/inspect.h"

#define RANK_MAX 8
#define ALIGNMENT_STANDARD 32

enum value { VALUE_STRING = 8, VALUE_ARRAY = 9, N_VALUES = 13 };
static const uint8_t value_bytes[N_VALUES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* Elements of a block of a number format and its bytes; 0: not known. */
static const struct {
  uint16_t elems, bytes;
} formats[] = {
    [0] = {1, 4},      [1] = {1, 2},      [2] = {32, 18},    [3] = {32, 20},
    [6] = {32, 22},    [7] = {32, 24},    [8] = {32, 34},    [9] = {32, 36},
    [10] = {256, 84},  [11] = {256, 110}, [12] = {256, 144}, [13] = {256, 176},
    [14] = {256, 210}, [15] = {256, 292}, [24] = {1, 1},     [25] = {1, 2},
    [26] = {1, 4},     [27] = {1, 8},     [28] = {1, 8},     [30] = {1, 2}};

struct reader {
  FILE *file;
  const char *path;
  uint64_t at, bytes; /* of the file */
};

static int cut(const struct reader *r, uint64_t needed)
{
  return pen_error_set(-PEN_ESHORT, "%s is cut off: it has %" PRIu64 " bytes and "
                       "needs at least %" PRIu64 "; copy or export it again",
                       r->path, r->bytes, needed);
}

/* out [n] = the next bytes; NULL: they are passed over. */
static int take(struct reader *r, void *out, uint64_t n)
{
  if (n > r->bytes - r->at)
    return cut(r, n > INT64_MAX - r->at ? INT64_MAX : r->at + n);
  errno = 0; /* a file that became shorter sets none */
  bool good = out ? fread(out, 1, n, r->file) == n
                  : fseeko(r->file, (off_t)n, SEEK_CUR) == 0;
  if (!good)
    return pen_error_set(errno ? -errno : -EIO, "cannot read %s", r->path);
  r->at += n;
  return 0;
}

static int take_u32(struct reader *r, uint32_t *ret_value)
{
  uint32_t raw = 0;
  int rc = take(r, &raw, sizeof raw);
  *ret_value = le32toh(raw);
  return rc;
}

static int take_u64(struct reader *r, uint64_t *ret_value)
{
  uint64_t raw = 0;
  int rc = take(r, &raw, sizeof raw);
  *ret_value = le64toh(raw);
  return rc;
}

/* text [n], cut to what it holds. */
static int take_string(struct reader *r, char *text, size_t n)
{
  uint64_t length;
  int rc = take_u64(r, &length);
  uint64_t kept = length < n ? length : n ? n - 1 : 0;
  if (rc == 0 && n)
    rc = take(r, text, kept);
  if (rc == 0 && n)
    text[kept] = '\0';
  return rc ? rc : take(r, NULL, length - kept);
}

static int unknown(const struct reader *r, const char *what, uint32_t number)
{
  return pen_error_set(-PEN_EFORMAT, "%s: %s %u at byte %" PRIu64 " is not known",
                       r->path, what, number, r->at);
}

/* Passes over n values of a kind. */
static int pass(struct reader *r, uint32_t kind, uint64_t n)
{
  int rc = 0;
  if (kind >= N_VALUES || kind == VALUE_ARRAY) /* of arrays: nobody writes them */
    return unknown(r, "a value of kind", kind);
  if (kind != VALUE_STRING)
    return n > r->bytes ? cut(r, n) : take(r, NULL, n * value_bytes[kind]);
  for (uint64_t i = 0; rc == 0 && i < n; i++)
    rc = take_string(r, NULL, 0);
  return rc;
}

static int pass_key(struct reader *r, uint32_t *alignment)
{
  char key[32];
  uint32_t kind = 0;
  uint64_t n = 1;
  int rc = take_string(r, key, sizeof key);
  if (rc == 0)
    rc = take_u32(r, &kind);
  if (rc == 0 && strcmp(key, "general.alignment") == 0 && kind < N_VALUES &&
      value_bytes[kind] == sizeof *alignment)
    return take_u32(r, alignment);
  if (rc == 0 && kind == VALUE_ARRAY) {
    rc = take_u32(r, &kind);
    if (rc == 0)
      rc = take_u64(r, &n);
  }
  return rc ? rc : pass(r, kind, n);
}

/* *most = the greatest end of a tensor, from the first one's begin. */
static int pass_tensor(struct reader *r, uint64_t *most)
{
  uint32_t rank = 0, format = 0;
  uint64_t elems = 1, side, offset = 0, bytes = 0, end;
  int rc = take_string(r, NULL, 0);
  if (rc == 0)
    rc = take_u32(r, &rank);
  if (rc == 0 && rank > RANK_MAX)
    return unknown(r, "a tensor of rank", rank);
  bool fits = true;
  for (uint32_t d = 0; rc == 0 && d < rank; d++) {
    rc = take_u64(r, &side);
    fits = fits && !__builtin_mul_overflow(elems, side, &elems);
  }
  if (rc == 0)
    rc = take_u32(r, &format);
  if (rc == 0)
    rc = take_u64(r, &offset);
  if (rc == 0 && format < sizeof formats / sizeof *formats &&
      formats[format].elems)
    fits = fits && !__builtin_mul_overflow(elems / formats[format].elems,
                                           (uint64_t)formats[format].bytes,
                                           &bytes);
  if (rc == 0 && (!fits || __builtin_add_overflow(offset, bytes, &end)))
    return cut(r, UINT64_MAX);
  if (rc == 0 && end > *most)
    *most = end;
  return rc;
}

static int walk(struct reader *r, struct pen_inspect_gguf *g)
{
  uint32_t alignment = ALIGNMENT_STANDARD;
  uint64_t most = 0, begin, end;
  int rc = take(r, NULL, 4); /* GGUF */
  if (rc == 0)
    rc = take_u32(r, &g->version);
  if (rc == 0 && (g->version < 2 || g->version > 3))
    return pen_error_set(-PEN_EUNSUPPORTED, "%s is GGUF of version %u; 2 and 3 "
                         "are known", r->path, g->version);
  if (rc == 0)
    rc = take_u64(r, &g->n_tensors);
  if (rc == 0)
    rc = take_u64(r, &g->n_keys);
  for (uint64_t i = 0; rc == 0 && i < g->n_keys; i++)
    rc = pass_key(r, &alignment);
  for (uint64_t i = 0; rc == 0 && i < g->n_tensors; i++)
    rc = pass_tensor(r, &most);
  if (rc < 0)
    return rc;
  if (alignment == 0 || alignment > r->bytes)
    alignment = 1;
  begin = g->n_tensors ? (r->at + alignment - 1) / alignment * alignment : r->at;
  if (__builtin_add_overflow(begin, most, &end) || end > r->bytes)
    return cut(r, begin + most < begin ? UINT64_MAX : begin + most);
  return 0;
}

int pen_inspect_read_gguf(const char *path, struct pen_inspect_gguf *ret_gguf)
{
  struct pen_inspect_gguf gguf = {.version = 0};
  struct stat st;
  struct reader r = {.file = fopen(path, "re"), .path = path};
  if (!r.file)
    return pen_error_set(-errno, "cannot open %s", path);
  int rc = fstat(fileno(r.file), &st)
               ? pen_error_set(-errno, "cannot look into %s", path)
               : 0;
  r.bytes = gguf.bytes = rc ? 0 : (uint64_t)st.st_size;
  if (rc == 0)
    rc = walk(&r, &gguf);
  fclose(r.file);
  if (rc == 0)
    *ret_gguf = gguf;
  return rc;
}
