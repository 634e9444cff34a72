/* params_create.c: starts model directories for a parameter table: like the one
 * it came from, or new.
 *
 * config.json is copied byte for byte unless its dtype or its tying would not
 * say what the files hold.  One thread.  Disadvantage: a config that has to
 * change is written anew, in our own layout. */
#include "src/model/params.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/files.h"
#include "io/hfdir.h"
#include "io/hfdir_write.h"
#include "io/json.h"
#include "io/json_write.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)
#define COPY_BYTES ((size_t)1 << 20)

/* The config with dtype, tying and vocabulary replaced or added; everything
 * else as it was, in its order. */
static void put_config(struct pen_json_writer *writer,
                       const struct pen_json *json, const char *dtype,
                       const struct pen_model_config *config)
{
  const struct pen_json_node *root = pen_json_root(json), *value;
  const char *key;
  void *iter = NULL;
  bool has_dtype = false, has_tied = false;
  pen_json_begin_object(writer, NULL);
  while (pen_json_next(root, &iter, &key, &value)) {
    if (!strcmp(key, "torch_dtype") || !strcmp(key, "dtype")) {
      pen_json_put_string(writer, key, dtype);
      has_dtype = true;
    } else if (!strcmp(key, "tie_word_embeddings")) {
      pen_json_put_bool(writer, key, config->tied);
      has_tied = true;
    } else if (!strcmp(key, "vocab_size")) {
      pen_json_put_u64(writer, key, config->vocab_size);
    } else {
      pen_json_put_node(writer, key, json, value);
    }
  }
  if (!has_dtype)
    pen_json_put_string(writer, "torch_dtype", dtype);
  if (!has_tied)
    pen_json_put_bool(writer, "tie_word_embeddings", config->tied);
  pen_json_end_object(writer);
}

static int rewrite_config(struct pen_hfdir_writer *writer,
                          const struct pen_json *json,
                          enum pen_file_dtype dtype,
                          const struct pen_model_config *config)
{
  struct pen_json_writer out;
  const char *text;
  size_t n;
  pen_json_writer_init(&out, NULL, 0, true);
  put_config(&out, json, pen_file_dtype_torch_name(dtype), config);
  int rc = pen_json_finish(&out, &text, &n);
  if (!rc)
    rc = pen_hfdir_put_file(writer, "config.json", text, n);
  pen_json_writer_done(&out);
  return rc;
}

/* config.json of the new directory, saying what the table and `dtype` say. */
static int add_config(struct pen_hfdir_writer *writer,
                      const struct pen_params *params, const char *config_path,
                      enum pen_file_dtype dtype)
{
  struct pen_json *json = NULL;
  struct pen_model_config before;
  char *bytes = NULL;
  size_t n = 0;
  int rc = pen_files_read_whole(config_path, CONFIG_BYTES_MAX, &bytes, &n);
  if (!rc)
    rc = pen_json_parse(bytes, n, config_path, &json);
  if (!rc)
    rc = pen_model_config_parse(json, &before);
  if (!rc) {
    const struct pen_model_config *c = &params->config;
    bool same = before.dtype == dtype && before.tied == c->tied &&
                before.vocab_size == c->vocab_size;
    rc = same ? pen_hfdir_put_file(writer, "config.json", bytes, n)
              : rewrite_config(writer, json, dtype, c);
  }
  pen_json_free(&json);
  free(bytes);
  return rc;
}

static int copy_buffer(struct pen_hfdir_writer *writer,
                       const struct pen_hfdir *source, size_t i)
{
  const struct pen_hfdir_tensor *t = pen_hfdir_tensor(source, i);
  char *bytes = malloc(COPY_BYTES);
  if (!bytes)
    return pen_error_set(-ENOMEM, "cannot copy %s", t->name);
  int rc = 0;
  for (uint64_t at = 0; at < t->bytes && !rc; at += COPY_BYTES) {
    size_t n = t->bytes - at < COPY_BYTES ? t->bytes - at : COPY_BYTES;
    rc = pen_hfdir_read_bytes(source, i, at, n, bytes);
    if (!rc)
      rc = pen_hfdir_write_bytes(writer, i, at, bytes, n);
  }
  free(bytes);
  return rc;
}

/* Arrays of a layout while it is being made. */
struct layout {
  struct pen_hfdir_layout view;
  struct pen_safetensors_spec *specs;
  size_t *shards;
  char **names;
  size_t n_names;
};

static void layout_done(struct layout *l)
{
  for (size_t i = 0; i < l->n_names; i++)
    free(l->names[i]);
  free(l->names);
  free(l->specs);
  free(l->shards);
}

static int layout_init(struct layout *l, size_t n_tensors)
{
  *l = (struct layout){0};
  l->specs = calloc(n_tensors + 1, sizeof *l->specs);
  l->shards = calloc(n_tensors + 1, sizeof *l->shards);
  l->view = (struct pen_hfdir_layout){
    .specs = l->specs, .shards = l->shards, .n = n_tensors};
  return l->specs && l->shards
             ? 0
             : pen_error_set(-ENOMEM, "cannot hold a list of %zu tensors",
                             n_tensors);
}

