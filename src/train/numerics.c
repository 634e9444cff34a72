/* numerics.c: the frozen choices as JSON, as a hash, and held against options.
 *
 * The hash is FNV-1a over the JSON text, so the text is the one definition of
 * what counts.  Disadvantage: a renamed key changes the hash of old runs, which
 * is why the version is among them. */
#include "src/train/numerics.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

void pen_numerics_write(const struct pen_numerics *numerics,
                        struct pen_json_writer *writer)
{
  pen_json_put_u64(writer, "version", numerics->version);
  pen_json_put_string(writer, "dtype", pen_elem_name(numerics->elem));
  pen_json_put_string(writer, "gemm", numerics->gemm);
  pen_json_put_string(writer, "gemm_variant", numerics->gemm_variant);
  if (numerics->tf32) /* else as before it could be asked for */
    pen_json_put_bool(writer, "tf32", true);
  pen_json_put_u64(writer, "max_length", numerics->max_length);
  pen_json_put_u64(writer, "per_device_train_batch_size",
                   numerics->batch_sequences);
  pen_json_put_u64(writer, "gradient_accumulation_steps",
                   numerics->accumulation);
  if (numerics->state != &pen_state_fp32) /* as before there were others */
    pen_json_put_string(writer, "state_format", numerics->state->name);
  if (numerics->packing) /* else the text is as before there was packing */
    pen_json_put_bool(writer, "packing", true);
  pen_json_put_u64(writer, "head_rows", numerics->head_rows);
  pen_json_put_u64(writer, "seed", numerics->seed);
  pen_json_put_u64(writer, "data_fingerprint", numerics->data_fingerprint);
}

static int read_u64(const struct pen_json *json,
                    const struct pen_json_node *node, const char *key,
                    uint64_t *ret_value)
{
  int64_t value;
  int rc = pen_json_get_i64(json, node, key, &value);
  if (rc == 0)
    *ret_value = (uint64_t)value;
  return rc;
}

int pen_numerics_read(const struct pen_json *json,
                      const struct pen_json_node *node,
                      struct pen_numerics *ret_numerics)
{
  struct pen_numerics n = {0};
  uint64_t version = 0, length = 0, fingerprint = 0;
  const char *dtype = "", *gemm = "", *variant = "", *state = "fp32";
  const struct {
    const char *key;
    uint64_t *value;
  } numbers[] = {{"version", &version},
                 {"max_length", &length},
                 {"per_device_train_batch_size", &n.batch_sequences},
                 {"gradient_accumulation_steps", &n.accumulation},
                 {"head_rows", &n.head_rows},
                 {"seed", &n.seed},
                 {"data_fingerprint", &fingerprint}};
  int rc = 0;
  for (size_t i = 0; rc == 0 && i < sizeof numbers / sizeof *numbers; i++)
    rc = read_u64(json, node, numbers[i].key, numbers[i].value);
  if (rc == 0)
    rc = pen_json_opt_bool(json, node, "packing", &n.packing);
  if (rc == 0)
    rc = pen_json_opt_bool(json, node, "tf32", &n.tf32);
  if (rc == 0)
    rc = pen_json_get_string(json, node, "dtype", &dtype);
  if (rc == 0)
    rc = pen_json_get_string(json, node, "gemm", &gemm);
  if (rc == 0)
    rc = pen_json_get_string(json, node, "gemm_variant", &variant);
  if (rc == 0)
    rc = pen_json_opt_string(json, node, "state_format", &state);
  if (rc == 0)
    rc = pen_state_find(state, &n.state);
  if (rc < 0)
    return rc;
  n.version = (uint32_t)version;
  n.max_length = (uint32_t)length;
  n.data_fingerprint = (uint32_t)fingerprint;
  n.elem = strcmp(dtype, pen_elem_name(PEN_ELEM_BF16)) == 0 ? PEN_ELEM_BF16
                                                           : PEN_ELEM_F32;
  snprintf(n.gemm, sizeof n.gemm, "%s", gemm);
  snprintf(n.gemm_variant, sizeof n.gemm_variant, "%s", variant);
  if (n.version != PEN_NUMERICS_VERSION)
    return pen_error_set(PEN_EMISMATCH,
                         "the run was started with numerics version %u, this "
                         "penstock computes with version %d; resume it with "
                         "the penstock that started it",
                         n.version, PEN_NUMERICS_VERSION);
  *ret_numerics = n;
  return 0;
}

