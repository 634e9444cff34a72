/* safetensors.c: reads one safetensors file.
 *
 * The header is trusted for nothing: length, offsets and shapes are checked
 * against the file's size before anything is read by them.  After open the
 * object does not change, so any thread may read.  Disadvantage: one pread per
 * call, no read-ahead of our own. */
#include "io/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "io/files.h"
#include "io/json.h"

struct pen_safetensors {
  int fd;
  char *path;
  uint64_t file_bytes;
  uint64_t data_begin; /* offset of the first tensor byte */
  struct pen_safetensors_tensor *tensors; /* [n], order of the header */
  size_t n;
  size_t *by_name;  /* [n], indices sorted by name */
  char *names;      /* every name, one after the other */
  uint64_t *shapes; /* every shape, likewise */
  char warning[256];
};

static int read_length(struct pen_safetensors *f, uint64_t *ret_header_bytes)
{
  unsigned char raw[8];
  if (f->file_bytes < sizeof raw)
    return pen_error_set(-PEN_EFORMAT,
                         "%s has %" PRIu64 " bytes, a safetensors file has at "
                         "least 8; download or copy it again",
                         f->path, f->file_bytes);
  int rc = pen_files_read_at(f->fd, f->path, raw, sizeof raw, 0);
  if (rc)
    return rc;
  if (!memcmp(raw, "version ", 8))
    return pen_error_set(-PEN_EFORMAT,
                         "%s looks like a Git LFS pointer, not the weights "
                         "themselves; fetch it with git lfs pull", f->path);
  uint64_t length = 0;
  for (int i = 7; i >= 0; i--)
    length = length << 8 | raw[i];
  if (length > PEN_SAFETENSORS_HEADER_BYTES_MAX)
    return pen_error_set(-PEN_EFORMAT,
                         "%s: header of %" PRIu64 " bytes, at most %" PRIu64
                         " are allowed; not a safetensors file, or damaged",
                         f->path, length, PEN_SAFETENSORS_HEADER_BYTES_MAX);
  if (length > f->file_bytes - 8)
    return pen_error_set(-PEN_EFORMAT,
                         "%s has %" PRIu64 " bytes, its header alone needs %"
                         PRIu64 "; download or copy it again",
                         f->path, f->file_bytes, length + 8);
  *ret_header_bytes = length;
  return 0;
}

/* The format's text wants the header to begin with its brace; the reference
 * parser takes white space before it. */
static int check_start(struct pen_safetensors *f, const char *header,
                       uint64_t n, bool lenient)
{
  if (n && header[0] == '{')
    return 0;
  if (!n || !memchr(" \t\r\n", header[0], 4))
    return pen_error_set(-PEN_EFORMAT, "%s: the header does not begin with {",
                         f->path);
  if (!lenient)
    return pen_error_set(-PEN_EFORMAT,
                         "%s: white space before the header's {; --lenient "
                         "accepts it", f->path);
  snprintf(f->warning, sizeof f->warning, "white space before the header");
  return 0;
}

static int parse_shape(const struct pen_json *json,
                       const struct pen_json_node *shape,
                       struct pen_safetensors_tensor *t, uint64_t *dims)
{
  t->rank = pen_json_size(shape);
  t->shape = dims;
  t->elems = 1;
  for (size_t d = 0; d < t->rank; d++) {
    size_t dim;
    int rc = pen_json_as_size(json, pen_json_item(shape, d), &dim);
    if (rc)
      return rc;
    dims[d] = dim;
    if (__builtin_mul_overflow(t->elems, (uint64_t)dim, &t->elems))
      return pen_json_error(json, shape, -PEN_EFORMAT,
                            "the number of elements overflows 64 bits");
  }
  return 0;
}

/* One entry of the header; offsets relative to the data still. */
static int parse_tensor(const struct pen_json *json,
                        const struct pen_json_node *entry,
                        struct pen_safetensors_tensor *t, uint64_t *dims)
{
  const char *dtype;
  const struct pen_json_node *shape, *offsets;
  size_t begin, end;
  if (pen_json_type(entry) != PEN_JSON_OBJECT)
    return pen_json_error(json, entry, -PEN_EFORMAT, "must be an object");
  int rc = pen_json_get_string(json, entry, "dtype", &dtype);
  if (!rc)
    rc = pen_json_get_array(json, entry, "shape", &shape);
  if (!rc)
    rc = pen_json_get_array(json, entry, "data_offsets", &offsets);
  if (!rc)
    rc = parse_shape(json, shape, t, dims);
  if (rc)
    return rc;
  t->dtype = pen_file_dtype_find(dtype);
  if (t->dtype == PEN_FILE_NONE)
    return pen_json_error(json, entry, -PEN_EFORMAT, "unknown dtype \"%.40s\"",
                          dtype);
  if (pen_json_size(offsets) != 2)
    return pen_json_error(json, offsets, -PEN_EFORMAT,
                          "must be two offsets, are %zu",
                          pen_json_size(offsets));
  rc = pen_json_as_size(json, pen_json_item(offsets, 0), &begin);
  if (!rc)
    rc = pen_json_as_size(json, pen_json_item(offsets, 1), &end);
  if (rc)
    return rc;
  uint64_t bytes;
  if (__builtin_mul_overflow(t->elems, (uint64_t)pen_file_dtype_bytes(t->dtype),
                             &bytes))
    return pen_json_error(json, shape, -PEN_EFORMAT,
                          "the number of bytes overflows 64 bits");
  if (end < begin || end - begin != bytes)
    return pen_json_error(json, entry, -PEN_EFORMAT,
                          "shape and dtype need %" PRIu64 " bytes, the offsets "
                          "[%zu, %zu] do not span that", bytes, begin, end);
  t->offset = begin;
  t->bytes = bytes;
  return 0;
}