/* Names the shards: `source`'s names, or (NULL) the usual ones. */
static int layout_name_shards(struct layout *l, size_t n_shards,
                              const struct pen_hfdir *source)
{
  l->names = calloc(n_shards + 1, sizeof *l->names);
  for (; l->names && l->n_names < n_shards; l->n_names++) {
    char *name;
    int n = source ? asprintf(&name, "%s",
                              pen_hfdir_shard_name(source, l->n_names))
            : n_shards == 1
                ? asprintf(&name, "%s", PEN_HFDIR_SINGLE)
                : asprintf(&name, "model-%05zu-of-%05zu.safetensors",
                           l->n_names + 1, n_shards);
    if (n < 0)
      break;
    l->names[l->n_names] = name;
  }
  l->view.shard_names = (const char *const *)l->names;
  l->view.n_shards = n_shards;
  l->view.has_index = source ? pen_hfdir_has_index(source) : n_shards > 1;
  return l->names && l->n_names == n_shards
             ? 0
             : pen_error_set(-ENOMEM, "cannot hold a list of %zu files",
                             n_shards);
}

/* Tensor i of the layout is tensor i of the source. */
static int layout_like(struct layout *l, const struct pen_params *params,
                       const struct pen_hfdir *source,
                       enum pen_file_dtype dtype)
{
  for (size_t i = 0; i < l->view.n; i++) {
    const struct pen_hfdir_tensor *t = pen_hfdir_tensor(source, i);
    l->shards[i] = t->shard;
    l->specs[i] = (struct pen_safetensors_spec){
      .name = t->name, .dtype = t->dtype, .rank = t->rank, .shape = t->shape};
  }
  for (size_t i = 0; dtype != PEN_FILE_NONE && i < params->n_tensors; i++)
    if (params->tensors[i].role != PEN_ROLE_BUFFER)
      l->specs[params->tensors[i].dir_index].dtype = dtype;
  return layout_name_shards(l, pen_hfdir_n_shards(source), source);
}

int pen_params_create_dir_like(const struct pen_params *params,
                               const struct pen_hfdir *source,
                               enum pen_file_dtype dtype, const char *path,
                               bool overwrite,
                               struct pen_hfdir_writer **ret_writer)
{
  char config_path[PATH_MAX];
  struct pen_hfdir_writer *w = NULL;
  struct layout l;
  enum pen_file_dtype stored =
      dtype != PEN_FILE_NONE ? dtype : pen_hfdir_dtype(source);
  if (snprintf(config_path, sizeof config_path, "%s/config.json",
               pen_hfdir_path(source)) >= (int)sizeof config_path)
    return pen_error_set(-ENAMETOOLONG, "cannot read the config of %s",
                         pen_hfdir_path(source));
  int rc = layout_init(&l, pen_hfdir_n_tensors(source));
  if (!rc)
    rc = layout_like(&l, params, source, dtype);
  if (!rc)
    rc = pen_hfdir_create(path, &l.view, overwrite, &w);
  if (!rc)
    rc = add_config(w, params, config_path, stored);
  if (!rc)
    rc = pen_hfdir_copy_companions(w, pen_hfdir_path(source));
  for (size_t i = 0; i < params->n_tensors && !rc; i++)
    if (params->tensors[i].role == PEN_ROLE_BUFFER)
      rc = copy_buffer(w, source, params->tensors[i].dir_index);
  layout_done(&l);
  if (rc) {
    pen_hfdir_abandon(&w);
    return rc;
  }
  *ret_writer = w;
  return 0;
}

/* The table's tensors in order, a new shard whenever one would grow beyond
 * max_shard_bytes. */
static int layout_new(struct layout *l, const struct pen_params *params,
                      enum pen_file_dtype dtype, uint64_t max_shard_bytes)
{
  uint64_t in_shard = 0;
  size_t shard = 0;
  for (size_t i = 0; i < l->view.n; i++) {
    const struct pen_param_tensor *t = &params->tensors[i];
    uint64_t bytes = t->shape[0] * t->shape[1] * pen_file_dtype_bytes(dtype);
    if (in_shard && bytes > max_shard_bytes - in_shard) {
      shard++;
      in_shard = 0;
    }
    in_shard = bytes < max_shard_bytes - in_shard ? in_shard + bytes
                                                  : max_shard_bytes;
    l->shards[i] = shard;
    l->specs[i] = (struct pen_safetensors_spec){
      .name = t->name, .dtype = dtype, .rank = t->rank, .shape = t->shape};
  }
  return layout_name_shards(l, shard + 1, NULL);
}

int pen_params_create_dir(const struct pen_params *params,
                          const char *config_path, enum pen_file_dtype dtype,
                          uint64_t max_shard_bytes, const char *path,
                          bool overwrite,
                          struct pen_hfdir_writer **ret_writer)
{
  struct pen_hfdir_writer *w = NULL;
  struct layout l;
  int rc = layout_init(&l, params->n_tensors);
  if (!rc)
    rc = layout_new(&l, params, dtype, max_shard_bytes);
  if (!rc)
    rc = pen_hfdir_create(path, &l.view, overwrite, &w);
  if (!rc)
    rc = add_config(w, params, config_path, dtype);
  layout_done(&l);
  if (rc) {
    pen_hfdir_abandon(&w);
    return rc;
  }
  *ret_writer = w;
  return 0;
}