uint64_t pen_numerics_hash(const struct pen_numerics *numerics)
{
  char buffer[1024];
  const char *text = "";
  size_t bytes = 0;
  struct pen_json_writer writer;
  struct pen_numerics exact = *numerics;
  if (exact.state->exact) /* which of them changes no bit */
    exact.state = &pen_state_fp32;
  pen_json_writer_init(&writer, buffer, sizeof buffer, false);
  pen_json_begin_object(&writer, NULL);
  pen_numerics_write(&exact, &writer);
  pen_json_end_object(&writer);
  pen_json_finish(&writer, &text, &bytes);
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; i++)
    hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
  return hash;
}

uint64_t pen_numerics_hash_in(const struct pen_numerics *numerics,
                              const struct pen_state_format *state)
{
  struct pen_numerics other = *numerics;
  other.state = state;
  return pen_numerics_hash(&other);
}

static int refuse(const char *option, const char *given, const char *run)
{
  return pen_error_set(PEN_EMISMATCH,
                       "--%s %s differs from what this run was started with "
                       "(%s) and would change its numbers; leave the option "
                       "out, or start another run",
                       option, given, run);
}

static int refuse_number(const char *option, uint64_t given, uint64_t run)
{
  char a[24], b[24];
  snprintf(a, sizeof a, "%llu", (unsigned long long)given);
  snprintf(b, sizeof b, "%llu", (unsigned long long)run);
  return refuse(option, a, b);
}

int pen_numerics_check(const struct pen_numerics *run,
                       const struct pen_train_settings *settings)
{
  const struct {
    const char *option;
    bool given;
    uint64_t now, then;
  } numbers[] = {
      {"max-length", settings->gave_max_length, settings->max_length,
       run->max_length},
      {"per-device-train-batch-size", settings->gave_batch,
       settings->batch_sequences, run->batch_sequences},
      {"gradient-accumulation-steps", settings->gave_accumulation,
       settings->accumulation, run->accumulation},
      {"seed", settings->gave_seed, settings->seed, run->seed},
  };
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i].given && numbers[i].now != numbers[i].then)
      return refuse_number(numbers[i].option, numbers[i].now, numbers[i].then);
  if (settings->gave_packing && settings->packing != run->packing)
    return refuse("packing", settings->packing ? "true" : "false",
                  run->packing ? "true" : "false");
  if (settings->gave_tf32 && settings->model.tf32 != run->tf32)
    return refuse("tf32", settings->model.tf32 ? "true" : "false",
                  run->tf32 ? "true" : "false");
  const struct pen_state_format *state = settings->model.state;
  if (state && state != run->state && !(state->exact && run->state->exact) &&
      !settings->convert_state)
    return pen_error_set(PEN_EMISMATCH,
                         "--state-format %s differs from what this run was "
                         "started with (%s) and would change its numbers; leave "
                         "the option out, or change them with --convert-state",
                         state->name, run->state->name);
  enum pen_elem elem = settings->model.elem;
  if (settings->gave_dtype && !settings->model.any_elem && elem != run->elem)
    return refuse("dtype", pen_elem_name(elem), pen_elem_name(run->elem));
  if (settings->gave_gemm && strcmp(settings->model.gemm, "auto") != 0 &&
      strcmp(settings->model.gemm, run->gemm) != 0)
    return refuse("gemm", settings->model.gemm, run->gemm);
  return 0;
}