static int check_metadata(const struct pen_json *json,
                          const struct pen_json_node *metadata)
{
  const char *key, *value;
  const struct pen_json_node *node;
  void *iter = NULL;
  if (pen_json_type(metadata) != PEN_JSON_OBJECT)
    return pen_json_error(json, metadata, -PEN_EFORMAT, "must be an object");
  while (pen_json_next(metadata, &iter, &key, &node)) {
    int rc = pen_json_as_string(json, node, &value);
    if (rc)
      return rc;
  }
  return 0;
}

/* Room for all names and shapes at once. */
static int allocate_table(struct pen_safetensors *f,
                          const struct pen_json_node *root)
{
  const char *key;
  const struct pen_json_node *entry;
  void *iter = NULL;
  size_t n = 0, name_bytes = 0, n_dims = 0;
  while (pen_json_next(root, &iter, &key, &entry)) {
    n++;
    name_bytes += strlen(key) + 1;
    if (pen_json_type(entry) == PEN_JSON_OBJECT) {
      const struct pen_json_node *shape = pen_json_member(entry, "shape");
      n_dims += shape ? pen_json_size(shape) : 0;
    }
  }
  f->tensors = calloc(n + 1, sizeof *f->tensors);
  f->by_name = calloc(n + 1, sizeof *f->by_name);
  f->names = malloc(name_bytes + 1);
  f->shapes = calloc(n_dims + 1, sizeof *f->shapes);
  if (!f->tensors || !f->by_name || !f->names || !f->shapes)
    return pen_error_set(-ENOMEM, "cannot hold the %zu tensors of %s", n,
                         f->path);
  return 0;
}

static int parse_header(struct pen_safetensors *f, const struct pen_json *json)
{
  const struct pen_json_node *root = pen_json_root(json), *entry;
  if (pen_json_type(root) != PEN_JSON_OBJECT)
    return pen_error_set(-PEN_EFORMAT, "%s: the header is not an object",
                         f->path);
  int rc = allocate_table(f, root);
  const char *key;
  char *name = f->names;
  uint64_t *dims = f->shapes;
  void *iter = NULL;
  while (!rc && pen_json_next(root, &iter, &key, &entry)) {
    if (!strcmp(key, "__metadata__")) {
      rc = check_metadata(json, entry);
      continue;
    }
    struct pen_safetensors_tensor *t = &f->tensors[f->n];
    t->name = strcpy(name, key);
    name += strlen(key) + 1;
    rc = parse_tensor(json, entry, t, dims);
    dims += t->rank;
    f->by_name[f->n] = f->n;
    f->n++;
  }
  return rc;
}

