/* speech.c: ids to text and back, by penstock-prepare or byte by byte.
 *
 * Main thread.  Disadvantage: without a tokenizer every byte that is no UTF-8
 * becomes U+FFFD, although a model of bytes may mean it. */
#include "src/cli/speech.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "src/cli/settings.h"
#include "src/data/tokens.h"
#include "src/train/generate.h"

#define BROKEN "\xef\xbf\xbd" /* U+FFFD */

static int open_bytes(bool needs_text, struct pen_speech *speech)
{
  int rc = pen_settings_check_bytes(speech->model);
  speech->has_bytes = rc == 0;
  if (rc == -PEN_EMISMATCH && !needs_text) {
    pen_error_clear();
    return 0;
  }
  return rc;
}

int pen_speech_open(const char *model, const char *chat_template,
                    bool needs_text, struct pen_speech *ret_speech)
{
  uint8_t hash[PEN_SHA256_BYTES];
  *ret_speech = (struct pen_speech){.model = model};
  int rc = pen_tokens_hash_tokenizer(model, hash, &ret_speech->has_tokenizer);
  if (rc < 0)
    return rc;
  if (!ret_speech->has_tokenizer)
    return open_bytes(needs_text, ret_speech);
  rc = pen_prepare_server_open(model, chat_template, &ret_speech->server);
  if (rc == -ENOENT && !needs_text) {
    pen_error_clear();
    return 0;
  }
  return rc;
}

void pen_speech_close(struct pen_speech *speech)
{
  pen_prepare_server_close(&speech->server);
  free(speech->text);
  speech->text = NULL;
}

bool pen_speech_has_text(const struct pen_speech *speech)
{
  return speech->server || speech->has_bytes;
}

static int no_memory(void)
{
  return pen_error_set(PEN_ENOFIT, "no memory for a text");
}

/* Without a prompt the model's begin token is the first one. */
static int begin_alone(const struct pen_speech *speech, uint32_t **ret_ids)
{
  int64_t id;
  int rc = pen_generate_begin_token(speech->model, &id);
  if (rc < 0)
    return rc;
  if (id < 0 && !speech->has_bytes)
    return pen_error_set(PEN_EUSAGE,
                         "%s names no begin token; give --prompt TEXT",
                         speech->model);
  uint32_t *ids = malloc(sizeof *ids);
  if (!ids)
    return no_memory();
  ids[0] = id < 0 ? '\n' : (uint32_t)id;
  *ret_ids = ids;
  return 0;
}

int pen_speech_prompt(struct pen_speech *speech, const char *text,
                      uint32_t **ret_ids, size_t *ret_n)
{
  if (!text) {
    *ret_n = 1;
    return begin_alone(speech, ret_ids);
  }
  if (speech->server)
    return pen_prepare_server_encode(speech->server, text, ret_ids, ret_n);
  size_t n = strlen(text);
  uint32_t *ids = malloc((n ? n : 1) * sizeof *ids);
  if (!ids)
    return no_memory();
  for (size_t i = 0; i < n; i++)
    ids[i] = (unsigned char)text[i];
  *ret_ids = ids;
  *ret_n = n;
  return 0;
}

/* ---- bytes ---- */

/* Bytes of the character that begins with this one; 0: none does. */
static size_t character_bytes(unsigned char first)
{
  return first == 0      ? 0
         : first < 0x80  ? 1
         : first < 0xc2  ? 0
         : first < 0xe0  ? 2
         : first < 0xf0  ? 3
         : first < 0xf5  ? 4
                         : 0;
}

/* The second byte excludes overlong forms, surrogates and what is above
 * U+10FFFF. */
static bool can_follow(const unsigned char *held, size_t n, unsigned char byte)
{
  unsigned char low = 0x80, high = 0xbf;
  if (n == 1) {
    low = held[0] == 0xe0 ? 0xa0 : held[0] == 0xf0 ? 0x90 : low;
    high = held[0] == 0xed ? 0x9f : held[0] == 0xf4 ? 0x8f : high;
  }
  return byte >= low && byte <= high;
}

/* One more byte of the answer; returns the end of what is written to `out`. */
static char *take_byte(struct pen_speech *s, unsigned char byte, char *out)
{
  unsigned char *held = (unsigned char *)s->held;
  if (s->n_held && !can_follow(held, s->n_held, byte)) {
    s->n_held = 0;
    out = stpcpy(out, BROKEN);
  }
  if (!s->n_held && !character_bytes(byte))
    return stpcpy(out, BROKEN);
  held[s->n_held++] = byte;
  if (s->n_held < character_bytes(held[0]))
    return out;
  memcpy(out, held, s->n_held);
  out += s->n_held;
  s->n_held = 0;
  return out;
}

int pen_speech_begin(struct pen_speech *speech, const uint32_t *before,
                     size_t n)
{
  speech->n_held = 0;
  return speech->server ? pen_prepare_server_begin(speech->server, before, n)
                        : 0;
}

int pen_speech_add(struct pen_speech *speech, const uint32_t *ids, size_t n,
                   const char **ret_text)
{
  if (speech->server)
    return pen_prepare_server_add(speech->server, ids, n, ret_text);
  char *text = realloc(speech->text, (n + 1) * 2 * strlen(BROKEN) + 1);
  if (!text)
    return no_memory();
  speech->text = text;
  for (size_t i = 0; i < n && speech->has_bytes; i++)
    text = take_byte(speech, ids[i] < 256 ? (unsigned char)ids[i] : '?', text);
  *text = '\0';
  *ret_text = speech->text;
  return 0;
}

int pen_speech_end(struct pen_speech *speech, const char **ret_text)
{
  if (speech->server)
    return pen_prepare_server_end(speech->server, ret_text);
  *ret_text = speech->n_held ? BROKEN : "";
  speech->n_held = 0;
  return 0;
}

/* ---- telling ---- */

static void tell(struct pen_telling *t, size_t end)
{
  if (t->file && end > t->n_told) {
    fwrite(t->text + t->n_told, 1, end - t->n_told, t->file);
    fflush(t->file);
  }
  if (end > t->n_told)
    t->n_told = end;
}

/* Bytes at the end that the stop text begins with. */
static size_t held_back(const struct pen_telling *t)
{
  size_t n = strlen(t->stop) - 1;
  if (n > t->n)
    n = t->n;
  while (n && memcmp(t->text + t->n - n, t->stop, n) != 0)
    n--;
  return n;
}

int pen_telling_add(struct pen_telling *t, const char *text, bool *ret_stopped)
{
  size_t more = strlen(text);
  char *larger = realloc(t->text, t->n + more + 1);
  if (!larger)
    return no_memory();
  t->text = larger;
  memcpy(t->text + t->n, text, more + 1);
  t->n += more;
  *ret_stopped = false;
  if (!t->stop) {
    tell(t, t->n);
    return 0;
  }
  /* Nothing that was told can be a part of it. */
  char *found = strstr(t->text + t->n_told, t->stop);
  if (found) {
    *found = '\0';
    t->n = (size_t)(found - t->text);
    *ret_stopped = true;
    tell(t, t->n);
  } else {
    tell(t, t->n - held_back(t));
  }
  return 0;
}

void pen_telling_end(struct pen_telling *t)
{
  tell(t, t->n);
}

void pen_telling_done(struct pen_telling *t)
{
  free(t->text);
  *t = (struct pen_telling){.text = NULL};
}
