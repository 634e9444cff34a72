/* log.c: one line, one write(2).
 *
 * A line is formatted on the caller's stack and written whole, which is all
 * the locking lines need.  Disadvantage: a line longer than the buffer is cut
 * (marked "..."). */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 2048
#define LEVEL_UNSET (-1)

/* Partner accesses: pen_log_set_level stores, current_level loads; relaxed,
 * since no other data hangs on them. */
static atomic_int wanted_level = LEVEL_UNSET;
static void (*_Atomic before_line)(void);

static const char *const names[] = { "error", "warn", "info", "debug" };
static const char *const prefixes[] = { "error: ", "warning: ", "", "debug: " };

bool pen_log_level_parse(const char *text, enum pen_log_level *ret_level)
{
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(text, names[i]) == 0) {
      *ret_level = (enum pen_log_level)i;
      return true;
    }
  return false;
}

static int current_level(void)
{
  int level = atomic_load_explicit(&wanted_level, memory_order_relaxed);
  if (level != LEVEL_UNSET)
    return level;
  enum pen_log_level from_env = PEN_LOG_INFO;
  const char *text = getenv("PEN_LOG");
  if (text)
    pen_log_level_parse(text, &from_env);
  int unset = LEVEL_UNSET; /* a pen_log_set_level meanwhile stays */
  atomic_compare_exchange_strong(&wanted_level, &unset, (int)from_env);
  return unset == LEVEL_UNSET ? (int)from_env : unset;
}

void pen_log_set_level(enum pen_log_level level)
{
  atomic_store_explicit(&wanted_level, (int)level, memory_order_relaxed);
}

bool pen_log_enabled(enum pen_log_level level)
{
  return (int)level <= current_level();
}

void pen_log_set_before(void (*before)(void))
{
  atomic_store(&before_line, before);
}

static void write_all(const char *text, size_t n_bytes)
{
  while (n_bytes) {
    ssize_t n = write(STDERR_FILENO, text, n_bytes);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return; /* nowhere left to tell it */
    text += n;
    n_bytes -= (size_t)n;
  }
}

void pen_log(enum pen_log_level level, const char *format, ...)
{
  if (!pen_log_enabled(level))
    return;
  int kept_errno = errno;
  char line[LINE_BYTES];
  size_t n = strlen(prefixes[level]);
  memcpy(line, prefixes[level], n);
  va_list args;
  va_start(args, format);
  int written = vsnprintf(line + n, sizeof line - n, format, args);
  va_end(args);
  if (written < 0)
    written = 0;
  if ((size_t)written >= sizeof line - n) {
    n = sizeof line - 1;
    memcpy(line + n - 3, "...", 3);
  } else {
    n += (size_t)written;
  }
  line[n++] = '\n';
  void (*before)(void) = atomic_load(&before_line);
  if (before)
    before();
  write_all(line, n);
  errno = kept_errno;
}
