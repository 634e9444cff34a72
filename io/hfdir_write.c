/* hfdir_write.c: writes a model directory under a temporary name.
 *
 * Order: room for all bytes, tensors, small files, sync of each file and of the
 * folder, and only then the name.  One thread.  Disadvantage: every shard's file
 * is open until commit. */
#include "io/hfdir_write.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/files.h"
#include "io/hfdir_folder.h"
#include "io/json_write.h"

#define CHUNK_ELEMS 4096

struct tensor {
  char *name;
  enum pen_file_dtype dtype;
  uint64_t bytes;
  size_t shard, in_shard;
};

struct shard {
  char *name;
  struct pen_safetensors_writer *file;
};

struct pen_hfdir_writer {
  char *path, *tmp_path;
  bool has_index, owns_tmp;
  struct tensor *tensors;
  size_t n_tensors;
  size_t *by_name; /* [n_tensors], sorted by name */
  struct shard *shards;
  size_t n_shards;
};

static int in_tmp(const struct pen_hfdir_writer *w, const char *name,
                  char *path)
{
  if (snprintf(path, PATH_MAX, "%s/%s", w->tmp_path, name) >= PATH_MAX)
    return pen_error_set(-ENAMETOOLONG, "cannot write %s in %s", name,
                         w->tmp_path);
  return 0;
}

static int compare_names(const void *a, const void *b, void *tensors)
{
  const struct tensor *t = tensors;
  return strcmp(t[*(size_t *)a].name, t[*(size_t *)b].name);
}

static int copy_layout(struct pen_hfdir_writer *w, const char *path,
                       const struct pen_hfdir_layout *layout)
{
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') /* DIR/ would get its .tmp inside */
    n--;
  w->path = strndup(path, n);
  w->has_index = layout->has_index;
  w->tensors = calloc(layout->n + 1, sizeof *w->tensors);
  w->by_name = calloc(layout->n + 1, sizeof *w->by_name);
  w->shards = calloc(layout->n_shards + 1, sizeof *w->shards);
  if (!w->path || !w->tensors || !w->by_name || !w->shards ||
      asprintf(&w->tmp_path, "%s.tmp", w->path) < 0)
    goto no_memory;
  for (; w->n_shards < layout->n_shards; w->n_shards++)
    if (!(w->shards[w->n_shards].name =
              strdup(layout->shard_names[w->n_shards])))
      goto no_memory;
  for (; w->n_tensors < layout->n; w->n_tensors++) {
    struct tensor *t = &w->tensors[w->n_tensors];
    const struct pen_safetensors_spec *spec = &layout->specs[w->n_tensors];
    t->dtype = spec->dtype;
    t->shard = layout->shards[w->n_tensors];
    t->bytes = pen_file_dtype_bytes(spec->dtype);
    for (size_t d = 0; d < spec->rank; d++)
      t->bytes *= spec->shape[d]; /* overflow: refused by the shard's create */
    w->by_name[w->n_tensors] = w->n_tensors;
    if (!(t->name = strdup(spec->name)))
      goto no_memory;
  }
  qsort_r(w->by_name, w->n_tensors, sizeof *w->by_name, compare_names,
          w->tensors);
  return 0;
no_memory:
  return pen_error_set(-ENOMEM, "cannot write %s", path);
}

static int create_shard(struct pen_hfdir_writer *w, size_t shard,
                        const struct pen_hfdir_layout *layout)
{
  char path[PATH_MAX];
  size_t n = 0;
  struct pen_safetensors_spec *specs =
      malloc((layout->n + 1) * sizeof *specs);
  if (!specs)
    return pen_error_set(-ENOMEM, "cannot write %s", w->path);
  for (size_t i = 0; i < layout->n; i++)
    if (layout->shards[i] == shard) {
      w->tensors[i].in_shard = n;
      specs[n++] = layout->specs[i];
    }
  int rc = in_tmp(w, w->shards[shard].name, path);
  if (!rc)
    rc = pen_safetensors_create(path, specs, n, &w->shards[shard].file);
  free(specs);
  return rc;
}

/* All shards together: each by itself would fit until the drive is full. */
static int check_room(const struct pen_hfdir_writer *w)
{
  uint64_t bytes = 0;
  for (size_t i = 0; i < w->n_tensors; i++)
    if (__builtin_add_overflow(bytes, w->tensors[i].bytes, &bytes))
      return 0; /* refused by a shard's create */
  return pen_files_check_room(w->path, bytes, "the model",
                              "free them, or name another folder");
}

int pen_hfdir_create(const char *path, const struct pen_hfdir_layout *layout,
                     bool overwrite, struct pen_hfdir_writer **ret_writer)
{
  struct pen_hfdir_writer *w = calloc(1, sizeof *w);
  if (!w)
    return pen_error_set(-ENOMEM, "cannot write %s", path);
  int rc = copy_layout(w, path, layout);
  if (!rc)
    rc = pen_hfdir_check_target(w->path, overwrite);
  if (!rc)
    rc = pen_hfdir_check_leftover(w->tmp_path);
  if (!rc)
    rc = pen_hfdir_remove(w->tmp_path);
  if (!rc)
    rc = check_room(w);
  if (!rc)
    rc = pen_files_make_dirs(w->tmp_path);
  w->owns_tmp = !rc;
  for (size_t s = 0; s < w->n_shards && !rc; s++)
    rc = create_shard(w, s, layout);
  if (rc) {
    pen_hfdir_abandon(&w);
    return rc;
  }
  *ret_writer = w;
  return 0;
}

