/* prompt.c: standard input, to its end.
 *
 * Says that it waits, since a pipe that nobody closes looks like a program that
 * hangs.  Main thread.  Disadvantage: all of it is in memory before a token is
 * made. */
#include "src/cli/prompt.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"

/* Does anybody mean a prompt by it? */
static bool has_text(void)
{
  struct stat st;
  return fstat(STDIN_FILENO, &st) == 0 &&
         (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode));
}

static int check(const char *text, size_t n)
{
  const char *zero = memchr(text, '\0', n);
  if (ferror(stdin))
    return pen_error_set(PEN_EUSAGE, "standard input cannot be read; give --prompt "
                         "TEXT");
  if (n > PEN_PROMPT_BYTES_MAX)
    return pen_error_set(PEN_EUSAGE, "more than %d MiB on standard input: that is no "
                         "prompt", PEN_PROMPT_BYTES_MAX >> 20);
  if (zero)
    return pen_error_set(PEN_EUSAGE, "standard input has a byte 0 at %zu: a prompt "
                         "is text", (size_t)(zero - text));
  return 0;
}

int pen_prompt_read(char **ret_text)
{
  size_t n = 0, cap = 1 << 16;
  *ret_text = NULL;
  if (!has_text())
    return 0;
  pen_log_info("the prompt is what comes on standard input, to its end; --prompt "
               "TEXT would be taken instead");
  char *text = malloc(cap);
  for (size_t got = 1; text && got && n <= PEN_PROMPT_BYTES_MAX; n += got) {
    if (n + 1 == cap) {
      char *larger = realloc(text, cap *= 2);
      if (!larger)
        free(text);
      text = larger;
    }
    got = text ? fread(text + n, 1, cap - 1 - n, stdin) : 0;
  }
  if (!text)
    return pen_error_set(PEN_ENOFIT, "no memory for the prompt");
  int rc = check(text, n);
  while (n && (text[n - 1] == '\n' || text[n - 1] == '\r'))
    n--;
  text[n] = '\0';
  if (rc == 0 && n) {
    *ret_text = text;
    return 0;
  }
  if (rc == 0)
    pen_log_info("nothing came there: without a prompt, then");
  free(text);
  return rc;
}
