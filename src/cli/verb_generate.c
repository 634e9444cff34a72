/* verb_generate.c: `penstock generate`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/json_write.h"
#include "src/cli/settings.h"
#include "src/cli/verb.h"
#include "src/model/model_dir.h"
#include "src/data/prepare.h"
#include "src/data/tokens.h"
#include "src/train/generate.h"

/* What the tokens mean: a tokenizer's text, or bytes. */
struct speech {
  const char *model;
  bool has_tokenizer;
};

static int bytes_to_ids(const char *text, uint32_t **ret_ids, size_t *ret_n)
{
  size_t n = strlen(text);
  uint32_t *ids = malloc((n ? n : 1) * sizeof *ids);
  if (!ids)
    return pen_error_set(PEN_ENOFIT, "no memory for the prompt");
  for (size_t i = 0; i < n; i++)
    ids[i] = (unsigned char)text[i];
  *ret_ids = ids;
  *ret_n = n;
  return 0;
}

static int ids_to_text(const struct speech *speech, const uint32_t *ids,
                       size_t n, char **ret_text)
{
  if (speech->has_tokenizer)
    return pen_prepare_decode(speech->model, ids, n, ret_text);
  char *text = malloc(n + 1);
  if (!text)
    return pen_error_set(PEN_ENOFIT, "no memory for the text");
  for (size_t i = 0; i < n; i++)
    text[i] = ids[i] < 256 ? (char)ids[i] : '?';
  text[n] = '\0';
  *ret_text = text;
  return 0;
}

/* Without a prompt the model's begin token is the first of the new tokens. */
static int begin_alone(const struct speech *speech, uint32_t **ret_ids)
{
  int64_t id;
  int rc = pen_generate_begin_token(speech->model, &id);
  if (rc < 0)
    return rc;
  if (id < 0 && speech->has_tokenizer)
    return pen_error_set(PEN_EUSAGE,
                         "%s names no begin token; give --prompt TEXT",
                         speech->model);
  uint32_t *ids = malloc(sizeof *ids);
  if (!ids)
    return pen_error_set(PEN_ENOFIT, "no memory for the prompt");
  ids[0] = id < 0 ? '\n' : (uint32_t)id;
  *ret_ids = ids;
  return 0;
}

static int print_json(const uint32_t *ids, size_t n, size_t n_prompt,
                      const char *text)
{
  const char *json;
  size_t bytes;
  struct pen_json_writer w;
  pen_json_writer_init(&w, NULL, 0, false);
  pen_json_begin_object(&w, NULL);
  pen_json_put_u64(&w, "prompt_tokens", n_prompt);
  pen_json_begin_array(&w, "ids");
  for (size_t i = 0; i < n; i++)
    pen_json_put_u64(&w, NULL, ids[i]);
  pen_json_end_array(&w);
  if (text)
    pen_json_put_string(&w, "text", text);
  pen_json_end_object(&w);
  int rc = pen_json_finish(&w, &json, &bytes);
  if (rc == 0)
    puts(json);
  pen_json_writer_done(&w);
  return rc;
}

int pen_verb_generate(const struct pen_config *config)
{
  struct pen_generate_settings s = {.max_new_tokens = config->max_new_tokens,
                                    .greedy = config->greedy,
                                    .temperature = config->temperature,
                                    .seed = config->seed};
  uint8_t hash[PEN_SHA256_BYTES];
  struct speech speech = {0};
  char *model = NULL, *text = NULL;
  uint32_t *prompt = NULL, *ids = NULL;
  size_t n = 0, shown = 0;
  pen_settings_model(config, &s.model);
  pen_settings_machine(config, &s.machine);
  int rc = pen_model_dir_find(config->model, &model);
  s.model.dir = speech.model = model;
  if (rc == 0)
    rc = pen_tokens_hash_tokenizer(model, hash, &speech.has_tokenizer);
  if (rc == 0 && !config->prompt) {
    rc = begin_alone(&speech, &prompt);
    s.n_prompt = 1;
    s.max_new_tokens--;
  } else if (rc == 0) {
    rc = speech.has_tokenizer
             ? pen_prepare_encode(model, config->prompt, &prompt, &s.n_prompt)
             : bytes_to_ids(config->prompt, &prompt, &s.n_prompt);
    shown = s.n_prompt;
  }
  if (rc == 0 && s.n_prompt == 0)
    rc = pen_error_set(PEN_EUSAGE, "--prompt \"%s\" has no tokens",
                       config->prompt);
  s.prompt = prompt;
  if (rc == 0)
    rc = pen_generate(&s, &ids, &n);
  /* Ids are worth having where the text tool is not installed. */
  if (rc == 0 && ids_to_text(&speech, ids, n, &text) < 0 &&
      config->output_format == PEN_CONFIG_OUTPUT_JSON)
    pen_error_clear();
  if (rc == 0)
    rc = pen_error_standing();
  if (rc == 0 && config->output_format == PEN_CONFIG_OUTPUT_JSON)
    rc = print_json(ids, n, shown, text);
  else if (rc == 0)
    puts(text);
  free(text);
  free(ids);
  free(prompt);
  free(model);
  return rc;
}
