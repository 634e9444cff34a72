/* state.c: the table of state formats, and where their arrays lie.
 *
 * Pure functions, any thread.  Disadvantage: arrays follow one another without
 * padding, so those of a short tile share cache lines. */
#include "kernels/state.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"

/* Files of state name their format by its place: new ones go to the end. */
static const struct pen_state_format *const rows[] = {&pen_state_fp32};

#define N_ROWS (sizeof rows / sizeof *rows)

const struct pen_state_format *pen_state_row(size_t number)
{
  return number < N_ROWS ? rows[number] : NULL;
}

size_t pen_state_number(const struct pen_state_format *format)
{
  size_t i = 0;
  while (rows[i] != format)
    i++;
  return i;
}

int pen_state_find(const char *name, const struct pen_state_format **ret_format)
{
  char names[128] = "";
  for (size_t i = 0; i < N_ROWS; i++) {
    if (strcmp(rows[i]->name, name) == 0) {
      *ret_format = rows[i];
      return 0;
    }
    strcat(strcat(names, i ? ", " : ""), rows[i]->name);
  }
  return pen_error_set(PEN_EUSAGE, "there is no state format \"%.64s\"; there "
                       "are: %s", name, names);
}

static size_t array_bytes(const struct pen_state_format *format, size_t i,
                          size_t elems)
{
  assert(elems % PEN_STATE_GROUP_ELEMS == 0);
  return elems / PEN_STATE_GROUP_ELEMS * format->arrays[i].group_bytes;
}

size_t pen_state_bytes(const struct pen_state_format *format, size_t elems)
{
  size_t bytes = 0;
  for (size_t i = 0; i < format->n_arrays; i++)
    bytes += array_bytes(format, i, elems);
  return bytes;
}

void *pen_state_at(const struct pen_state_format *format,
                   const struct pen_state_part *part, size_t i)
{
  size_t at = array_bytes(format, i, part->begin);
  for (size_t k = 0; k < i; k++)
    at += array_bytes(format, k, part->elems);
  return (char *)part->arrays + at;
}