static int compare_offsets(const void *a, const void *b, void *tensors)
{
  const struct pen_safetensors_tensor *t = tensors, *x = &t[*(size_t *)a],
                                      *y = &t[*(size_t *)b];
  if (x->offset != y->offset)
    return x->offset < y->offset ? -1 : 1;
  return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int compare_names(const void *a, const void *b, void *tensors)
{
  const struct pen_safetensors_tensor *t = tensors;
  return strcmp(t[*(size_t *)a].name, t[*(size_t *)b].name);
}

/* Every data byte belongs to exactly one tensor. */
static int check_cover(struct pen_safetensors *f, bool lenient)
{
  uint64_t data_bytes = f->file_bytes - f->data_begin, at = 0;
  qsort_r(f->by_name, f->n, sizeof *f->by_name, compare_offsets, f->tensors);
  for (size_t i = 0; i < f->n; i++) {
    struct pen_safetensors_tensor *t = &f->tensors[f->by_name[i]];
    if (t->offset != at)
      return pen_error_set(-PEN_EFORMAT,
                           "%s: tensor %s begins at data byte %" PRIu64
                           ", the one before it ends at %" PRIu64
                           "; tensors must neither overlap nor leave gaps",
                           f->path, t->name, t->offset, at);
    at += t->bytes;
    if (at > data_bytes)
      return pen_error_set(
          -PEN_EFORMAT,
          "%s is cut short: it has %" PRIu64 " bytes and tensor %s ends at %"
          PRIu64 ", %" PRIu64 " bytes are missing; download or copy it again",
          f->path, f->file_bytes, t->name, f->data_begin + at, at - data_bytes);
    t->offset += f->data_begin;
  }
  if (at == data_bytes)
    return 0;
  if (!lenient)
    return pen_error_set(-PEN_EFORMAT,
                         "%s: %" PRIu64 " bytes after the last tensor, which "
                         "ends at byte %" PRIu64 " of %" PRIu64
                         "; download it again, or --lenient ignores them",
                         f->path, data_bytes - at, f->data_begin + at,
                         f->file_bytes);
  snprintf(f->warning, sizeof f->warning,
           "%" PRIu64 " bytes after the last tensor are ignored",
           data_bytes - at);
  return 0;
}

static int open_file(struct pen_safetensors *f, const char *path)
{
  struct stat st;
  f->fd = open(path, O_RDONLY | O_CLOEXEC);
  if (f->fd < 0)
    return pen_error_set(-errno, "cannot open %s", path);
  if (fstat(f->fd, &st))
    return pen_error_set(-errno, "cannot stat %s", path);
  if (!S_ISREG(st.st_mode))
    return pen_error_set(-PEN_EFORMAT, "%s is not a regular file", path);
  f->file_bytes = (uint64_t)st.st_size;
  f->path = strdup(path);
  if (!f->path)
    return pen_error_set(-ENOMEM, "cannot open %s", path);
  return 0;
}

int pen_safetensors_open(const char *path, bool lenient,
                         struct pen_safetensors **ret_file)
{
  uint64_t header_bytes = 0;
  char *header = NULL;
  struct pen_json *json = NULL;
  struct pen_safetensors *f = calloc(1, sizeof *f);
  if (!f)
    return pen_error_set(-ENOMEM, "cannot open %s", path);
  f->fd = -1;
  int rc = open_file(f, path);
  if (!rc)
    rc = read_length(f, &header_bytes);
  if (rc)
    goto out;
  header = malloc(header_bytes + 1);
  if (!header) {
    rc = pen_error_set(-ENOMEM, "cannot read the %" PRIu64 " byte header of %s",
                       header_bytes, path);
    goto out;
  }
  f->data_begin = 8 + header_bytes;
  rc = pen_files_read_at(f->fd, path, header, header_bytes, 8);
  if (!rc)
    rc = check_start(f, header, header_bytes, lenient);
  if (!rc)
    rc = pen_json_parse(header, header_bytes, path, &json);
  if (!rc)
    rc = parse_header(f, json);
  if (!rc)
    rc = check_cover(f, lenient);
  if (rc)
    goto out;
  qsort_r(f->by_name, f->n, sizeof *f->by_name, compare_names, f->tensors);
  *ret_file = f;
  f = NULL;
out:
  pen_json_free(&json);
  free(header);
  pen_safetensors_close(&f);
  return rc;
}

void pen_safetensors_close(struct pen_safetensors **file)
{
  struct pen_safetensors *f = *file;
  if (!f)
    return;
  if (f->fd >= 0)
    close(f->fd);
  free(f->path);
  free(f->tensors);
  free(f->by_name);
  free(f->names);
  free(f->shapes);
  free(f);
  *file = NULL;
}

const char *pen_safetensors_path(const struct pen_safetensors *file)
{
  return file->path;
}

const char *pen_safetensors_warning(const struct pen_safetensors *file)
{
  return file->warning;
}

uint64_t pen_safetensors_file_bytes(const struct pen_safetensors *file)
{
  return file->file_bytes;
}

size_t pen_safetensors_n_tensors(const struct pen_safetensors *file)
{
  return file->n;
}

const struct pen_safetensors_tensor *
pen_safetensors_tensor(const struct pen_safetensors *file, size_t i)
{
  return &file->tensors[i];
}

size_t pen_safetensors_find(const struct pen_safetensors *file,
                            const char *name)
{
  size_t low = 0, high = file->n;
  while (low < high) {
    size_t middle = low + (high - low) / 2, i = file->by_name[middle];
    int order = strcmp(name, file->tensors[i].name);
    if (order == 0)
      return i;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return SIZE_MAX;
}

int pen_safetensors_read(const struct pen_safetensors *file, size_t i,
                         uint64_t begin, size_t n_bytes, void *out)
{
  const struct pen_safetensors_tensor *t = &file->tensors[i];
  if (begin > t->bytes || n_bytes > t->bytes - begin)
    return pen_error_set(-EINVAL,
                         "bytes [%" PRIu64 ", +%zu) are not in the %" PRIu64
                         " bytes of tensor %s of %s",
                         begin, n_bytes, t->bytes, t->name, file->path);
  return pen_files_read_at(file->fd, file->path, out, n_bytes, t->offset + begin);
}
