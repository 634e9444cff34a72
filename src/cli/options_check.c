/* options_check.c: options that contradict each other.
 *
 * A contradiction is an error, never a quiet choice between the two.  Values
 * count, not whether they were written: a dumped configuration, which writes
 * all of them, must pass.
 * Disadvantage: only what options alone can tell; what needs the model or the
 * machine is found later, by the plan. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "src/cli/options.h"
#include "src/cli/verb.h"

#define REQUEST_STEP 65536

static int contradiction(const char *a, const char *b, const char *advice)
{
  return pen_error_set(-PEN_EUSAGE, "%s and %s contradict each other; %s", a, b,
                       advice);
}

/* One place under two names would be two drives to everything behind. */
static bool are_the_same(const char *a, const char *b)
{
  char *real_a = realpath(a, NULL), *real_b = realpath(b, NULL);
  bool same = strcmp(a, b) == 0 ||
              (real_a && real_b && strcmp(real_a, real_b) == 0);
  free(real_a);
  free(real_b);
  return same;
}

static int check_drives(const struct pen_option_list *drives)
{
  for (size_t i = 0; i < drives->n_items; i++)
    for (size_t j = 0; j < i; j++)
      if (are_the_same(drives->items[i], drives->items[j]))
        return pen_error_set(-PEN_EUSAGE, "--nvme-path names %s twice (%s); name "
                             "each drive once", drives->items[j],
                             drives->items[i]);
  return 0;
}

static int check_nvme(const struct pen_config *config)
{
  const struct {
    const char *name;
    int place;
  } places[] = {
    { "offload-optimizer", config->offload_optimizer },
    { "offload-gradients", config->offload_gradients },
    { "offload-params", config->offload_params },
    { "offload-activations", config->offload_activations },
  };
  if (config->optimizer_host_memory != PEN_CONFIG_AUTO &&
      config->offload_optimizer != PEN_CONFIG_PLACE_AUTO)
    return contradiction("--optimizer-host-memory", "--offload-optimizer",
                         "the one has a part in RAM, the other all in one place");
  if (config->nvme_path.n_items)
    return check_drives(&config->nvme_path);
  if (config->drives || config->drive_read)
    return 0;
  for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
    if (places[i].place == PEN_CONFIG_PLACE_NVME)
      return pen_error_set(-PEN_EUSAGE, "--%s nvme needs --nvme-path DIR; a "
                           "drive is never taken unasked", places[i].name);
  if (config->nvme_memory != PEN_CONFIG_AUTO)
    return pen_error_set(-PEN_EUSAGE, "--nvme-memory needs --nvme-path DIR");
  if (config->optimizer_host_memory != PEN_CONFIG_AUTO)
    return pen_error_set(-PEN_EUSAGE, "--optimizer-host-memory needs --nvme-path "
                         "DIR for the rest");
  return 0;
}

static bool is_cuda(const struct pen_config *config)
{
  return config->backend && strcmp(config->backend, "cuda") == 0;
}

static int check_backend(const struct pen_config *config)
{
  if (is_cuda(config) && config->host_mode == PEN_CONFIG_HOST_DISCRETE)
    return contradiction("--backend cuda", "--host-mode discrete",
                         "the one is a device, the other plays one on the CPU");
  if (config->tf32 && config->dtype == PEN_CONFIG_DTYPE_BF16)
    return contradiction("--tf32", "--dtype bf16",
                         "it is for products in fp32");
  if (config->tf32 && config->backend && strcmp(config->backend, "host") == 0)
    return contradiction("--tf32", "--backend host", "it is for a GPU");
  if (config->device && config->backend && strcmp(config->backend, "host") == 0)
    return contradiction("--device", "--backend host", "drop one");
  if (config->device_memory != PEN_CONFIG_AUTO && !is_cuda(config) &&
      config->host_mode != PEN_CONFIG_HOST_DISCRETE && !config->gpu)
    return pen_error_set(-PEN_EUSAGE, "--device-memory needs --backend cuda or "
                         "--host-mode discrete; with unified memory "
                         "--host-memory counts");
  return 0;
}

