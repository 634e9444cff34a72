/* settings.c: from words on a command line to settings, models found and text
 * prepared.
 *
 * Main thread, before anything runs.  Disadvantage: preparing text runs another
 * program, whose progress is only seen at its end. */
#include "src/cli/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"
#include "io/files.h"
#include "src/cli/verb.h"
#include "src/data/prepare.h"
#include "src/data/tokens.h"
#include "src/model/model_dir.h"
#include "src/train/rundir.h"
#include "src/train/session.h"

void pen_settings_model(const struct pen_config *config,
                        struct pen_model_settings *ret_model)
{
  *ret_model = (struct pen_model_settings){
      .dir = config->model,
      .gemm = config->gemm,
      .tf32 = config->tf32,
      .any_elem = config->dtype == PEN_CONFIG_DTYPE_AUTO,
      .elem = config->dtype == PEN_CONFIG_DTYPE_FP32 ? PEN_ELEM_F32
                                                     : PEN_ELEM_BF16,
      .lenient = config->lenient,
      .untie = config->untie};
}

static enum pen_fit_place place_of(int place)
{
  static const enum pen_fit_place places[] = {
      [PEN_CONFIG_PLACE_AUTO] = PEN_FIT_AUTO,
      [PEN_CONFIG_PLACE_NONE] = PEN_FIT_DEVICE,
      [PEN_CONFIG_PLACE_CPU] = PEN_FIT_HOST,
      [PEN_CONFIG_PLACE_NVME] = PEN_FIT_NVME};
  return places[place];
}

static size_t recompute_of(uint64_t blocks)
{
  return blocks == PEN_CONFIG_RECOMPUTE_AUTO ? PEN_FIT_RECOMPUTE_AUTO : blocks;
}

/* auto begins with none. */
static size_t speculative_of(uint64_t blocks)
{
  return blocks == PEN_CONFIG_RECOMPUTE_AUTO ? 0 : blocks;
}

void pen_settings_machine(const struct pen_config *config,
                          struct pen_machine_settings *ret_machine)
{
  *ret_machine = (struct pen_machine_settings){
      .isa = config->isa,
      .require_simd = config->require_simd,
      .threads = config->threads,
      .update_threads = config->update_threads,
      .numa = config->numa == PEN_CONFIG_NUMA_AUTO,
      .host_bytes = config->host_memory,
      .device_bytes = config->device_memory,
      .nvme_bytes = config->nvme_memory,
      .nvme_dirs = (const char *const *)config->nvme_path.items,
      .n_nvme_dirs = config->nvme_path.n_items,
      .io_engine = config->io_engine,
      .io_depth = config->io_depth,
      .tile_bytes = config->tile_size,
      .updates_after_backward = config->update_after_backward,
      .searches_speculative =
          config->speculative_updates == PEN_CONFIG_RECOMPUTE_AUTO,
      .wish = {.unified = config->host_mode == PEN_CONFIG_HOST_UNIFIED,
               .weights = place_of(config->offload_params),
               .gradients = place_of(config->offload_gradients),
               .state = place_of(config->offload_optimizer),
               .state_host_most = config->optimizer_host_memory,
               .activations = place_of(config->offload_activations),
               .group_size = config->group_size,
               .recompute_blocks = recompute_of(config->recompute),
               .recompute_head_blocks =
                   recompute_of(config->recompute_logits),
               .speculative_blocks = speculative_of(config->speculative_updates),
               .updates_in_place =
                   config->durability == PEN_CONFIG_DURABILITY_NONE,
               .weight_slots = config->weight_slots,
               .gradient_slots = config->gradient_slots,
               .tile_slots = config->tile_slots}};
}

void pen_settings_backend(const struct pen_config *config,
                          struct pen_machine_settings *machine)
{
  machine->backend = config->backend;
  machine->device = config->device;
}

static bool was_given(const struct pen_config *c, const char *name)
{
  return pen_option_source(c->options, name) != PEN_OPTION_DEFAULT;
}

