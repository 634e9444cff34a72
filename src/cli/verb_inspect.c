/* verb_inspect.c: looks into a model directory, a config, a safetensors, GGUF or
 * token file, and prints what is there, as text or JSON.
 *
 * Both forms are made from the same numbers.  Disadvantage: a model's files are
 * opened and checked, which for a hundred shards takes a moment. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/size.h"
#include "io/hfdir.h"
#include "io/json_write.h"
#include "io/safetensors.h"
#include "src/cli/inspect.h"
#include "src/cli/verb.h"
#include "src/data/tokens.h"
#include "src/model/model_dir.h"

/* Tensors and bytes by number format, of the weights in files or to be. */
struct usage {
  uint64_t tensors[PEN_FILE_N_DTYPES], bytes[PEN_FILE_N_DTYPES];
};

/* Starts JSON output about `path`. */
static void begin(struct pen_json_writer *json, const char *path,
                  const char *kind)
{
  pen_json_writer_init(json, NULL, 0, true);
  pen_json_begin_object(json, NULL);
  pen_json_put_string(json, "path", path);
  pen_json_put_string(json, "kind", kind);
}

/* Ends it and prints it. */
static int end(struct pen_json_writer *json)
{
  const char *text;
  size_t n;
  pen_json_end_object(json);
  int rc = pen_json_finish(json, &text, &n);
  if (!rc)
    puts(text);
  pen_json_writer_done(json);
  return rc;
}

static void print_bytes(const char *label, uint64_t bytes)
{
  char text[PEN_SIZE_TEXT_BYTES];
  pen_size_format(bytes, text);
  printf("%s%s (%" PRIu64 " bytes)\n", label, text, bytes);
}

static void print_usage(const struct usage *usage)
{
  for (int i = 0; i < PEN_FILE_N_DTYPES; i++) {
    if (!usage->tensors[i])
      continue;
    char label[64];
    snprintf(label, sizeof label, "  %-8s %6" PRIu64 " tensors  ",
             pen_file_dtype_name((enum pen_file_dtype)i), usage->tensors[i]);
    print_bytes(label, usage->bytes[i]);
  }
}

static void put_usage(struct pen_json_writer *json, const struct usage *usage)
{
  pen_json_begin_object(json, "dtypes");
  for (int i = 0; i < PEN_FILE_N_DTYPES; i++) {
    if (!usage->tensors[i])
      continue;
    pen_json_begin_object(json, pen_file_dtype_name((enum pen_file_dtype)i));
    pen_json_put_u64(json, "tensors", usage->tensors[i]);
    pen_json_put_u64(json, "bytes", usage->bytes[i]);
    pen_json_end_object(json);
  }
  pen_json_end_object(json);
}

/* Parameters of a block without padding. */
static uint64_t count_block(const struct pen_params *p, size_t block)
{
  uint64_t elems = 0;
  for (size_t i = 0; i < p->infos[block].n_params; i++) {
    const struct pen_param *q = &p->params[p->infos[block].first_param + i];
    elems += (uint64_t)q->rows * q->cols;
  }
  return elems;
}

/* One line for a run of blocks of the same kind and size. */
static void print_blocks(const struct pen_params *p)
{
  printf("blocks         %zu\n", p->n_blocks);
  for (size_t b = 0, next; b < p->n_blocks; b = next) {
    uint64_t elems = count_block(p, b);
    next = b + 1;
    while (next < p->n_blocks && p->infos[next].kind == p->infos[b].kind &&
           count_block(p, next) == elems)
      next++;
    printf("  %5zu x %12" PRIu64 " parameters  %s%s%s\n", next - b, elems,
           p->blocks[b].name, next - b > 1 ? " ... " : "",
           next - b > 1 ? p->blocks[next - 1].name : "");
  }
}

static void print_model(const struct pen_params *p)
{
  const struct pen_model_config *c = &p->config;
  printf("family         %s\n", c->family->model_type);
  printf("layers         %zu of hidden size %zu, intermediate size %zu\n",
         c->n_layers, c->hidden_size, c->intermediate_size);
  printf("attention      %zu heads, %zu for keys and values, of %zu\n",
         c->n_heads, c->n_kv_heads, c->head_dim);
  if (c->rope.dim)
    printf("positions      rope %s, theta %g, up to %zu",
           pen_rope_type_name(c->rope.type), c->rope.theta, c->max_positions);
  else
    printf("positions      learned, %zu", c->max_positions);
  if (c->sliding_window)
    printf(", window %zu", c->sliding_window);
  printf("\nvocabulary     %zu tokens, %zu rows, head %s\n", c->vocab_size,
         p->vocab_rows, c->tied ? "tied to the embedding" : "of its own");
  printf("parameters     %" PRIu64 "\n", p->n_elems);
  print_blocks(p);
}

