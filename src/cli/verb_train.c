/* verb_train.c: `penstock train`. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "src/cli/options.h"
#include "src/cli/profile.h"
#include "src/cli/settings.h"
#include "src/cli/verb.h"
#include "src/data/prepare.h"
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

int pen_verb_train(const struct pen_config *config)
{
  struct pen_train_settings s = {0};
  char *model = NULL, *data = NULL, *eval_data = NULL, *text = NULL;
  char cache[4096], chat_template[4096 + 8];
  size_t text_bytes;
  struct pen_machine machine;
  bool has_profile = false;
  pen_settings_train(config, &s);
  s.stop = &stop_asked;
  int rc = pen_profile_load(config->profile, &has_profile, &machine);
  if (has_profile)
    s.machine.profile = &machine;
  if (rc == 0)
    rc = pen_model_dir_find(config->model, &model);
  s.model.dir = model;
  /* A dry run leaves nothing behind, prepared text neither. */
  snprintf(cache, sizeof cache, config->dry_run ? "/tmp/penstock-plan-XXXXXX"
                                                : "%.3500s/data",
           config->output_dir);
  if (rc == 0 && config->dry_run && !mkdtemp(cache))
    rc = pen_error_set(PEN_ESTOPPED, "cannot make a folder %s", cache);
  if (rc == 0)
    rc = pen_settings_tokens(config, config->data, false, model, cache, &data);
  if (rc == 0 && config->eval_data)
    rc = pen_settings_tokens(config, config->eval_data, true, model, cache,
                             &eval_data);
  s.data = data;
  s.eval_data = eval_data;
  if (data && config->chat_template) {
    snprintf(chat_template, sizeof chat_template,
             "%s" PEN_PREPARE_TEMPLATE_SUFFIX, data);
    s.chat_template = chat_template;
  }
  FILE *f = rc == 0 ? open_memstream(&text, &text_bytes) : NULL;
  if (f) {
    pen_options_dump(config, PEN_VERB_TRAIN, f);
    fclose(f);
    s.config_text = text;
  }
  catch_signals();
  if (rc == 0)
    rc = pen_train(&s);
  if (config->dry_run)
    pen_settings_drop_cache(cache);
  free(text);
  free(eval_data);
  free(data);
  free(model);
  return rc;
}