void pen_settings_train(const struct pen_config *c,
                        struct pen_train_settings *s)
{
  pen_settings_model(c, &s->model);
  if (c->state_format != PEN_CONFIG_FORMAT_AUTO)
    s->model.state = pen_state_numbered((size_t)c->state_format);
  pen_settings_machine(c, &s->machine);
  s->data_name = c->data;
  s->eval_data_name = c->eval_data;
  s->output_dir = c->output_dir;
  s->resume = c->resume;
  s->convert_state = c->convert_state;
  s->overwrite = c->overwrite;
  s->dry_run = c->dry_run;
  s->max_length = (uint32_t)c->max_length;
  s->refuse_truncation = c->refuse_truncation;
  s->packing = c->packing;
  s->batch_sequences = c->per_device_train_batch_size;
  s->accumulation = c->gradient_accumulation_steps;
  s->epochs = c->num_train_epochs;
  s->max_steps = c->max_steps;
  s->seed = c->seed;
  s->lr_shape = (enum pen_lr_shape)c->lr_scheduler_type;
  s->lr = c->learning_rate;
  s->min_lr = c->min_lr;
  s->warmup = c->warmup_steps;
  s->decay_steps = c->lr_decay_steps;
  s->max_grad_norm = c->max_grad_norm;
  s->weight_decay = c->weight_decay;
  s->beta1 = c->adam_beta1;
  s->beta2 = c->adam_beta2;
  s->eps = c->adam_epsilon;
  s->max_skips = c->max_skips;
  s->logging_steps = c->logging_steps;
  s->eval_steps = c->eval_steps;
  s->save_steps = c->save_steps;
  s->save_total_limit = c->save_total_limit;
  s->samples_every = c->samples_every;
  s->n_sample_new = c->max_new_tokens;
  /* No fewer than there will be, until somebody has counted them. */
  s->n_sample_prompt = c->sample_prompt ? strlen(c->sample_prompt) + 1 : 1;
  s->durable = c->durability == PEN_CONFIG_DURABILITY_STEP;
  s->commit_interval = c->commit_interval;
  s->max_write = c->max_write;
  s->discard_state = c->state_after_run == PEN_CONFIG_STATE_DISCARD;
  s->trace = c->trace;
  s->gave_max_length = was_given(c, "max-length") && c->max_length;
  s->gave_batch = was_given(c, "per-device-train-batch-size");
  s->gave_accumulation = was_given(c, "gradient-accumulation-steps");
  s->gave_packing = was_given(c, "packing");
  s->gave_dtype = was_given(c, "dtype");
  s->gave_gemm = was_given(c, "gemm");
  s->gave_tf32 = was_given(c, "tf32");
  s->gave_seed = was_given(c, "seed");
}

/* The enums of the two sides count alike. */
_Static_assert((int)PEN_CONFIG_SCHEDULE_CONSTANT == (int)PEN_LR_CONSTANT &&
                   (int)PEN_CONFIG_SCHEDULE_LINEAR == (int)PEN_LR_LINEAR &&
                   (int)PEN_CONFIG_SCHEDULE_COSINE == (int)PEN_LR_COSINE &&
                   (int)PEN_CONFIG_SCHEDULE_WSD == (int)PEN_LR_WSD,
               "schedules");

/* Loss and template are settled once a token file is made. */
static int check_no_forms(const struct pen_config *config, const char *data)
{
  const char *option = config->chat_template          ? "chat-template"
                       : config->assistant_only_loss  ? "assistant-only-loss"
                       : config->completion_only_loss ? "completion-only-loss"
                                                      : NULL;
  if (!option)
    return 0;
  return pen_error_set(PEN_EUSAGE, "--%s has no effect on %s, whose tokens are "
                       "read as they are; it is for records that are prepared "
                       "with the model's tokenizer", option, data);
}

