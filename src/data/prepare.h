/* prepare.h: have text turned into a token file by the tool penstock-prepare.
 *
 * The tool is Python (docs/FORMATS.md); this side finds it, runs it and passes
 * on what it says.  Nothing here is called while training runs; prepare_server.h
 * keeps the tool running. */
#ifndef PEN_SRC_DATA_PREPARE_H
#define PEN_SRC_DATA_PREPARE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the tool is: $PENSTOCK_PREPARE, else .venv/bin/penstock-prepare in the
 * folder of the running program or one above it, else on PATH.  Writes it to
 * ret_path[path_bytes].  -ENOENT, saying how to install it, where there is
 * none. */
int pen_prepare_find(char *ret_path, size_t path_bytes);

/* Sets the error of a tool that is there but could not be started, and returns
 * `error`, a negative errno. */
int pen_prepare_cannot_run(const char *tool, int error);

/* Runs the tool with `arguments` (ended by NULL, without the program name) and
 * waits.  Once *stop is not 0 the tool is ended, which leaves nothing half-written,
 * and the answer is -PEN_ESTOPPED; NULL: never.  On success the lines it wrote to standard error (what it found, its
 * summary) are in ret_note[note_bytes], which may be NULL; of more than fit, the
 * first ones.  On failure the last line is the error text: -PEN_EFORMAT where the tool refused the data (exit 1),
 * -PEN_EUSAGE for its exit 2, -ENOENT where it is not installed. */
int pen_prepare_run(const char *const *arguments, const volatile sig_atomic_t *stop,
                    char *ret_note, size_t note_bytes);

struct pen_prepare_request {
  const char *data;       /* text file, directory, JSON/JSONL/Parquet records */
  const char *tokenizer;  /* model directory or tokenizer.json */
  const char *cache_dir;  /* made where missing */
  const char *chat_template; /* file or name; NULL: the model's own.  Its text is
                                left beside the token file, as PATH.jinja */
  bool completion_only;   /* only the completion's tokens are targets */
  bool assistant_only;    /* only the assistant's tokens are targets */
  bool choices;           /* questions with choices are taken, and what scores
                             them is left beside the token file, as PATH.choices */
  bool held_out;          /* of a directory of train and valid files the latter */
  const volatile sig_atomic_t *stop; /* as pen_prepare_run's */
};

#define PEN_PREPARE_TEMPLATE_SUFFIX ".jinja"
#define PEN_PREPARE_CHOICES_SUFFIX ".choices"

/* The token file of `request` in cache_dir, made if it is not there yet: its
 * name is a hash of the data's path, size and time, the tokenizer and what else
 * of the model the tool reads, the chat template and the options.  Writes the
 * path to ret_path[path_bytes] and what the tool said to ret_note (may be NULL;
 * "" where the file was there). */
int pen_prepare_cached(const struct pen_prepare_request *request, char *ret_path,
                       size_t path_bytes, char *ret_note, size_t note_bytes);

#endif
