/* speech.h: what a model's tokens mean: a tokenizer's text, or bytes where there
 * is no tokenizer; and an answer told as it comes. */
#ifndef PEN_SRC_CLI_SPEECH_H
#define PEN_SRC_CLI_SPEECH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "src/data/prepare_server.h"

struct pen_speech {
  const char *model;                 /* borrowed */
  bool has_tokenizer;
  bool has_bytes;                    /* there is none, and ids are bytes */
  struct pen_prepare_server *server; /* NULL: bytes, or no text at all */
  char held[4];                      /* bytes of a character not whole yet */
  size_t n_held;
  char *text;                        /* of the newest call */
};

/* needs_text: without the tool that knows the tokenizer, or for a model that has
 * none and whose ids are no bytes, nothing can be done; else ids are worth having
 * alone, and all text is "".  After any return
 * pen_speech_close is right. */
int pen_speech_open(const char *model, const char *chat_template,
                    bool needs_text, struct pen_speech *ret_speech);
void pen_speech_close(struct pen_speech *speech);
/* False: texts are "" since nobody can read the ids. */
bool pen_speech_has_text(const struct pen_speech *speech);

/* Ids of a prompt; NULL: the model's begin token alone.  The caller frees. */
int pen_speech_prompt(struct pen_speech *speech, const char *text,
                      uint32_t **ret_ids, size_t *ret_n);

/* What ids that follow `before` add to an answer, in whole UTF-8 characters;
 * borrowed until the next call. */
int pen_speech_begin(struct pen_speech *speech, const uint32_t *before,
                     size_t n);
int pen_speech_add(struct pen_speech *speech, const uint32_t *ids, size_t n,
                   const char **ret_text);
int pen_speech_end(struct pen_speech *speech, const char **ret_text);

/* An answer on its way to a file, ended before a stop text.  What may be the
 * beginning of one is held back until that is known. */
struct pen_telling {
  const char *stop; /* borrowed; NULL: none */
  FILE *file;       /* NULL: only collected */
  char *text;       /* all of it so far */
  size_t n, n_told;
};
int pen_telling_add(struct pen_telling *t, const char *text, bool *ret_stopped);
/* Tells what was held back. */
void pen_telling_end(struct pen_telling *t);
void pen_telling_done(struct pen_telling *t);

#endif