/* What the tool said; of the file that is gone when this is read not its name. */
static void log_lines(const struct pen_config *config, const char *path,
                      char *lines)
{
  char in_file[4096 + 8];
  snprintf(in_file, sizeof in_file, ", in %s", path);
  bool is_kept = config->options->verb == PEN_VERB_TRAIN && !config->dry_run;
  char *place = is_kept ? NULL : strstr(lines, in_file);
  if (place)
    memmove(place, place + strlen(in_file), strlen(place + strlen(in_file)) + 1);

  for (char *line; (line = strsep(&lines, "\n"));)
    if (strncmp(line, "warning: ", 9) == 0)
      pen_log_warn("%s", line + 9);
    else if (line[0])
      pen_log_info("%s", line);
}

int pen_settings_find_model(const struct pen_config *config, char **ret_path)
{
  struct stat st;
  int found = stat(config->model, &st);
  if (found < 0 && errno != ENOENT)
    return pen_error_set(-errno, "cannot look into --model %s", config->model);
  if (found == 0 && !S_ISDIR(st.st_mode))
    return pen_error_set(PEN_EUSAGE, "--model %s is a file: name the model's "
                         "directory, which has its weights and its tokenizer",
                         config->model);
  return pen_model_dir_find(config->model, ret_path);
}

int pen_settings_check_bytes(const char *model)
{
  struct pen_model_config config;
  bool is_config;
  int rc = pen_session_load_config(&(struct pen_model_settings){.dir = model},
                                   &config, &is_config);
  if (rc == 0 && config.vocab_size != PEN_TOKENS_BYTE_VOCABULARY)
    rc = pen_error_set(PEN_EMISMATCH, "%s has no tokenizer.json (nor vocab.json "
                       "with merges.txt), and its vocabulary of %zu is not that "
                       "of bytes, %d: put its tokenizer there, or give tokens "
                       "instead of text", model, config.vocab_size,
                       PEN_TOKENS_BYTE_VOCABULARY);
  return rc;
}

/* Text for a model without a tokenizer. */
static int take_bytes(const struct pen_config *config, const char *data,
                      const char *model)
{
  int rc = check_no_forms(config, data);
  if (rc == 0)
    rc = pen_settings_check_bytes(model);
  if (rc == 0)
    pen_log_info("%s has no tokenizer: each byte of %s is a token", model, data);
  return rc;
}

void pen_settings_temporary(const char *name, char *path, size_t bytes)
{
  const char *base = getenv("TMPDIR");
  snprintf(path, bytes, "%.3500s/penstock-%s-XXXXXX",
           base && *base ? base : "/tmp", name);
}

int pen_settings_make_temporary(char *path)
{
  size_t n = strlen(path);
  if (n < 6 || strcmp(path + n - 6, "XXXXXX") != 0 || mkdtemp(path))
    return 0;
  return pen_error_set(-errno, "cannot make a folder %s; TMPDIR says where else",
                       path);
}

int pen_settings_tokens(const struct pen_config *config, const char *data,
                        bool held_out, const char *model_dir,
                        char *cache_dir,
                        const volatile sig_atomic_t *stop, char **ret_path)
{
  enum pen_tokens_format format;
  uint8_t hash[PEN_SHA256_BYTES];
  bool has_tokenizer = false;
  char path[4096], note[8192];
  snprintf(path, sizeof path, "%s", data);
  int rc = pen_tokens_detect(data, 0, &format);
  if (rc == 0)
    rc = pen_tokens_hash_tokenizer(model_dir, hash, &has_tokenizer);
  if (rc == 0 && format == PEN_TOKENS_BYTES && has_tokenizer) {
    struct pen_prepare_request request = {
        .data = data, .tokenizer = model_dir, .cache_dir = cache_dir,
        .chat_template = config->chat_template,
        .assistant_only = config->assistant_only_loss,
        .completion_only = config->completion_only_loss,
        .choices = config->options->verb == PEN_VERB_EVAL,
        .held_out = held_out, .stop = stop};
    rc = pen_settings_make_temporary(cache_dir);
    if (rc == 0)
      rc = pen_prepare_cached(&request, path, sizeof path, note, sizeof note);
    if (rc == 0)
      log_lines(config, path, note);
  } else if (rc == 0) {
    rc = format == PEN_TOKENS_BYTES ? take_bytes(config, data, model_dir)
                                    : check_no_forms(config, data);
  }
  if (rc < 0)
    return rc;
  *ret_path = strdup(path);
  return *ret_path ? 0 : pen_error_set(PEN_ENOFIT, "no memory for a path");
}

