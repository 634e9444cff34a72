/* verb_verify.c: reads all of a model, or of one file, and says whether it is
 * whole: sizes, index, names and shapes, parameter count, every number finite;
 * for token files checksums and ids. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "io/hfdir.h"
#include "io/json_write.h"
#include "io/safetensors.h"
#include "src/cli/inspect.h"
#include "src/cli/verb.h"
#include "src/data/tokens.h"
#include "src/model/model_dir.h"

#define CHUNK_ELEMS ((size_t)1 << 18)

/* What was read; for the report. */
struct tally {
  uint64_t tensors, parameters, bytes, tokens;
  const char *unchecked; /* format of tokens that has no checksum, or NULL */
};

/* Reads one tensor to its end; raw and wide hold CHUNK_ELEMS elements. */
static int verify_tensor(const struct pen_safetensors *file, size_t i,
                         unsigned char *raw, float *wide)
{
  const struct pen_safetensors_tensor *t = pen_safetensors_tensor(file, i);
  size_t width = pen_file_dtype_bytes(t->dtype);
  bool is_float = t->dtype == PEN_FILE_BF16 || t->dtype == PEN_FILE_F16 ||
                  t->dtype == PEN_FILE_F32 || t->dtype == PEN_FILE_F64;
  uint64_t bad = 0, first = 0;
  for (uint64_t at = 0; at < t->elems; at += CHUNK_ELEMS) {
    size_t n = t->elems - at < CHUNK_ELEMS ? t->elems - at : CHUNK_ELEMS;
    int rc = pen_safetensors_read(file, i, at * width, n * width, raw);
    if (!rc && is_float)
      rc = pen_file_dtype_to_f32(t->dtype, raw, n, wide);
    if (rc)
      return rc;
    for (size_t k = 0; is_float && k < n; k++)
      if (!isfinite(wide[k])) {
        first = bad ? first : at + k;
        bad++;
      }
  }
  if (bad)
    return pen_error_set(-PEN_ENONFINITE,
                         "%s: tensor %s has %" PRIu64 " of %" PRIu64
                         " elements that are not finite, the first at %" PRIu64,
                         pen_safetensors_path(file), t->name, bad, t->elems,
                         first);
  return 0;
}

static int verify_file(const char *path, bool lenient, struct tally *tally)
{
  struct pen_safetensors *file = NULL;
  unsigned char *raw = malloc(CHUNK_ELEMS * 8);
  float *wide = malloc(CHUNK_ELEMS * sizeof *wide);
  int rc = raw && wide ? pen_safetensors_open(path, lenient, &file)
                       : pen_error_set(-ENOMEM, "cannot read %s", path);
  for (size_t i = 0; !rc && i < pen_safetensors_n_tensors(file); i++)
    rc = verify_tensor(file, i, raw, wide);
  if (!rc) {
    tally->tensors += pen_safetensors_n_tensors(file);
    tally->bytes += pen_safetensors_file_bytes(file);
    if (*pen_safetensors_warning(file))
      pen_log_warn("%s: %s", path, pen_safetensors_warning(file));
  }
  pen_safetensors_close(&file);
  free(raw);
  free(wide);
  return rc;
}

static int verify_model(const struct pen_config *config, struct tally *tally)
{
  const char *path = config->path;
  struct pen_model_dir *model = NULL;
  struct pen_model_dir_options options = {.lenient = config->lenient,
                                          .untie = config->untie};
  int rc = pen_model_dir_open(path, &options, &model);
  for (size_t s = 0; !rc && s < pen_hfdir_n_shards(model->files); s++) {
    char *file;
    if (asprintf(&file, "%s/%s", model->path,
                 pen_hfdir_shard_name(model->files, s)) < 0)
      rc = pen_error_set(-ENOMEM, "cannot read %s", path);
    if (rc)
      break;
    rc = verify_file(file, config->lenient, tally);
    free(file);
  }
  if (!rc)
    tally->parameters = model->params->n_elems;
  pen_model_dir_close(&model);
  return rc;
}

static int refuse(const char *path, const char *what)
{
  return pen_error_set(-PEN_EUSAGE, "%s is %s; verify reads a model's directory, "
                       "a .safetensors or a token file", path, what);
}

static int verify_tokens(const char *path, struct tally *tally)
{
  struct pen_tokens *tokens = NULL;
  struct pen_tokens_options options = {.format = PEN_TOKENS_AUTO};
  int rc = pen_tokens_open(path, &options, &tokens);
  if (!rc && pen_tokens_info(tokens)->format == PEN_TOKENS_BYTES)
    rc = refuse(path, "text, or nothing known");
  if (!rc)
    rc = pen_tokens_verify(tokens);
  if (!rc) {
    enum pen_tokens_format format = pen_tokens_info(tokens)->format;
    tally->tokens = pen_tokens_info(tokens)->n_tokens;
    tally->unchecked =
        format == PEN_TOKENS_PEN ? NULL : pen_tokens_format_name(format);
    tally->bytes = pen_tokens_info(tokens)->file_bytes;
  }
  pen_tokens_close(&tokens);
  return rc;
}

static int print(const char *path, const struct tally *t, bool as_json)
{
  if (!as_json) {
    printf("%s: whole; ", path);
    if (t->tokens && t->unchecked)
      printf("%" PRIu64 " tokens (%s, which has no checksum), ", t->tokens,
             t->unchecked);
    else if (t->tokens)
      printf("%" PRIu64 " tokens, ", t->tokens);
    else
      printf("%" PRIu64 " tensors, all finite, ", t->tensors);
    if (t->parameters)
      printf("%" PRIu64 " parameters, ", t->parameters);
    printf("%" PRIu64 " bytes read\n", t->bytes);
    return 0;
  }
  struct pen_json_writer json;
  const char *text;
  size_t n;
  pen_json_writer_init(&json, NULL, 0, false);
  pen_json_begin_object(&json, NULL);
  pen_json_put_string(&json, "path", path);
  pen_json_put_bool(&json, "whole", true);
  pen_json_put_u64(&json, "tensors", t->tensors);
  pen_json_put_u64(&json, "parameters", t->parameters);
  pen_json_put_u64(&json, "tokens", t->tokens);
  pen_json_put_u64(&json, "bytes", t->bytes);
  pen_json_end_object(&json);
  int rc = pen_json_finish(&json, &text, &n);
  if (!rc)
    puts(text);
  pen_json_writer_done(&json);
  return rc;
}

int pen_verb_verify(const struct pen_config *config)
{
  struct tally tally = {0};
  enum pen_inspect_kind kind;
  int rc = pen_inspect_kind(config->path, &kind);
  if (rc)
    return rc;
  switch (kind) {
  case PEN_INSPECT_MODEL:
    rc = verify_model(config, &tally);
    break;
  case PEN_INSPECT_SAFETENSORS:
    rc = verify_file(config->path, config->lenient, &tally);
    break;
  case PEN_INSPECT_TOKENS:
    rc = verify_tokens(config->path, &tally);
    break;
  case PEN_INSPECT_CONFIG:
    rc = refuse(config->path, "a .json file");
    break;
  case PEN_INSPECT_GGUF:
    rc = refuse(config->path, "a GGUF file");
    break;
  }
  return rc ? rc
            : print(config->path, &tally,
                    config->output_format == PEN_CONFIG_OUTPUT_JSON);
}
