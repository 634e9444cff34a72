/* hfdir.c: reads a model directory.
 *
 * The index and the shards must say the same; neither is believed alone.  After
 * open nothing changes, so any thread may read.  Disadvantage: every shard stays
 * open, one descriptor each. */
#include "io/hfdir.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/files.h"
#include "io/json.h"
#include "io/safetensors.h"

/* Elements converted at a time, on the stack. */
#define CHUNK_ELEMS 4096

struct shard {
  char *name;
  struct pen_safetensors *file;
};

struct pen_hfdir {
  char *path;
  bool has_index;
  struct shard *shards;
  size_t n_shards;
  struct pen_hfdir_tensor *tensors;
  size_t n_tensors;
  size_t *by_name; /* [n_tensors], sorted by name */
};

static int join(const char *dir, const char *name, char *path)
{
  if (snprintf(path, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
    return pen_error_set(-ENAMETOOLONG, "cannot use %s in %s", name, dir);
  return 0;
}

static bool has_file(const char *dir, const char *name)
{
  char path[PATH_MAX];
  return !join(dir, name, path) && pen_files_exists(path);
}

/* Why there are no safetensors, as far as one can tell. */
static int refuse_empty(const char *path)
{
  static const char *const others[] = {
    "pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5",
    "consolidated.00.pth", "flax_model.msgpack"};
  if (!pen_files_exists(path))
    return pen_error_set(-ENOENT, "cannot open the model directory %s", path);
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    if (has_file(path, others[i]))
      return pen_error_set(-PEN_EUNSUPPORTED,
                           "%s holds %s; only safetensors are read: save the "
                           "model again with safe_serialization=True", path,
                           others[i]);
  return pen_error_say(-ENOENT, "%s holds neither " PEN_HFDIR_SINGLE " nor "
                       PEN_HFDIR_INDEX, path);
}

static int add_shard(struct pen_hfdir *d, const char *name, size_t *ret_shard)
{
  for (size_t i = 0; i < d->n_shards; i++)
    if (!strcmp(d->shards[i].name, name)) {
      *ret_shard = i;
      return 0;
    }
  struct shard *grown =
      realloc(d->shards, (d->n_shards + 1) * sizeof *d->shards);
  if (!grown)
    return pen_error_set(-ENOMEM, "cannot open %s", d->path);
  d->shards = grown;
  char *copy = strdup(name);
  if (!copy)
    return pen_error_set(-ENOMEM, "cannot open %s", d->path);
  d->shards[d->n_shards] = (struct shard){.name = copy};
  *ret_shard = d->n_shards++;
  return 0;
}

/* The shards that the index names; a name with a folder in it could leave the
 * directory. */
static int list_shards(struct pen_hfdir *d, const struct pen_json *index)
{
  const struct pen_json_node *map, *value;
  const char *tensor, *name;
  size_t shard;
  void *iter = NULL;
  int rc = pen_json_get_object(index, pen_json_root(index), "weight_map", &map);
  while (!rc && pen_json_next(map, &iter, &tensor, &value)) {
    rc = pen_json_as_string(index, value, &name);
    if (!rc && (!name[0] || strchr(name, '/') || !strcmp(name, "..")))
      rc = pen_json_error(index, value, -PEN_EFORMAT,
                          "\"%.80s\" is not a file name", name);
    if (!rc)
      rc = add_shard(d, name, &shard);
    if (!rc && !has_file(d->path, name))
      rc = pen_error_set(-PEN_EMISMATCH,
                         "%s: shard %s is missing; the index puts tensor %s "
                         "there. Download or copy it again", d->path, name,
                         tensor);
  }
  if (!rc && !d->n_shards)
    rc = pen_error_set(-PEN_EFORMAT, "%s: weight_map is empty",
                       pen_json_source(index));
  return rc;
}

static int compare_names(const void *a, const void *b, void *tensors)
{
  const struct pen_hfdir_tensor *t = tensors;
  return strcmp(t[*(size_t *)a].name, t[*(size_t *)b].name);
}

static int fill_table(struct pen_hfdir *d)
{
  size_t n = 0;
  for (size_t s = 0; s < d->n_shards; s++)
    n += pen_safetensors_n_tensors(d->shards[s].file);
  d->tensors = calloc(n + 1, sizeof *d->tensors);
  d->by_name = calloc(n + 1, sizeof *d->by_name);
  if (!d->tensors || !d->by_name)
    return pen_error_set(-ENOMEM, "cannot hold the %zu tensors of %s", n,
                         d->path);
  for (size_t s = 0; s < d->n_shards; s++) {
    const struct pen_safetensors *file = d->shards[s].file;
    for (size_t i = 0; i < pen_safetensors_n_tensors(file); i++) {
      const struct pen_safetensors_tensor *t = pen_safetensors_tensor(file, i);
      d->by_name[d->n_tensors] = d->n_tensors;
      d->tensors[d->n_tensors++] = (struct pen_hfdir_tensor){
        .name = t->name, .dtype = t->dtype, .rank = t->rank,
        .shape = t->shape, .elems = t->elems, .bytes = t->bytes,
        .shard = s, .in_shard = i};
    }
  }
  qsort_r(d->by_name, d->n_tensors, sizeof *d->by_name, compare_names,
          d->tensors);
  for (size_t i = 1; i < d->n_tensors; i++) {
    const struct pen_hfdir_tensor *a = &d->tensors[d->by_name[i - 1]],
                                  *b = &d->tensors[d->by_name[i]];
    if (!strcmp(a->name, b->name))
      return pen_error_set(-PEN_EMISMATCH,
                           "%s: tensor %s is in both %s and %s", d->path,
                           a->name, d->shards[a->shard].name,
                           d->shards[b->shard].name);
  }
  return 0;
}

/* Every line of the index against the shards, and the other way round. */
static int check_index(const struct pen_hfdir *d, const struct pen_json *index)
{
  const struct pen_json_node *map, *value;
  const char *name, *file;
  void *iter = NULL;
  int rc = pen_json_get_object(index, pen_json_root(index), "weight_map", &map);
  if (rc)
    return rc;
  while (pen_json_next(map, &iter, &name, &value)) {
    size_t i = pen_hfdir_find(d, name);
    rc = pen_json_as_string(index, value, &file);
    if (rc)
      return rc;
    if (i == SIZE_MAX)
      return pen_error_set(-PEN_EMISMATCH,
                           "%s: the index puts tensor %s into %s, which does "
                           "not hold it", d->path, name, file);
    const char *found = d->shards[d->tensors[i].shard].name;
    if (strcmp(found, file))
      return pen_error_set(-PEN_EMISMATCH,
                           "%s: the index puts tensor %s into %s, it is in %s",
                           d->path, name, file, found);
  }
  for (size_t i = 0; i < d->n_tensors; i++)
    if (!pen_json_member(map, d->tensors[i].name))
      return pen_error_set(-PEN_EMISMATCH,
                           "%s: tensor %s of %s is not in the index", d->path,
                           d->tensors[i].name,
                           d->shards[d->tensors[i].shard].name);
  return 0;
}

static int open_all(struct pen_hfdir *d, bool lenient)
{
  char path[PATH_MAX];
  struct pen_json *index = NULL;
  size_t shard;
  bool single = has_file(d->path, PEN_HFDIR_SINGLE);
  d->has_index = has_file(d->path, PEN_HFDIR_INDEX);
  if (!single && !d->has_index)
    return refuse_empty(d->path);
  if (single && d->has_index)
    return pen_error_set(-PEN_EMISMATCH,
                         "%s holds both " PEN_HFDIR_SINGLE " and "
                         PEN_HFDIR_INDEX "; remove the one that is not meant",
                         d->path);
  int rc = join(d->path, PEN_HFDIR_INDEX, path);
  if (!rc && d->has_index)
    rc = pen_json_load(path, &index);
  if (!rc)
    rc = index ? list_shards(d, index) : add_shard(d, PEN_HFDIR_SINGLE, &shard);
  for (size_t s = 0; s < d->n_shards && !rc; s++) {
    rc = join(d->path, d->shards[s].name, path);
    if (!rc)
      rc = pen_safetensors_open(path, lenient, &d->shards[s].file);
  }
  if (!rc)
    rc = fill_table(d);
  if (!rc && index)
    rc = check_index(d, index);
  pen_json_free(&index);
  return rc;
}

int pen_hfdir_open(const char *path, bool lenient, struct pen_hfdir **ret_dir)
{
  struct pen_hfdir *d = calloc(1, sizeof *d);
  if (!d || !(d->path = strdup(path))) {
    free(d);
    return pen_error_set(-ENOMEM, "cannot open %s", path);
  }
  int rc = open_all(d, lenient);
  if (rc) {
    pen_hfdir_close(&d);
    return rc;
  }
  *ret_dir = d;
  return 0;
}

void pen_hfdir_close(struct pen_hfdir **dir)
{
  struct pen_hfdir *d = *dir;
  if (!d)
    return;
  for (size_t s = 0; s < d->n_shards; s++) {
    pen_safetensors_close(&d->shards[s].file);
    free(d->shards[s].name);
  }
  free(d->shards);
  free(d->tensors);
  free(d->by_name);
  free(d->path);
  free(d);
  *dir = NULL;
}

const char *pen_hfdir_path(const struct pen_hfdir *dir) { return dir->path; }

bool pen_hfdir_has_index(const struct pen_hfdir *dir)
{
  return dir->has_index;
}

size_t pen_hfdir_n_shards(const struct pen_hfdir *dir)
{
  return dir->n_shards;
}

const char *pen_hfdir_shard_name(const struct pen_hfdir *dir, size_t shard)
{
  return dir->shards[shard].name;
}

uint64_t pen_hfdir_shard_bytes(const struct pen_hfdir *dir, size_t shard)
{
  return pen_safetensors_file_bytes(dir->shards[shard].file);
}

const char *pen_hfdir_shard_warning(const struct pen_hfdir *dir, size_t shard)
{
  return pen_safetensors_warning(dir->shards[shard].file);
}

size_t pen_hfdir_n_tensors(const struct pen_hfdir *dir)
{
  return dir->n_tensors;
}

const struct pen_hfdir_tensor *pen_hfdir_tensor(const struct pen_hfdir *dir,
                                                size_t i)
{
  return &dir->tensors[i];
}

size_t pen_hfdir_find(const struct pen_hfdir *dir, const char *name)
{
  size_t low = 0, high = dir->n_tensors;
  while (low < high) {
    size_t middle = low + (high - low) / 2, i = dir->by_name[middle];
    int order = strcmp(name, dir->tensors[i].name);
    if (order == 0)
      return i;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return SIZE_MAX;
}

enum pen_file_dtype pen_hfdir_dtype(const struct pen_hfdir *dir)
{
  uint64_t bytes[PEN_FILE_N_DTYPES] = {0};
  enum pen_file_dtype most = PEN_FILE_NONE;
  for (size_t i = 0; i < dir->n_tensors; i++)
    bytes[dir->tensors[i].dtype] += dir->tensors[i].bytes;
  for (int i = 0; i < PEN_FILE_N_DTYPES; i++)
    if (bytes[i] > bytes[most])
      most = (enum pen_file_dtype)i;
  return most;
}

int pen_hfdir_read_bytes(const struct pen_hfdir *dir, size_t i, uint64_t begin,
                         size_t n_bytes, void *out)
{
  const struct pen_hfdir_tensor *t = &dir->tensors[i];
  return pen_safetensors_read(dir->shards[t->shard].file, t->in_shard, begin,
                              n_bytes, out);
}

int pen_hfdir_read_elems(const struct pen_hfdir *dir, size_t i, uint64_t begin,
                         size_t n, enum pen_file_dtype dtype, void *out)
{
  const struct pen_hfdir_tensor *t = &dir->tensors[i];
  size_t stored = pen_file_dtype_bytes(t->dtype);
  size_t wanted = pen_file_dtype_bytes(dtype);
  if (begin > t->elems || n > t->elems - begin)
    return pen_error_set(-EINVAL,
                         "elements [%" PRIu64 ", +%zu) are not in the %" PRIu64
                         " of tensor %s", begin, n, t->elems, t->name);
  if (t->dtype == dtype)
    return pen_hfdir_read_bytes(dir, i, begin * stored, n * stored, out);
  for (size_t done = 0; done < n;) {
    unsigned char raw[CHUNK_ELEMS * 8];
    float wide[CHUNK_ELEMS];
    size_t m = n - done < CHUNK_ELEMS ? n - done : CHUNK_ELEMS;
    int rc = pen_hfdir_read_bytes(dir, i, (begin + done) * stored, m * stored,
                                  raw);
    if (!rc)
      rc = pen_file_dtype_to_f32(t->dtype, raw, m, wide);
    if (!rc)
      rc = pen_file_dtype_from_f32(dtype, wide, m,
                                   (char *)out + done * wanted, NULL);
    if (rc)
      return pen_error_context(rc, "tensor %s of %s", t->name, dir->path);
    done += m;
  }
  return 0;
}