/* What an engine forgets cannot be trained. */
static int check_engine(const struct pen_config *config)
{
  if (config->io_engine && strcmp(config->io_engine, "null") == 0)
    return pen_error_set(-PEN_EUSAGE, "--io-engine null keeps nothing that is "
                         "written; it is there to be measured, not to train with");
  return 0;
}

/* Borders that belong to no range: by the formula these divide by nothing. */
static int check_adam(const struct pen_config *config)
{
  if (config->adam_beta1 >= 1 || config->adam_beta2 >= 1)
    return pen_error_set(-PEN_EUSAGE, "--adam-beta%d 1: it must be below 1, or no "
                         "gradient ever counts", config->adam_beta1 >= 1 ? 1 : 2);
  if (config->adam_epsilon <= 0)
    return pen_error_set(-PEN_EUSAGE, "--adam-epsilon 0: it must be above 0, or "
                         "what has no gradient is divided by nothing");
  return 0;
}

static int check_train(const struct pen_config *config)
{
  int rc = check_adam(config);
  if (rc == 0)
    rc = check_engine(config);
  if (rc < 0)
    return rc;
  if (config->resume && config->overwrite)
    return contradiction("--resume", "--overwrite",
                         "one goes on with the run, the other deletes it");
  if (config->convert_state &&
      !(config->resume && config->state_format != PEN_CONFIG_FORMAT_AUTO))
    return pen_error_set(-PEN_EUSAGE, "--convert-state needs --resume and the "
                         "--state-format to change to");
  if (config->min_lr > config->learning_rate && config->learning_rate > 0)
    return pen_error_set(-PEN_EUSAGE, "--min-lr %g is above --learning-rate %g",
                         config->min_lr, config->learning_rate);
  if (config->min_lr > 0 &&
      config->lr_scheduler_type == PEN_CONFIG_SCHEDULE_CONSTANT)
    return pen_error_set(-PEN_EUSAGE, "--min-lr has no meaning with "
                         "--lr-scheduler-type constant");
  if (config->max_steps == 0 && config->num_train_epochs == 0)
    return pen_error_set(-PEN_EUSAGE, "--num-train-epochs 0 trains nothing; "
                         "give it or --max-steps");
  if (config->eval_steps && !config->eval_data)
    return pen_error_set(-PEN_EUSAGE, "--eval-steps needs --eval-data FILE");
  if (config->sample_prompt && !config->samples_every)
    return pen_error_set(-PEN_EUSAGE, "--sample-prompt needs --samples-every N");
  if (config->update_after_backward && config->speculative_updates)
    return contradiction("--update-after-backward", "--speculative-updates",
                         "one waits for backward, the other does not; drop one");
  if (config->durability == PEN_CONFIG_DURABILITY_NONE && config->commit_interval != 1)
    return contradiction("--commit-interval", "--durability none",
                         "without durability nothing is committed");
  return check_nvme(config);
}

static int check_generate(const struct pen_config *config)
{
  const struct {
    const char *name;
    bool given;
  } draws[] = {
    { "--temperature", config->temperature != 1 && config->temperature != 0 },
    { "--top-k", config->top_k != 0 },
    { "--top-p", config->top_p != 1 },
  };
  bool greedy = config->greedy || config->temperature == 0;
  for (size_t i = 0; greedy && i < sizeof draws / sizeof draws[0]; i++)
    if (draws[i].given)
      return contradiction(config->greedy ? "--greedy" : "--temperature 0",
                           draws[i].name, "greedy takes the most likely token");
  if (!config->chat && (config->system || config->chat_template))
    return pen_error_set(-PEN_EUSAGE, "--%s has no effect without --chat",
                         config->system ? "system" : "chat-template");
  return check_nvme(config);
}

static int check_eval(const struct pen_config *config)
{
  if (config->dump_logits &&
      config->output_format == PEN_CONFIG_OUTPUT_JSONL)
    return contradiction("--dump-logits", "-o jsonl",
                         "one takes sequences together, the other one by one");
  return check_nvme(config);
}

/* A plan without data is made for sequences of the greatest length. */
static int check_without_data(const struct pen_config *config)
{
  const struct {
    const char *name;
    bool given;
  } options[] = {
    { "refuse-truncation", config->refuse_truncation },
    { "packing", config->packing },
    { "chat-template", config->chat_template != NULL },
    { "assistant-only-loss", config->assistant_only_loss },
    { "completion-only-loss", config->completion_only_loss },
  };
  for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
    if (options[i].given)
      return pen_error_set(-PEN_EUSAGE, "--%s has no effect without --data",
                           options[i].name);
  return 0;
}

