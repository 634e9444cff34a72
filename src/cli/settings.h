/* settings.h: the option table's values as the settings of src/train. */
#ifndef PEN_SRC_CLI_SETTINGS_H
#define PEN_SRC_CLI_SETTINGS_H

#include "src/cli/config.h"
#include "src/train/settings.h"

/* What eval, generate and train have in common; strings are borrowed from the
 * configuration. */
void pen_settings_model(const struct pen_config *config,
                        struct pen_model_settings *ret_model);
void pen_settings_machine(const struct pen_config *config,
                          struct pen_machine_settings *ret_machine);

/* What computes, for verbs that can compute elsewhere than on the host. */
void pen_settings_backend(const struct pen_config *config,
                          struct pen_machine_settings *machine);
/* All of a training run but its model's place, its data and its stop flag. */
void pen_settings_train(const struct pen_config *config,
                        struct pen_train_settings *ret_settings);

/* -PEN_EUSAGE where --trace, --plot or --dump-logits would replace a file that
 * is none of theirs, such as the data, where --output-dir lies in a folder of data,
 * whose files what a run writes would become, or where more than the last name of
 * an --nvme-path is missing. */
int pen_settings_outputs(const struct pen_config *config);

/* The directory that --model names, as pen_model_dir_find does; -PEN_EUSAGE for a
 * file, which has no weights beside it.  Caller frees. */
int pen_settings_find_model(const struct pen_config *config, char **ret_path);

/* Are the tokens of a model without a tokenizer bytes?  They are with a
 * vocabulary of 256; else -PEN_EMISMATCH.  model: a directory or config.json. */
int pen_settings_check_bytes(const char *model);

/* The token file for `data`: itself if it is one, or raw bytes, which is said, for
 * a model of bytes without a tokenizer; text and records are prepared with the model's tokenizer,
 * as the options for conversations say, into cache_dir first.  held_out: of a
 * directory of train and valid files the latter.  Options that would have no
 * effect are refused.  *stop as pen_prepare_run's.  Caller frees. */
int pen_settings_tokens(const struct pen_config *config, const char *data,
                        bool held_out, const char *model_dir,
                        char *cache_dir,
                        const volatile sig_atomic_t *stop, char **ret_path);
/* path [bytes] = the name of a folder under $TMPDIR, or /tmp, that
 * pen_settings_tokens makes when it first puts a file into it. */
void pen_settings_temporary(const char *name, char *path, size_t bytes);
/* Makes it: only now the last letters of its name are known.  Any other path:
 * does nothing. */
int pen_settings_make_temporary(char *path);
/* Removes a cache directory and the token files in it. */
void pen_settings_drop_cache(const char *cache_dir);

#endif
