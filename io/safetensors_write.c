/* safetensors_write.c: writes one safetensors file.
 *
 * Invariant: PATH either does not change or becomes the whole new file.  Each
 * tensor keeps the list of ranges written so far, so that finish proves that
 * every byte was written once.  One thread.  Disadvantage: pieces written in a
 * scattered order make that list long; ours come in ascending order. */
#include "io/safetensors_write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "io/files.h"
#include "io/json_write.h"

struct range {
  uint64_t begin, end;
};

struct tensor {
  char *name;
  uint64_t offset, bytes; /* in the file */
  struct range *written;  /* ascending, apart from each other */
  size_t n_written, cap_written;
};

struct pen_safetensors_writer {
  int fd;
  char *path, *tmp_path;
  struct tensor *tensors;
  size_t n;
  uint64_t file_bytes;
};

/* Elements of a spec in bytes; refuses what would not fit in 63 bits. */
static int spec_bytes(const struct pen_safetensors_spec *spec,
                      uint64_t *ret_bytes)
{
  uint64_t bytes = pen_file_dtype_bytes(spec->dtype);
  for (size_t d = 0; d < spec->rank; d++)
    if (__builtin_mul_overflow(bytes, spec->shape[d], &bytes))
      return pen_error_set(-EOVERFLOW, "tensor %s is too large", spec->name);
  *ret_bytes = bytes;
  return 0;
}

/* Offsets relative to the data: by falling element size, else as given. */
static int place_tensors(struct pen_safetensors_writer *w,
                         const struct pen_safetensors_spec *specs,
                         uint64_t *ret_data_bytes)
{
  uint64_t at = 0;
  for (size_t width = 8; width; width /= 2)
    for (size_t i = 0; i < w->n; i++) {
      if (pen_file_dtype_bytes(specs[i].dtype) != width)
        continue;
      int rc = spec_bytes(&specs[i], &w->tensors[i].bytes);
      if (rc)
        return rc;
      w->tensors[i].offset = at;
      if (__builtin_add_overflow(at, w->tensors[i].bytes, &at) ||
          at > INT64_MAX / 2)
        return pen_error_set(-EOVERFLOW, "%s would be too large", w->path);
    }
  *ret_data_bytes = at;
  return 0;
}

/* transformers refuses a file whose metadata lack the format. */
static void put_header(const struct pen_safetensors_writer *w,
                       const struct pen_safetensors_spec *specs,
                       struct pen_json_writer *json)
{
  pen_json_begin_object(json, NULL);
  pen_json_begin_object(json, "__metadata__");
  pen_json_put_string(json, "format", "pt");
  pen_json_end_object(json);
  for (size_t i = 0; i < w->n; i++) {
    const struct tensor *t = &w->tensors[i];
    pen_json_begin_object(json, specs[i].name);
    pen_json_put_string(json, "dtype", pen_file_dtype_name(specs[i].dtype));
    pen_json_begin_array(json, "shape");
    for (size_t d = 0; d < specs[i].rank; d++)
      pen_json_put_u64(json, NULL, specs[i].shape[d]);
    pen_json_end_array(json);
    pen_json_begin_array(json, "data_offsets");
    pen_json_put_u64(json, NULL, t->offset);
    pen_json_put_u64(json, NULL, t->offset + t->bytes);
    pen_json_end_array(json);
    pen_json_end_object(json);
  }
  pen_json_end_object(json);
}

static int write_header(struct pen_safetensors_writer *w,
                        const struct pen_safetensors_spec *specs,
                        uint64_t data_bytes)
{
  struct pen_json_writer json;
  const char *text = NULL;
  size_t n = 0;
  pen_json_writer_init(&json, NULL, 0, false);
  put_header(w, specs, &json);
  int rc = pen_json_finish(&json, &text, &n);
  if (rc)
    goto out;
  uint64_t padded = (n + 7) / 8 * 8;
  unsigned char length[8];
  for (int i = 0; i < 8; i++)
    length[i] = (unsigned char)(padded >> 8 * i);
  for (size_t i = 0; i < w->n; i++)
    w->tensors[i].offset += 8 + padded;
  w->file_bytes = 8 + padded + data_bytes;
  rc = pen_files_reserve(w->fd, w->tmp_path, w->file_bytes);
  if (!rc)
    rc = pen_files_write_at(w->fd, w->tmp_path, length, sizeof length, 0);
  if (!rc)
    rc = pen_files_write_at(w->fd, w->tmp_path, text, n, 8);
  if (!rc)
    rc = pen_files_write_at(w->fd, w->tmp_path, "       ", padded - n, 8 + n);
out:
  pen_json_writer_done(&json);
  return rc;
}

static int allocate(struct pen_safetensors_writer *w, const char *path,
                    const struct pen_safetensors_spec *specs, size_t n)
{
  w->path = strdup(path);
  w->tensors = calloc(n + 1, sizeof *w->tensors);
  if (!w->path || !w->tensors || asprintf(&w->tmp_path, "%s.tmp", path) < 0)
    return pen_error_set(-ENOMEM, "cannot write %s", path);
  for (; w->n < n; w->n++) {
    w->tensors[w->n].name = strdup(specs[w->n].name);
    if (!w->tensors[w->n].name)
      return pen_error_set(-ENOMEM, "cannot write %s", path);
  }
  return 0;
}

