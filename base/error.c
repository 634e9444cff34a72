/* error.c: the standing failure of each thread.
 *
 * One struct pen_error per thread, in thread-local storage: nothing to free,
 * nothing to lock.  Invariant: code == 0 exactly when text is empty.
 * Disadvantage: a failure that is handled must be cleared by hand, else it
 * hides the next one's text. */
#include "base/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct pen_error standing;

static int is_own(int code) { return code >= PEN_EFORMAT; }

const char *pen_error_describe(int code)
{
  if (code < 0)
    code = -code;
  switch (code) {
#define X(name, number, text)                                                 \
  case name:                                                                  \
    return text;
    PEN_ERRORS(X)
#undef X
  }
  return strerrordesc_np(code) ? strerrordesc_np(code) : "unknown error";
}

/* `described`: the code's meaning is put behind the text. */
static int set(int code, bool described, const char *format, va_list args)
{
  if (code > 0)
    code = -code;
  if (standing.code)
    return code;
  standing.code = code;
  int n = vsnprintf(standing.text, sizeof standing.text, format, args);
  if (described && n >= 0 && (size_t)n < sizeof standing.text)
    snprintf(standing.text + n, sizeof standing.text - (size_t)n, ": %s",
             pen_error_describe(code));
  return code;
}

int pen_error_set(int code, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  code = set(code, !is_own(code < 0 ? -code : code), format, args);
  va_end(args);
  return code;
}

int pen_error_say(int code, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  code = set(code, false, format, args);
  va_end(args);
  return code;
}

int pen_error_context(int code, const char *format, ...)
{
  char rest[PEN_ERROR_TEXT_BYTES];
  memcpy(rest, standing.text, sizeof rest);
  va_list args;
  va_start(args, format);
  int n = vsnprintf(standing.text, sizeof standing.text, format, args);
  va_end(args);
  if (n >= 0 && (size_t)n < sizeof standing.text)
    snprintf(standing.text + n, sizeof standing.text - (size_t)n, ": %s",
             rest[0] ? rest : pen_error_describe(code));
  standing.code = code < 0 ? code : -code;
  return standing.code;
}

const char *pen_error_text(void) { return standing.text; }

int pen_error_standing(void) { return standing.code; }

void pen_error_clear(void)
{
  standing.code = 0;
  standing.text[0] = '\0';
}

void pen_error_take(struct pen_error *ret_error)
{
  *ret_error = standing;
  pen_error_clear();
}

int pen_error_put(const struct pen_error *error)
{
  standing = *error;
  return standing.code;
}

int pen_error_exit_code(int code)
{
  if (code == 0)
    return 0;
  if (code < 0)
    code = -code;
  return code == PEN_EUSAGE ? 2 : code == PEN_ENOFIT ? 3 : 1;
}