/* What is there of the path must be a folder, or what lies below cannot be made. */
static int check_is_below_folder(const char *option, const char *path)
{
  char there[4096];
  struct stat st;
  snprintf(there, sizeof there, "%.*s", (int)pen_files_existing(path), path);
  if (!*there || stat(there, &st) < 0 || S_ISDIR(st.st_mode))
    return 0;
  return pen_error_set(ENOTDIR, "%s %s: %s is a file; name a folder elsewhere",
                       option, path, there);
}

static int check_output_dir(const struct pen_config *config)
{
  const char *const data[] = {config->data, config->eval_data};
  int rc = config->output_dir
               ? check_is_below_folder("--output-dir", config->output_dir) : 0;
  if (rc < 0)
    return rc;
  if (config->resume && config->output_dir && pen_rundir_exists(config->output_dir))
    return 0; /* data are held against the run's */
  for (size_t i = 0; config->output_dir && i < 2; i++)
    if (data[i] && pen_files_lies_in(config->output_dir, data[i]))
      return pen_error_set(PEN_EUSAGE, "--output-dir %s lies in %s, which is read "
                           "as data: what a run writes could become text to "
                           "train on; name a folder elsewhere",
                           config->output_dir, data[i]);
  return 0;
}

/* Is the path inside of that folder, by their names alone? */
static bool is_named_in(const char *path, const char *folder)
{
  size_t n = strlen(folder);
  while (n && folder[n - 1] == '/')
    n--;
  return n && strncmp(path, folder, n) == 0 && path[n] == '/';
}

/* A folder for state is made, but not what it lies in: a slip of the hand, or a
 * drive that is not mounted, would fill another drive. */
static int check_drive(const char *dir, const char *output_dir)
{
  size_t n = pen_files_existing(dir);
  n += strspn(dir + n, "/");
  n += strcspn(dir + n, "/"); /* behind the first name that is not there */
  bool is_last = dir[n + strspn(dir + n, "/")] == '\0';
  if (is_last || (output_dir && is_named_in(dir, output_dir)))
    return 0;
  return pen_error_set(PEN_EUSAGE, "--nvme-path %s: there is no %.*s; make it, if "
                       "that is no slip and no drive that is not mounted", dir,
                       (int)n, dir);
}

int pen_settings_outputs(const struct pen_config *config)
{
  const struct {
    const char *option, *path, *mark;
  } outputs[] = {
    { "--trace", config->trace, "\"traceEvents\"" },
    { "--plot", config->plot, "<svg" },
    { "--dump-logits", config->dump_logits, "\"doc_begin\"" },
  };
  int rc = check_output_dir(config);
  for (size_t i = 0; rc == 0 && i < sizeof outputs / sizeof outputs[0]; i++)
    if (outputs[i].path)
      rc = pen_files_may_replace(outputs[i].path, outputs[i].option,
                                 outputs[i].mark);
  for (size_t i = 0; rc == 0 && i < config->nvme_path.n_items; i++)
    rc = check_drive(config->nvme_path.items[i], config->output_dir);
  return rc;
}

void pen_settings_drop_cache(const char *cache_dir)
{
  struct pen_error kept;
  pen_error_take(&kept);
  pen_files_remove_flat_dir(cache_dir, NULL);
  pen_error_put(&kept);
}