size_t pen_hfdir_writer_find(const struct pen_hfdir_writer *writer,
                             const char *name)
{
  size_t low = 0, high = writer->n_tensors;
  while (low < high) {
    size_t middle = low + (high - low) / 2, i = writer->by_name[middle];
    int order = strcmp(name, writer->tensors[i].name);
    if (order == 0)
      return i;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return SIZE_MAX;
}

int pen_hfdir_write_bytes(struct pen_hfdir_writer *writer, size_t i,
                          uint64_t begin, const void *bytes, size_t n_bytes)
{
  const struct tensor *t = &writer->tensors[i];
  return pen_safetensors_write(writer->shards[t->shard].file, t->in_shard,
                               begin, bytes, n_bytes);
}

int pen_hfdir_write_elems(struct pen_hfdir_writer *writer, size_t i,
                          uint64_t begin, size_t n, const void *in,
                          enum pen_file_dtype dtype)
{
  const struct tensor *t = &writer->tensors[i];
  size_t given = pen_file_dtype_bytes(dtype);
  size_t stored = pen_file_dtype_bytes(t->dtype);
  if (t->dtype == dtype)
    return pen_hfdir_write_bytes(writer, i, begin * stored, in, n * stored);
  for (size_t done = 0; done < n;) {
    unsigned char raw[CHUNK_ELEMS * 8];
    float wide[CHUNK_ELEMS];
    size_t overflow = 0;
    size_t m = n - done < CHUNK_ELEMS ? n - done : CHUNK_ELEMS;
    int rc = pen_file_dtype_to_f32(dtype, (const char *)in + done * given, m,
                                   wide);
    if (!rc)
      rc = pen_file_dtype_from_f32(t->dtype, wide, m, raw, &overflow);
    if (rc)
      return rc;
    if (overflow)
      return pen_error_say(-ERANGE, "%zu numbers of tensor %s are too large for "
                           "%s; export as bf16 or fp32", overflow, t->name,
                           pen_file_dtype_name(t->dtype));
    rc = pen_hfdir_write_bytes(writer, i, (begin + done) * stored, raw,
                               m * stored);
    if (rc)
      return rc;
    done += m;
  }
  return 0;
}

int pen_hfdir_put_file(struct pen_hfdir_writer *writer, const char *name,
                       const void *bytes, size_t n)
{
  char path[PATH_MAX];
  int rc = in_tmp(writer, name, path);
  return rc ? rc : pen_files_write_whole(path, bytes, n);
}

int pen_hfdir_copy_file(struct pen_hfdir_writer *writer, const char *name,
                        const char *from)
{
  char to[PATH_MAX];
  int rc = in_tmp(writer, name, to);
  return rc ? rc : pen_files_copy(from, to);
}

int pen_hfdir_copy_companions(struct pen_hfdir_writer *writer,
                              const char *from_dir)
{
  return pen_hfdir_copy_folder(from_dir, writer->tmp_path);
}

static int write_index(struct pen_hfdir_writer *w)
{
  struct pen_json_writer json;
  const char *text;
  size_t n;
  uint64_t total = 0;
  for (size_t i = 0; i < w->n_tensors; i++)
    total += w->tensors[i].bytes;
  pen_json_writer_init(&json, NULL, 0, true);
  pen_json_begin_object(&json, NULL);
  pen_json_begin_object(&json, "metadata");
  pen_json_put_u64(&json, "total_size", total);
  pen_json_end_object(&json);
  pen_json_begin_object(&json, "weight_map");
  for (size_t i = 0; i < w->n_tensors; i++) {
    const struct tensor *t = &w->tensors[w->by_name[i]];
    pen_json_put_string(&json, t->name, w->shards[t->shard].name);
  }
  pen_json_end_object(&json);
  pen_json_end_object(&json);
  int rc = pen_json_finish(&json, &text, &n);
  if (!rc)
    rc = pen_hfdir_put_file(w, PEN_HFDIR_INDEX, text, n);
  pen_json_writer_done(&json);
  return rc;
}

int pen_hfdir_commit(struct pen_hfdir_writer **writer)
{
  struct pen_hfdir_writer *w = *writer;
  int rc = 0;
  for (size_t s = 0; s < w->n_shards && !rc; s++)
    rc = pen_safetensors_finish(&w->shards[s].file);
  if (!rc && w->has_index)
    rc = write_index(w);
  if (!rc)
    rc = pen_files_sync_dir(w->tmp_path);
  if (!rc)
    rc = pen_files_replace_dir(w->tmp_path, w->path, PEN_HFDIR_TEMPLATES);
  w->owns_tmp = rc;
  pen_hfdir_abandon(writer);
  return rc;
}

void pen_hfdir_abandon(struct pen_hfdir_writer **writer)
{
  struct pen_hfdir_writer *w = *writer;
  if (!w)
    return;
  for (size_t s = 0; s < w->n_shards; s++) {
    pen_safetensors_abandon(&w->shards[s].file);
    free(w->shards[s].name);
  }
  if (w->owns_tmp)
    pen_hfdir_remove(w->tmp_path);
  for (size_t i = 0; i < w->n_tensors; i++)
    free(w->tensors[i].name);
  free(w->tensors);
  free(w->by_name);
  free(w->shards);
  free(w->tmp_path);
  free(w->path);
  free(w);
  *writer = NULL;
}
