/* error.h: the one way a failure is told, from where it happens to the user. */
#ifndef PEN_BASE_ERROR_H
#define PEN_BASE_ERROR_H

#include <stddef.h>

/* penstock's own codes.  System failures keep their errno; these start above
 * every errno so that one int carries both.  Functions return 0 or the
 * NEGATIVE of one of these (or of an errno). */
#define PEN_ERRORS(X)                                                         \
  X(PEN_EFORMAT, 4001, "malformed input")                                     \
  X(PEN_EMISMATCH, 4002, "parts do not fit together")                         \
  X(PEN_EUNSUPPORTED, 4003, "not supported")                                  \
  X(PEN_ECORRUPT, 4004, "stored bytes are not what was written")              \
  X(PEN_EUSAGE, 4005, "wrong usage")              /* exit code 2 */           \
  X(PEN_ENOFIT, 4006, "does not fit")             /* exit code 3 */           \
  X(PEN_ESHORT, 4007, "unexpected end of file")                               \
  X(PEN_ESCHEDULE, 4008, "schedule is not safe")                              \
  X(PEN_ESTOPPED, 4009, "stopped on request")                                 \
  X(PEN_ENONFINITE, 4010, "non-finite numbers")                               \
  X(PEN_EDEVICE, 4011, "the device failed")

enum pen_error_code {
#define X(name, number, text) name = number,
  PEN_ERRORS(X)
#undef X
};

#define PEN_ERROR_TEXT_BYTES 1024

/* A failure that travels between threads by value. */
struct pen_error {
  int code; /* 0: none, else negative */
  char text[PEN_ERROR_TEXT_BYTES];
};

/* Records a failure for the calling thread and returns `code` (negative; a
 * positive one is negated).  The text says what was tried, on what, with which
 * numbers, and what the user can do; for an errno code ": strerror" is added.
 * The first failure wins: while a text stands, a further call only returns its
 * code.  Callers that only pass a failure on do not call this. */
int pen_error_set(int code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same for an errno code whose meaning the text says itself: nothing is
 * added. */
int pen_error_say(int code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts "context: " in front of the standing text; returns `code`. */
int pen_error_context(int code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The calling thread's standing text; "" when there is none.  Borrowed until
 * this thread's next pen_error_ call. */
const char *pen_error_text(void);

/* The calling thread's standing code (negative), 0 when there is none. */
int pen_error_standing(void);

/* Forgets the calling thread's standing failure: it was handled. */
void pen_error_clear(void);

/* Moves the standing failure out of this thread (to be carried to another). */
void pen_error_take(struct pen_error *ret_error);

/* Makes `error` this thread's standing failure, replacing any; returns its
 * code. */
int pen_error_put(const struct pen_error *error);

/* Static description of a code: own text or strerror.  Never NULL. */
const char *pen_error_describe(int code);

/* The process exit code a failure asks for: 2 usage, 3 does not fit, else 1. */
int pen_error_exit_code(int code);

#endif
