/* verb_train.c: `penstock train`. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "src/cli/options.h"
#include "src/cli/settings.h"
#include "src/cli/verb.h"
#include "src/model/model_dir.h"
#include "src/train/train.h"

static volatile sig_atomic_t stop_asked;

/* The first Ctrl-C finishes the step and saves; the next one ends at once. */
static void on_signal(int number)
{
  stop_asked = 1;
  signal(number, SIG_DFL);
}

static void catch_signals(void)
{
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

static bool was_given(const struct pen_config *c, const char *name)
{
  return pen_option_source(c->options, name) != PEN_OPTION_DEFAULT;
}

static void fill(const struct pen_config *c, struct pen_train_settings *s)
{
  pen_settings_model(c, &s->model);
  pen_settings_machine(c, &s->machine);
  s->output_dir = c->output_dir;
  s->resume = c->resume;
  s->overwrite = c->overwrite;
  s->dry_run = c->dry_run;
  s->max_length = (uint32_t)c->max_length;
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
  s->durable = c->durability == PEN_CONFIG_DURABILITY_STEP;
  s->commit_interval = c->commit_interval;
  s->discard_state = c->state_after_run == PEN_CONFIG_STATE_DISCARD;
  s->trace = c->trace;
  s->gave_max_length = was_given(c, "max-length") && c->max_length;
  s->gave_batch = was_given(c, "per-device-train-batch-size");
  s->gave_accumulation = was_given(c, "gradient-accumulation-steps");
  s->gave_dtype = was_given(c, "dtype");
  s->gave_gemm = was_given(c, "gemm");
  s->gave_seed = was_given(c, "seed");
  s->stop = &stop_asked;
}

/* The enums of the two sides count alike. */
_Static_assert((int)PEN_CONFIG_SCHEDULE_CONSTANT == (int)PEN_LR_CONSTANT &&
                   (int)PEN_CONFIG_SCHEDULE_LINEAR == (int)PEN_LR_LINEAR &&
                   (int)PEN_CONFIG_SCHEDULE_COSINE == (int)PEN_LR_COSINE &&
                   (int)PEN_CONFIG_SCHEDULE_WSD == (int)PEN_LR_WSD,
               "schedules");

int pen_verb_train(const struct pen_config *config)
{
  struct pen_train_settings s = {0};
  char *model = NULL, *data = NULL, *eval_data = NULL, *text = NULL;
  char cache[4096];
  size_t text_bytes;
  fill(config, &s);
  int rc = pen_model_dir_find(config->model, &model);
  s.model.dir = model;
  snprintf(cache, sizeof cache, "%.3500s/data", config->output_dir);
  if (rc == 0)
    rc = pen_settings_tokens(config->data, model, cache, &data);
  if (rc == 0 && config->eval_data)
    rc = pen_settings_tokens(config->eval_data, model, cache, &eval_data);
  s.data = data;
  s.eval_data = eval_data;
  FILE *f = rc == 0 ? open_memstream(&text, &text_bytes) : NULL;
  if (f) {
    pen_options_dump(config, PEN_VERB_TRAIN, f);
    fclose(f);
    s.config_text = text;
  }
  catch_signals();
  if (rc == 0)
    rc = pen_train(&s);
  free(text);
  free(eval_data);
  free(data);
  free(model);
  return rc;
}