int pen_safetensors_create(const char *path,
                           const struct pen_safetensors_spec *specs, size_t n,
                           struct pen_safetensors_writer **ret_writer)
{
  uint64_t data_bytes = 0;
  struct pen_safetensors_writer *w = calloc(1, sizeof *w);
  if (!w)
    return pen_error_set(-ENOMEM, "cannot write %s", path);
  w->fd = -1;
  int rc = allocate(w, path, specs, n);
  if (!rc)
    rc = place_tensors(w, specs, &data_bytes);
  if (rc)
    goto fail;
  w->fd = open(w->tmp_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (w->fd < 0) {
    rc = pen_error_set(-errno, "cannot create %s", w->tmp_path);
    goto fail;
  }
  rc = write_header(w, specs, data_bytes);
  if (rc)
    goto fail;
  *ret_writer = w;
  return 0;
fail:
  pen_safetensors_abandon(&w);
  return rc;
}

/* Adds [begin, end) to what was written; false when a byte was already. */
static int note_written(struct tensor *t, uint64_t begin, uint64_t end,
                        bool *ret_new)
{
  size_t i = t->n_written;
  while (i && t->written[i - 1].begin >= end)
    i--;
  /* Range i - 1 is the last that begins before end. */
  if (i && t->written[i - 1].end > begin) {
    *ret_new = false;
    return 0;
  }
  *ret_new = true;
  bool joins_left = i && t->written[i - 1].end == begin;
  bool joins_right = i < t->n_written && t->written[i].begin == end;
  if (joins_left && joins_right) {
    t->written[i - 1].end = t->written[i].end;
    t->n_written--;
    memmove(&t->written[i], &t->written[i + 1],
            (t->n_written - i) * sizeof *t->written);
  } else if (joins_left) {
    t->written[i - 1].end = end;
  } else if (joins_right) {
    t->written[i].begin = begin;
  } else {
    if (t->n_written == t->cap_written) {
      size_t cap = t->cap_written ? 2 * t->cap_written : 4;
      struct range *grown = realloc(t->written, cap * sizeof *grown);
      if (!grown)
        return pen_error_set(-ENOMEM, "cannot note what was written of %s",
                             t->name);
      t->written = grown;
      t->cap_written = cap;
    }
    memmove(&t->written[i + 1], &t->written[i],
            (t->n_written - i) * sizeof *t->written);
    t->written[i] = (struct range){begin, end};
    t->n_written++;
  }
  return 0;
}

int pen_safetensors_write(struct pen_safetensors_writer *writer, size_t i,
                          uint64_t begin, const void *bytes, size_t n_bytes)
{
  struct tensor *t = &writer->tensors[i];
  if (begin > t->bytes || n_bytes > t->bytes - begin)
    return pen_error_set(-EINVAL,
                         "bytes [%" PRIu64 ", +%zu) are not in the %" PRIu64
                         " bytes of tensor %s of %s",
                         begin, n_bytes, t->bytes, t->name, writer->path);
  if (!n_bytes)
    return 0;
  bool is_new;
  int rc = note_written(t, begin, begin + n_bytes, &is_new);
  if (rc)
    return rc;
  if (!is_new)
    return pen_error_set(-EINVAL,
                         "bytes [%" PRIu64 ", +%zu) of tensor %s of %s were "
                         "written before", begin, n_bytes, t->name,
                         writer->path);
  return pen_files_write_at(writer->fd, writer->tmp_path, bytes, n_bytes,
                            t->offset + begin);
}

static int check_complete(const struct pen_safetensors_writer *w)
{
  for (size_t i = 0; i < w->n; i++) {
    const struct tensor *t = &w->tensors[i];
    uint64_t written = 0;
    for (size_t r = 0; r < t->n_written; r++)
      written += t->written[r].end - t->written[r].begin;
    if (written != t->bytes)
      return pen_error_set(-PEN_EMISMATCH,
                           "%s is not complete: %" PRIu64 " of %" PRIu64
                           " bytes of tensor %s were written",
                           w->path, written, t->bytes, t->name);
  }
  return 0;
}

int pen_safetensors_finish(struct pen_safetensors_writer **writer)
{
  struct pen_safetensors_writer *w = *writer;
  int rc = check_complete(w);
  if (!rc && fsync(w->fd))
    rc = pen_error_set(-errno, "cannot sync %s", w->tmp_path);
  if (!rc && rename(w->tmp_path, w->path))
    rc = pen_error_set(-errno, "cannot rename %s to %s", w->tmp_path, w->path);
  if (rc) {
    pen_safetensors_abandon(writer);
    return rc;
  }
  rc = pen_files_sync_parent(w->path);
  free(w->tmp_path);
  w->tmp_path = NULL; /* nothing left to remove */
  pen_safetensors_abandon(writer);
  return rc;
}

void pen_safetensors_abandon(struct pen_safetensors_writer **writer)
{
  struct pen_safetensors_writer *w = *writer;
  if (!w)
    return;
  if (w->fd >= 0) {
    close(w->fd);
    if (w->tmp_path)
      unlink(w->tmp_path);
  }
  for (size_t i = 0; i < w->n; i++) {
    free(w->tensors[i].name);
    free(w->tensors[i].written);
  }
  free(w->tensors);
  free(w->tmp_path);
  free(w->path);
  free(w);
  *writer = NULL;
}