static void put_model(struct pen_json_writer *json, const struct pen_params *p)
{
  const struct pen_model_config *c = &p->config;
  pen_json_put_string(json, "family", c->family->model_type);
  pen_json_put_u64(json, "parameters", p->n_elems);
  pen_json_put_u64(json, "layers", c->n_layers);
  pen_json_put_u64(json, "hidden_size", c->hidden_size);
  pen_json_put_u64(json, "intermediate_size", c->intermediate_size);
  pen_json_put_u64(json, "heads", c->n_heads);
  pen_json_put_u64(json, "kv_heads", c->n_kv_heads);
  pen_json_put_u64(json, "head_dim", c->head_dim);
  pen_json_put_u64(json, "vocab_size", c->vocab_size);
  pen_json_put_u64(json, "vocab_rows", p->vocab_rows);
  pen_json_put_bool(json, "tied", c->tied);
  pen_json_put_string(json, "rope", c->rope.dim
                                        ? pen_rope_type_name(c->rope.type)
                                        : "none");
  pen_json_begin_array(json, "blocks");
  for (size_t b = 0; b < p->n_blocks; b++) {
    pen_json_begin_object(json, NULL);
    pen_json_put_string(json, "name", p->blocks[b].name);
    pen_json_put_u64(json, "parameters", count_block(p, b));
    pen_json_put_u64(json, "elems", p->blocks[b].elems);
    pen_json_end_object(json);
  }
  pen_json_end_array(json);
}

/* The config alone: bytes are those its dtype would give. */
static int inspect_config(const char *path, bool as_json)
{
  struct pen_model_config config;
  struct pen_params *p = NULL;
  struct usage usage = {0};
  int rc = pen_model_config_load(path, &config);
  if (!rc)
    rc = pen_params_build(&config, 0, 0, &p);
  if (rc)
    return rc;
  if (config.dtype != PEN_FILE_NONE) {
    usage.tensors[config.dtype] = p->n_tensors;
    usage.bytes[config.dtype] = p->n_elems * pen_file_dtype_bytes(config.dtype);
  }
  if (as_json) {
    struct pen_json_writer json;
    begin(&json, path, "config");
    put_model(&json, p);
    put_usage(&json, &usage);
    rc = end(&json);
  } else {
    print_model(p);
    puts("weights, by the config's dtype");
    print_usage(&usage);
  }
  pen_params_free(&p);
  return rc;
}

static void print_files(const struct pen_hfdir *files)
{
  for (size_t s = 0; s < pen_hfdir_n_shards(files); s++) {
    char label[160];
    snprintf(label, sizeof label, "  %s  ", pen_hfdir_shard_name(files, s));
    print_bytes(label, pen_hfdir_shard_bytes(files, s));
  }
}

static void put_files(struct pen_json_writer *json,
                      const struct pen_hfdir *files)
{
  pen_json_begin_array(json, "files");
  for (size_t s = 0; s < pen_hfdir_n_shards(files); s++) {
    pen_json_begin_object(json, NULL);
    pen_json_put_string(json, "name", pen_hfdir_shard_name(files, s));
    pen_json_put_u64(json, "bytes", pen_hfdir_shard_bytes(files, s));
    pen_json_end_object(json);
  }
  pen_json_end_array(json);
}

static int inspect_model(const struct pen_config *config, bool as_json)
{
  struct pen_model_dir *model = NULL;
  struct pen_model_dir_options options = {.lenient = config->lenient,
                                          .untie = config->untie};
  struct usage usage = {0};
  int rc = pen_model_dir_open(config->path, &options, &model);
  if (rc)
    return rc;
  for (size_t i = 0; i < pen_hfdir_n_tensors(model->files); i++) {
    const struct pen_hfdir_tensor *t = pen_hfdir_tensor(model->files, i);
    usage.tensors[t->dtype]++;
    usage.bytes[t->dtype] += t->bytes;
  }
  for (size_t s = 0; s < pen_hfdir_n_shards(model->files); s++)
    if (*pen_hfdir_shard_warning(model->files, s))
      pen_log_warn("%s: %s", pen_hfdir_shard_name(model->files, s),
                   pen_hfdir_shard_warning(model->files, s));
  if (as_json) {
    struct pen_json_writer json;
    begin(&json, model->path, "model");
    put_model(&json, model->params);
    pen_json_put_u64(&json, "tensors", pen_hfdir_n_tensors(model->files));
    put_usage(&json, &usage);
    put_files(&json, model->files);
    rc = end(&json);
  } else {
    print_model(model->params);
    puts("weights");
    print_usage(&usage);
    puts("files");
    print_files(model->files);
  }
  pen_model_dir_close(&model);
  return rc;
}

static void print_tensor(const struct pen_safetensors_tensor *t)
{
  printf("  %-8s [", pen_file_dtype_name(t->dtype));
  for (size_t d = 0; d < t->rank; d++)
    printf("%s%" PRIu64, d ? ", " : "", t->shape[d]);
  printf("] %" PRIu64 " bytes at %" PRIu64 "  %s\n", t->bytes, t->offset,
         t->name);
}

