/* option_text.c: help and dump, both from the table.
 *
 * Options of one group stand together in the table.  Disadvantage: the help's
 * columns are fixed, it does not ask how wide the terminal is. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "base/size.h"

#define HELP_COLUMN 38

static const void *value_of(const struct pen_options *options,
                            const struct pen_option *option)
{
  return (const char *)options->values + option->offset;
}

static const char *kind_of(const struct pen_option *option)
{
  static const char *const kinds[] = {
    [PEN_OPTION_STRING] = "TEXT", [PEN_OPTION_LIST] = "A[,B]",
    [PEN_OPTION_COUNTS] = "N[,N-N*2]", [PEN_OPTION_SIZES] = "SIZE[,SIZE-SIZE*2]",
    [PEN_OPTION_U64] = "N",       [PEN_OPTION_DOUBLE] = "X",
    [PEN_OPTION_SIZE] = "SIZE",   [PEN_OPTION_RATE] = "SIZE/s",
    [PEN_OPTION_BOOL] = "",       [PEN_OPTION_ENUM] = "",
  };
  if (option->type == PEN_OPTION_STRING && option->words)
    return "";
  return option->metavar ? option->metavar : kinds[option->type];
}

/* "-b, --name auto|N"; returns the columns used. */
static int put_form(FILE *f, const struct pen_option *option)
{
  int n = option->letter ? fprintf(f, "  -%c, ", option->letter)
                         : fprintf(f, "      ");
  n += fprintf(f, "--%s", option->name);
  const char *separator = " ";
  for (const struct pen_option_word *w = option->words; w && w->name; w++) {
    n += fprintf(f, "%s%s", separator, w->name);
    separator = "|";
  }
  if (*kind_of(option))
    n += fprintf(f, "%s%s", separator, kind_of(option));
  return n;
}

static void put_help_line(FILE *f, const struct pen_option *option,
                          bool required)
{
  int n = put_form(f, option);
  if (n >= HELP_COLUMN)
    n = (fputc('\n', f), 0);
  fprintf(f, "%*s%s", HELP_COLUMN - n, "", option->help);
  if (required)
    fputs(" (required)", f);
  if (option->standard && option->type != PEN_OPTION_BOOL)
    fprintf(f, " [%s]", option->standard);
  else if (option->standard && strcmp(option->standard, "true") == 0)
    fprintf(f, " [true; --no-%s]", option->name);
  if (option->aliases) {
    fputs(" (also", f);
    for (const char *p = option->aliases; *p;) {
      size_t length = strcspn(p, ",");
      fprintf(f, " --%.*s", (int)length, p);
      p += length + (p[length] == ',');
    }
    fputc(')', f);
  }
  fputc('\n', f);
}

void pen_option_help(const struct pen_options *options, FILE *f)
{
  const char *group = "";
  for (size_t i = 0; i < options->n_options; i++) {
    const struct pen_option *option = &options->table[i];
    if (!(option->verbs & options->verb))
      continue;
    const char *own = option->group ? option->group : "general";
    if (strcmp(own, group))
      fprintf(f, "\n%s:\n", own);
    group = own;
    put_help_line(f, option, option->required & options->verb);
  }
}

static void put_quoted(FILE *f, const char *text)
{
  fputc('"', f);
  for (const unsigned char *p = (const unsigned char *)text; *p; p++)
    if (*p == '"' || *p == '\\')
      fprintf(f, "\\%c", *p);
    else if (*p < 0x20 || *p == 0x7f)
      fprintf(f, "\\u%04x", *p);
    else
      fputc(*p, f);
  fputc('"', f);
}

/* The shortest form that strtod reads back to the same bits. */
static void put_double(FILE *f, double value)
{
  char text[32];
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) == value)
      break;
  }
  fputs(text, f);
}

static const char *word_of(const struct pen_option *option, uint64_t value)
{
  for (const struct pen_option_word *w = option->words; w && w->name; w++)
    if (w->value == value)
      return w->name;
  return NULL;
}

static void put_number(FILE *f, const struct pen_option *option,
                       const void *value)
{
  char text[PEN_SIZE_TEXT_BYTES + 8];
  if (option->type == PEN_OPTION_DOUBLE) {
    double real = *(const double *)value;
    for (const struct pen_option_word *w = option->words; w && w->name; w++)
      if ((double)w->value == real) {
        fputs(w->name, f);
        return;
      }
    put_double(f, real);
    return;
  }
  uint64_t number = option->type == PEN_OPTION_ENUM
                        ? (uint64_t)*(const int *)value
                        : *(const uint64_t *)value;
  const char *word = word_of(option, number);
  if (word) {
    fputs(word, f);
  } else if (option->type == PEN_OPTION_SIZE ||
             option->type == PEN_OPTION_RATE) {
    pen_size_format_exact(number, text);
    fputs(text, f);
    fputs(option->type == PEN_OPTION_RATE ? "/s" : "", f);
  } else {
    fprintf(f, "%" PRIu64, number);
  }
}

static void put_list(FILE *f, const struct pen_option_list *list)
{
  fputc('[', f);
  for (size_t i = 0; i < list->n_items; i++) {
    fputs(i ? ", " : "", f);
    put_quoted(f, list->items[i]);
  }
  fputc(']', f);
}

static void dump_one(FILE *f, const struct pen_option *option,
                     const void *value)
{
  if (option->type == PEN_OPTION_STRING && !*(char *const *)value)
    return; /* not given */
  fprintf(f, "%s: ", option->name);
  switch (option->type) {
  case PEN_OPTION_STRING:
    put_quoted(f, *(char *const *)value);
    break;
  case PEN_OPTION_LIST:
  case PEN_OPTION_COUNTS:
  case PEN_OPTION_SIZES:
    put_list(f, value);
    break;
  case PEN_OPTION_BOOL:
    fputs(*(const bool *)value ? "true" : "false", f);
    break;
  case PEN_OPTION_U64:
  case PEN_OPTION_DOUBLE:
  case PEN_OPTION_SIZE:
  case PEN_OPTION_RATE:
  case PEN_OPTION_ENUM:
    put_number(f, option, value);
    break;
  }
  fputc('\n', f);
}

void pen_option_dump(const struct pen_options *options, FILE *f)
{
  const char *group = "";
  for (size_t i = 0; i < options->n_options; i++) {
    const struct pen_option *option = &options->table[i];
    if (!(option->verbs & options->verb) || !option->group)
      continue;
    if (strcmp(option->group, group))
      fprintf(f, "# %s\n", option->group);
    group = option->group;
    dump_one(f, option, value_of(options, option));
  }
}
