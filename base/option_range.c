/* option_range.c: lists of numbers, in which ranges stand for their members.
 *
 * Disadvantage: a size that begins with a digit is all that is a number here;
 * words are the caller's. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/option.h"
#include "base/size.h"

#define LONGEST_NUMBER 32

uint64_t pen_option_list_number(const struct pen_option_list *list, size_t i)
{
  return strtoull(list->items[i], NULL, 10);
}

/* The n characters at `text`. */
static bool read_number(const char *text, size_t n, bool size,
                        uint64_t *ret_number)
{
  char copy[LONGEST_NUMBER];
  if (n == 0 || n >= sizeof copy || !isdigit((unsigned char)*text))
    return false;
  memcpy(copy, text, n);
  copy[n] = '\0';
  if (size) {
    bool good = pen_size_parse(copy, ret_number) == 0;
    if (!good)
      pen_error_clear();
    return good;
  }
  char *end;
  errno = 0;
  *ret_number = strtoull(copy, &end, 10);
  return !*end && !errno;
}

/* The next member; false where there is none. */
static bool advance(char how, uint64_t step, uint64_t *number)
{
  return how == '*' ? step > 1 && *number > 0 &&
                          !__builtin_mul_overflow(*number, step, number)
                    : step > 0 && !__builtin_add_overflow(*number, step, number);
}

bool pen_option_range(const char *text, bool sizes,
                      uint64_t ret_numbers[PEN_OPTION_NUMBERS_MAX],
                      size_t *n_numbers)
{
  size_t n_first = strcspn(text, "-");
  uint64_t number, last, step = 1;
  char how = '+';
  if (!read_number(text, n_first, sizes, &number))
    return false;
  last = number;
  if (text[n_first]) {
    const char *end = text + n_first + 1;
    size_t n_last = strcspn(end, "+*");
    if (!read_number(end, n_last, sizes, &last) || last < number)
      return false;
    how = end[n_last] ? end[n_last] : '+';
    if (end[n_last] && !read_number(end + n_last + 1, strlen(end + n_last + 1),
                                    sizes && how == '+', &step))
      return false;
    if (how == '*' ? step < 2 || number == 0 : step == 0)
      return false;
  }
  do {
    if (*n_numbers == PEN_OPTION_NUMBERS_MAX)
      return false;
    ret_numbers[(*n_numbers)++] = number;
  } while (advance(how, step, &number) && number <= last);
  return true;
}
