/* log.h: lines to standard error, by level. */
#ifndef PEN_BASE_LOG_H
#define PEN_BASE_LOG_H

#include <stdbool.h>

/* Libraries use debug only; what a user must know is returned as an error
 * (base/error.h) or printed by src/train and src/cli. */
enum pen_log_level {
  PEN_LOG_ERROR,
  PEN_LOG_WARN,
  PEN_LOG_INFO,
  PEN_LOG_DEBUG,
};

/* Lines above `level` are dropped.  Until the first call the level comes from
 * the environment's PEN_LOG (error, warn, info, debug), else info. */
void pen_log_set_level(enum pen_log_level level);

/* Whether a line of this level would be written: guard for costly arguments. */
bool pen_log_enabled(enum pen_log_level level);

/* Reads a level's name; false, *ret untouched, for any other text. */
bool pen_log_level_parse(const char *text, enum pen_log_level *ret_level);

/* Writes one line (a newline is added; error and warn lines begin with
 * "error: ", "warning: ", debug lines with "debug: ") with one write(2), so
 * that lines of several threads never mix.  Lines beyond 2 KiB are cut.
 * Safe from any thread; keeps errno. */
void pen_log(enum pen_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define pen_log_error(...) pen_log(PEN_LOG_ERROR, __VA_ARGS__)
#define pen_log_warn(...) pen_log(PEN_LOG_WARN, __VA_ARGS__)
#define pen_log_info(...) pen_log(PEN_LOG_INFO, __VA_ARGS__)
#define pen_log_debug(...) pen_log(PEN_LOG_DEBUG, __VA_ARGS__)

/* Called before a line goes out, by the thread that logs, with no lock held:
 * the progress line of a terminal uses it to clear itself.  NULL: none. */
void pen_log_set_before(void (*before)(void));

#endif