static int check_plan(const struct pen_config *config)
{
  if (config->plot && !config->sweep)
    return pen_error_set(-PEN_EUSAGE, "--plot draws a --sweep NAME=VALUE,...");
  if (config->sweep && config->trace)
    return contradiction("--sweep", "--trace", "a timeline is of one plan");
  if (config->nvme_path.n_items &&
      (config->drives || config->drive_read || config->drive_write))
    return contradiction("--nvme-path", "--drives and --drive-read",
                         "the one has been measured, the others are described");
  return config->data ? 0 : check_without_data(config);
}

static int check_bench(const struct pen_config *config)
{
  const char *what = config->bench;
  bool nvme = strcmp(what, "nvme") == 0;
  bool drives = nvme || strcmp(what, "all") == 0;
  if (nvme && !config->nvme_path.n_items)
    return pen_error_set(-PEN_EUSAGE, "bench nvme needs a directory (bench nvme "
                         "DIR, or --nvme-path DIR); a drive is never taken "
                         "unasked");
  bool step = strcmp(what, "step") == 0;
  if (!drives && !step && config->nvme_path.n_items)
    return pen_error_set(-PEN_EUSAGE, "bench %s measures no drive; drop %s", what,
                         config->nvme_path.items[0]);
  bool measures = drives && config->nvme_path.n_items;
  if ((config->tbw && !measures) || (config->model && !measures && !step))
    return pen_error_set(-PEN_EUSAGE, "--%s asks what a drive means to training: "
                         "name one, as bench nvme DIR does",
                         config->tbw ? "tbw" : "model");
  if (!nvme && config->soak)
    return pen_error_set(-PEN_EUSAGE, "--soak is for bench nvme");
  if (!config->soak && config->max_write)
    return pen_error_set(-PEN_EUSAGE, "--max-write of bench needs --soak");
  for (size_t i = 0; i < config->request_sizes.n_items; i++)
    if (pen_option_list_number(&config->request_sizes, i) % REQUEST_STEP)
      return pen_error_set(-PEN_EUSAGE, "--request-size %s is no multiple of "
                           "64KiB", config->request_sizes.items[i]);
  return 0;
}

static int check_format(const struct pen_config *config, uint32_t verb)
{
  int format = config->output_format;
  if (format == PEN_CONFIG_OUTPUT_YAML && verb != PEN_VERB_PLAN)
    return pen_error_set(-PEN_EUSAGE, "-o yaml writes a plan as options; give "
                         "text or json");
  if (format == PEN_CONFIG_OUTPUT_JSONL && verb == PEN_VERB_EVAL)
    return 0;
  if (format > PEN_CONFIG_OUTPUT_YAML && verb != PEN_VERB_BENCH)
    return pen_error_set(-PEN_EUSAGE, "-o jsonl, md and csv are for the rows of "
                         "bench, jsonl for eval too; give text or json");
  return 0;
}

int pen_options_check(const struct pen_config *config, uint32_t verb)
{
  int r = check_format(config, verb);
  if (r < 0)
    return r;
  if (verb == PEN_VERB_PLAN) {
    r = check_plan(config);
    if (r < 0)
      return r;
  }
  if (config->dtype == PEN_CONFIG_DTYPE_FP16 && verb != PEN_VERB_EXPORT)
    return pen_error_set(-PEN_EUSAGE, "--dtype fp16 is for export; nothing is "
                         "computed in it");
  if (config->require_simd && strcmp(config->isa, "scalar") == 0)
    return contradiction("--require-simd", "--isa scalar", "drop one");
  if (verb == PEN_VERB_BENCH && config->bench)
    return check_bench(config);
  r = check_backend(config);
  if (r < 0)
    return r;
  if (verb == PEN_VERB_TRAIN || verb == PEN_VERB_PLAN)
    return check_train(config);
  if (verb == PEN_VERB_GENERATE)
    return check_generate(config);
  if (verb == PEN_VERB_EVAL)
    return check_eval(config);
  return 0;
}
