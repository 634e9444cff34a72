/* verb_train.c: `penstock train`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "io/files.h"
#include "src/cli/options.h"
#include "src/cli/profile.h"
#include "src/cli/settings.h"
#include "src/cli/speech.h"
#include "src/cli/stop.h"
#include "src/cli/verb.h"
#include "src/data/prepare.h"
#include "src/train/train.h"

/* Who reads samples, and the text of the newest. */
struct sample_text {
  struct pen_speech speech;
  struct pen_telling told;
};

/* Samples in words, where somebody knows the model's tokens. */
static int read_sample(void *ctx, const uint32_t *ids, size_t n,
                       const char **ret_text)
{
  struct sample_text *t = ctx;
  bool stopped;
  const char *text;
  if (!pen_speech_has_text(&t->speech))
    return 0;
  pen_telling_done(&t->told);
  int rc = pen_speech_begin(&t->speech, ids, 0);
  if (rc == 0)
    rc = pen_speech_add(&t->speech, ids, n, &text);
  if (rc == 0)
    rc = pen_telling_add(&t->told, text, &stopped);
  if (rc == 0)
    rc = pen_speech_end(&t->speech, &text);
  if (rc == 0)
    rc = pen_telling_add(&t->told, text, &stopped);
  *ret_text = t->told.text;
  return rc;
}

/* The prompt of samples as ids; *ret_ids belongs to the caller. */
static int open_samples(const struct pen_config *config, const char *model,
                        struct sample_text *text, uint32_t **ret_ids,
                        struct pen_train_settings *s)
{
  if (!config->samples_every)
    return 0;
  int rc = pen_speech_open(model, NULL, config->sample_prompt, &text->speech);
  if (rc == 0)
    rc = pen_speech_prompt(&text->speech, config->sample_prompt, ret_ids,
                           &s->n_sample_prompt);
  if (rc == 0 && s->n_sample_prompt == 0)
    rc = pen_error_set(PEN_EUSAGE, "--sample-prompt has no tokens");
  s->sample_prompt = *ret_ids;
  s->read_sample = read_sample;
  s->read_sample_ctx = text;
  return rc;
}

/* Token files of the data, and what was made for them. */
struct prepared {
  char *data, *eval_data;
  char cache[4096], chat_template[4096 + 8];
  size_t existing; /* bytes of cache that were there before */
};

/* A dry run leaves nothing behind, prepared text neither. */
static int prepare(const struct pen_config *config, const char *model,
                   struct prepared *p, struct pen_train_settings *s)
{
  if (config->dry_run)
    pen_settings_temporary("plan", p->cache, sizeof p->cache);
  else
    snprintf(p->cache, sizeof p->cache, "%.3500s/data", config->output_dir);
  p->existing = pen_files_existing(p->cache);
  int rc = pen_settings_tokens(config, config->data, false, model, p->cache,
                               s->stop, &p->data);
  if (rc == 0 && config->eval_data)
    rc = pen_settings_tokens(config, config->eval_data, true, model, p->cache,
                             s->stop, &p->eval_data);
  s->data = p->data;
  s->eval_data = p->eval_data;
  if (p->data && config->chat_template) {
    snprintf(p->chat_template, sizeof p->chat_template,
             "%s" PEN_PREPARE_TEMPLATE_SUFFIX, p->data);
    s->chat_template = p->chat_template;
  }
  return rc;
}

static void forget(const struct pen_config *config, bool failed,
                   struct prepared *p)
{
  if (p->cache[0] && config->dry_run)
    pen_settings_drop_cache(p->cache);
  else if (p->cache[0] && failed)
    pen_files_unmake_dirs(p->cache, p->existing);
  free(p->eval_data);
  free(p->data);
}

int pen_verb_train(const struct pen_config *config)
{
  struct pen_train_settings s = {0};
  struct prepared prepared = {.data = NULL};
  char *model = NULL, *text = NULL;
  struct sample_text samples = {.told = {.text = NULL}};
  uint32_t *sample_prompt = NULL;
  size_t text_bytes;
  struct pen_machine machine;
  bool has_profile = false;
  pen_settings_train(config, &s);
  pen_settings_backend(config, &s.machine);
  s.stop = pen_stop_on_signals();
  int rc = pen_settings_outputs(config);
  if (rc == 0)
    rc = pen_train_check_output(&s);
  if (rc == 0)
    rc = pen_profile_load(config->profile, &has_profile, &machine);
  if (has_profile)
    s.machine.profile = &machine;
  if (rc == 0)
    rc = pen_settings_find_model(config, &model);
  s.model.dir = model;
  if (rc == 0)
    rc = prepare(config, model, &prepared, &s);
  if (rc == 0)
    rc = open_samples(config, model, &samples, &sample_prompt, &s);
  FILE *f = rc == 0 ? open_memstream(&text, &text_bytes) : NULL;
  if (f) {
    pen_options_dump(config, PEN_VERB_TRAIN, f);
    fclose(f);
    s.config_text = text;
  }
  if (rc == 0)
    rc = pen_train(&s);
  forget(config, rc < 0, &prepared);
  pen_speech_close(&samples.speech);
  pen_telling_done(&samples.told);
  free(sample_prompt);
  free(text);
  free(model);
  return rc;
}