static void put_tensor(struct pen_json_writer *json,
                       const struct pen_safetensors_tensor *t)
{
  pen_json_begin_object(json, NULL);
  pen_json_put_string(json, "name", t->name);
  pen_json_put_string(json, "dtype", pen_file_dtype_name(t->dtype));
  pen_json_begin_array(json, "shape");
  for (size_t d = 0; d < t->rank; d++)
    pen_json_put_u64(json, NULL, t->shape[d]);
  pen_json_end_array(json);
  pen_json_put_u64(json, "offset", t->offset);
  pen_json_put_u64(json, "bytes", t->bytes);
  pen_json_end_object(json);
}

static int inspect_safetensors(const char *path, bool lenient, bool as_json)
{
  struct pen_safetensors *file = NULL;
  struct pen_json_writer json;
  int rc = pen_safetensors_open(path, lenient, &file);
  if (rc)
    return rc;
  size_t n = pen_safetensors_n_tensors(file);
  if (*pen_safetensors_warning(file))
    pen_log_warn("%s: %s", path, pen_safetensors_warning(file));
  if (as_json) {
    begin(&json, path, "safetensors");
    pen_json_put_u64(&json, "bytes", pen_safetensors_file_bytes(file));
    pen_json_begin_array(&json, "tensors");
    for (size_t i = 0; i < n; i++)
      put_tensor(&json, pen_safetensors_tensor(file, i));
    pen_json_end_array(&json);
    rc = end(&json);
  } else {
    printf("%zu tensors\n", n);
    for (size_t i = 0; i < n; i++)
      print_tensor(pen_safetensors_tensor(file, i));
    print_bytes("file of ", pen_safetensors_file_bytes(file));
  }
  pen_safetensors_close(&file);
  return rc;
}

static int inspect_gguf(const char *path, bool as_json)
{
  struct pen_inspect_gguf gguf;
  int rc = pen_inspect_read_gguf(path, &gguf);
  if (rc)
    return rc;
  if (as_json) {
    struct pen_json_writer json;
    begin(&json, path, "gguf");
    pen_json_put_u64(&json, "version", gguf.version);
    pen_json_put_u64(&json, "tensors", gguf.n_tensors);
    pen_json_put_u64(&json, "keys", gguf.n_keys);
    pen_json_put_u64(&json, "bytes", gguf.bytes);
    return end(&json);
  }
  printf("GGUF           version %" PRIu32 ", for llama.cpp; written by export, "
         "read by no verb but this one\n", gguf.version);
  printf("tensors        %" PRIu64 "\nmetadata       %" PRIu64 " keys\n",
         gguf.n_tensors, gguf.n_keys);
  print_bytes("file           ", gguf.bytes);
  return 0;
}

static int inspect_tokens(const char *path, bool as_json)
{
  struct pen_tokens *tokens = NULL;
  struct pen_tokens_options options = {.format = PEN_TOKENS_AUTO};
  int rc = pen_tokens_open(path, &options, &tokens);
  if (rc)
    return rc;
  const struct pen_tokens_info *info = pen_tokens_info(tokens);
  const char *format = pen_tokens_format_name(info->format);
  if (as_json) {
    struct pen_json_writer json;
    begin(&json, path, "tokens");
    pen_json_put_string(&json, "format", format);
    pen_json_put_u64(&json, "tokens", info->n_tokens);
    pen_json_put_u64(&json, "trained_tokens", info->n_trained);
    pen_json_put_u64(&json, "documents", info->n_docs);
    pen_json_put_u64(&json, "vocab_size", info->vocab_size);
    pen_json_put_u64(&json, "token_bytes", info->token_bytes);
    pen_json_put_u64(&json, "bytes", info->file_bytes);
    rc = end(&json);
  } else {
    printf("format         %s, %" PRIu32 " bytes a token\n", format,
           info->token_bytes);
    printf("tokens         %" PRIu64 ", %" PRIu64 " of them targets\n",
           info->n_tokens, info->n_trained);
    printf("documents      %" PRIu64 "\n", info->n_docs);
    if (info->vocab_size)
      printf("vocabulary     %" PRIu32 "\n", info->vocab_size);
    print_bytes("file           ", info->file_bytes);
  }
  if (rc == 0 && info->format == PEN_TOKENS_BYTES)
    pen_log_info("%s is text, or records of it: penstock-prepare --tokenizer MODEL "
                 "--show 2 %s prints what would be trained of it", path, path);
  pen_tokens_close(&tokens);
  return rc;
}

int pen_verb_inspect(const struct pen_config *config)
{
  bool as_json = config->output_format == PEN_CONFIG_OUTPUT_JSON;
  enum pen_inspect_kind kind;
  int rc = pen_inspect_kind(config->path, &kind);
  if (rc)
    return rc;
  switch (kind) {
  case PEN_INSPECT_MODEL:
    return inspect_model(config, as_json);
  case PEN_INSPECT_CONFIG:
    return inspect_config(config->path, as_json);
  case PEN_INSPECT_SAFETENSORS:
    return inspect_safetensors(config->path, config->lenient, as_json);
  case PEN_INSPECT_GGUF:
    return inspect_gguf(config->path, as_json);
  case PEN_INSPECT_TOKENS:
    break;
  }
  return inspect_tokens(config->path, as_json);
}
