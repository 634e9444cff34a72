/* dataset.c: token file and model brought together.
 *
 * Main thread, at start.  Disadvantage: config.json is read here and again when
 * the model is opened. */
#include "src/train/dataset.h"

#include <stdio.h>

#include "base/log.h"

#define MAX_LENGTH_AUTO 1024

uint32_t pen_dataset_length(const struct pen_model_config *config)
{
  return config->max_positions < MAX_LENGTH_AUTO
             ? (uint32_t)config->max_positions
             : MAX_LENGTH_AUTO;
}

int pen_dataset_open(const char *path, const char *model_dir,
                     struct pen_sequences_options *cut,
                     struct pen_dataset *ret_dataset)
{
  uint8_t hash[PEN_SHA256_BYTES];
  bool has_hash = false;
  struct pen_model_config config = {0};
  char file[4096], note[256];
  snprintf(file, sizeof file, "%s/config.json", model_dir);
  int rc = pen_model_config_load(file, &config);
  if (rc == 0)
    rc = pen_tokens_hash_tokenizer(model_dir, hash, &has_hash);
  if (rc < 0)
    return rc;
  if (cut->max_length == 0)
    cut->max_length = pen_dataset_length(&config);
  if (cut->max_length > config.max_positions)
    pen_log_warn("--max-length %u is more than the %zu positions this model "
                 "was made for", cut->max_length, config.max_positions);
  struct pen_tokens_options options = {
      .vocab_size = (uint32_t)config.vocab_size,
      .tokenizer_sha256 = has_hash ? hash : NULL};
  rc = pen_tokens_open(path, &options, &ret_dataset->tokens);
  /* All of it once, now: a bad id or byte must not end a run in its middle, and
   * a resumed run must know its data again. */
  if (rc == 0)
    rc = pen_tokens_verify(ret_dataset->tokens);
  if (rc == 0)
    rc = pen_sequences_create(ret_dataset->tokens, cut,
                              &ret_dataset->sequences);
  if (rc < 0)
    return rc;
  if (pen_sequences_note(ret_dataset->sequences, note, sizeof note))
    pen_log_warn("%s: %s", cut->name ? cut->name : path, note);
  return 0;
}

void pen_dataset_close(struct pen_dataset *dataset)
{
  pen_sequences_free(&dataset->sequences);
  pen_tokens_close(&dataset->tokens);
}
