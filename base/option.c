/* option.c: values from text.
 *
 * Invariants: every string in the values is owned by them; sources[i] is the
 * strongest source that has set option i.  Main thread only.  Disadvantage:
 * lookups are linear; fine for a hundred options. */
#include "base/option.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/size.h"

static size_t index_of(const struct pen_options *options,
                       const struct pen_option *option)
{
  return (size_t)(option - options->table);
}

static void *value_of(const struct pen_options *options,
                      const struct pen_option *option)
{
  return (char *)options->values + option->offset;
}

static void clear_list(struct pen_option_list *list)
{
  for (size_t i = 0; i < list->n_items; i++)
    free(list->items[i]);
  free(list->items);
  *list = (struct pen_option_list){ 0 };
}

/* Whether the n bytes at `a` spell the name `b`, dashes and underscores being
 * equal. */
static bool same_name(const char *a, size_t n, const char *b)
{
  for (size_t i = 0; i < n; i++)
    if (b[i] == '\0' ||
        (a[i] == '_' ? '-' : a[i]) != (b[i] == '_' ? '-' : b[i]))
      return false;
  return b[n] == '\0';
}

static bool has_alias(const struct pen_option *option, const char *name)
{
  for (const char *p = option->aliases; p && *p;) {
    size_t n = strcspn(p, ",");
    if (same_name(p, n, name))
      return true;
    p += n + (p[n] == ',');
  }
  return false;
}

const struct pen_option *pen_option_find(const struct pen_options *options,
                                         const char *name)
{
  const struct pen_option *found = NULL;
  for (size_t i = 0; i < options->n_options; i++) {
    const struct pen_option *option = &options->table[i];
    bool named = same_name(option->name, strlen(option->name), name) ||
                 has_alias(option, name);
    if (named && option->verbs & options->verb)
      return option;
    if (named && !found)
      found = option;
  }
  return found;
}

enum pen_option_source pen_option_source(const struct pen_options *options,
                                         const char *name)
{
  const struct pen_option *option = pen_option_find(options, name);
  assert(option);
  return options->sources[index_of(options, option)];
}

/* A limit as a user would write it: whole numbers with all their digits. */
static void print_limit(FILE *f, double limit)
{
  fprintf(f, limit == rint(limit) && fabs(limit) < 1e18 ? "%.0f" : "%g", limit);
}

static void print_range(FILE *f, const struct pen_option *option)
{
  if (option->max > 0) {
    fputs(" from ", f);
    print_limit(f, option->min);
    fputs(" to ", f);
    print_limit(f, option->max);
  } else if (option->min > 0) {
    fputs(" of at least ", f);
    print_limit(f, option->min);
  } else if (option->type == PEN_OPTION_U64) {
    fputs(" below 2^64", f);
  }
}

/* Puts words, range and an example together: what may stand here. */
static void describe_allowed(const struct pen_option *option, char *ret_text,
                             size_t n_bytes)
{
  static const char *const kinds[] = {
    [PEN_OPTION_STRING] = "text", [PEN_OPTION_LIST] = "a list with commas",
    [PEN_OPTION_COUNTS] = "whole numbers and ranges such as 1,2,4 or 1-8*2",
    [PEN_OPTION_SIZES] = "sizes and ranges such as 1MiB,4MiB or 64KiB-4MiB*2",
    [PEN_OPTION_U64] = "a whole number", [PEN_OPTION_DOUBLE] = "a number",
    [PEN_OPTION_SIZE] = "a size such as 24GiB or 800GB",
    [PEN_OPTION_RATE] = "bytes a second such as 7GB/s",
    [PEN_OPTION_BOOL] = "true or false", [PEN_OPTION_ENUM] = "",
  };
  FILE *f = fmemopen(ret_text, n_bytes, "w");
  if (!f) {
    *ret_text = '\0';
    return;
  }
  const char *separator = "";
  for (const struct pen_option_word *w = option->words; w && w->name; w++) {
    fprintf(f, "%s%s", separator, w->name);
    separator = " | ";
  }
  bool only_words = option->type == PEN_OPTION_ENUM ||
                    (option->type == PEN_OPTION_STRING && option->words);
  if (!only_words) {
    fprintf(f, "%s%s", separator, kinds[option->type]);
    print_range(f, option);
  }
  fclose(f);
}

static int refuse(const struct pen_option *option, const char *written,
                  const char *text)
{
  char allowed[256];
  describe_allowed(option, allowed, sizeof allowed);
  pen_error_clear(); /* the parser's own text says less */
  return pen_error_set(-PEN_EUSAGE, "--%s: \"%.128s\" is not allowed; "
                       "expected %s", written, text, allowed);
}

static const struct pen_option_word *find_word(const struct pen_option *option,
                                               const char *text)
{
  for (const struct pen_option_word *w = option->words; w && w->name; w++)
    if (same_name(w->name, strlen(w->name), text))
      return w;
  return NULL;
}

static bool in_range(const struct pen_option *option, double value)
{
  return value >= option->min && (option->max == 0 || value <= option->max);
}

static bool parse_u64(const char *text, uint64_t *ret_value)
{
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (!isdigit((unsigned char)*text) || *end || errno)
    return false;
  *ret_value = value;
  return true;
}

static bool parse_double(const char *text, double *ret_value)
{
  char *end;
  double value = strtod(text, &end);
  /* no hexadecimal, "nan" or "inf": a slip of the hand would pass */
  if (*text == '\0' || isspace((unsigned char)*text) || *end ||
      strpbrk(text, "xXnN") || !isfinite(value))
    return false;
  *ret_value = value;
  return true;
}

static bool parse_bool(const char *text, bool *ret_value)
{
  static const char *const words[] = { "false", "true", "no",  "yes",
                                       "off",   "on",   "0",   "1" };
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strcasecmp(text, words[i]) == 0) {
      *ret_value = i % 2;
      return true;
    }
  return false;
}

static int set_string(char **value, const char *text)
{
  char *copy = strdup(text);
  if (!copy)
    return pen_error_set(-ENOMEM, "cannot keep an option's text");
  free(*value);
  *value = copy;
  return 0;
}

static int store_list(struct pen_option_list *list, char *const *items,
                      size_t n_items)
{
  struct pen_option_list made = { calloc(n_items ? n_items : 1,
                                         sizeof *made.items), 0 };
  for (size_t i = 0; made.items && i < n_items; i++) {
    made.items[i] = strdup(items[i]);
    if (!made.items[i])
      break;
    made.n_items++;
  }
  if (!made.items || made.n_items < n_items) {
    clear_list(&made);
    return pen_error_set(-ENOMEM, "cannot keep a list of %zu items", n_items);
  }
  clear_list(list);
  *list = made;
  return 0;
}

static bool is_list(const struct pen_option *option)
{
  return option->type == PEN_OPTION_LIST || option->type == PEN_OPTION_COUNTS ||
         option->type == PEN_OPTION_SIZES;
}

/* Numbers and ranges as plain numbers, each within the option's limits. */
static int store_numbers(const struct pen_option *option, const char *written,
                         char *const *items, size_t n_items,
                         struct pen_option_list *list)
{
  uint64_t numbers[PEN_OPTION_NUMBERS_MAX];
  char texts[PEN_OPTION_NUMBERS_MAX][24];
  char *each[PEN_OPTION_NUMBERS_MAX];
  size_t n = 0;
  if (n_items == 1 && find_word(option, items[0]))
    return store_list(list, each, 0);
  for (size_t i = 0; i < n_items; i++) {
    size_t from = n;
    bool good = pen_option_range(items[i], option->type == PEN_OPTION_SIZES,
                                 numbers, &n);
    for (size_t k = from; k < n; k++)
      good = good && in_range(option, (double)numbers[k]);
    if (!good)
      return refuse(option, written, items[i]);
  }
  for (size_t i = 0; i < n; i++) {
    snprintf(texts[i], sizeof texts[i], "%" PRIu64, numbers[i]);
    each[i] = texts[i];
  }
  return store_list(list, each, n);
}

static int store_items(const struct pen_option *option, const char *written,
                       char *const *items, size_t n_items,
                       struct pen_option_list *list)
{
  return option->type == PEN_OPTION_LIST
             ? store_list(list, items, n_items)
             : store_numbers(option, written, items, n_items, list);
}

/* "a,b,c"; an empty item is refused, since it is a slip. */
static int set_split_list(const struct pen_option *option, const char *written,
                          const char *text, struct pen_option_list *list)
{
  char *copy = strdup(text);
  size_t n_items = 0, n_max = strlen(text) + 1;
  char **items = calloc(n_max, sizeof *items);
  int r = 0;
  if (!copy || !items) {
    r = pen_error_set(-ENOMEM, "cannot keep --%s", written);
    goto out;
  }
  for (char *p = copy, *next; p; p = next) {
    next = strchr(p, ',');
    if (next)
      *next++ = '\0';
    if (*p == '\0') {
      r = refuse(option, written, text);
      goto out;
    }
    items[n_items++] = p;
  }
  r = store_items(option, written, items, n_items, list);
out:
  free(items);
  free(copy);
  return r;
}

/* "7GB/s", "7GB". */
static bool parse_rate(const char *text, uint64_t *ret_rate)
{
  char size[64];
  size_t length = strlen(text);
  if (length > 2 && strcmp(text + length - 2, "/s") == 0)
    length -= 2;
  if (length >= sizeof size)
    return false;
  memcpy(size, text, length);
  size[length] = '\0';
  return pen_size_parse(size, ret_rate) == 0;
}

/* Numbers: the word's value, or the number in its range. */
static bool parse_number(const struct pen_option *option, const char *text,
                         void *value)
{
  const struct pen_option_word *word = find_word(option, text);
  uint64_t number;
  double real;
  if (option->type == PEN_OPTION_DOUBLE) {
    if (word)
      real = (double)word->value;
    else if (!parse_double(text, &real) || !in_range(option, real))
      return false;
    *(double *)value = real;
    return true;
  }
  if (word)
    number = word->value;
  else if (option->type == PEN_OPTION_SIZE   ? pen_size_parse(text, &number) != 0
           : option->type == PEN_OPTION_RATE ? !parse_rate(text, &number)
                                             : !parse_u64(text, &number))
    return false;
  else if (!in_range(option, (double)number))
    return false;
  *(uint64_t *)value = number;
  return true;
}

static int set_value(const struct pen_option *option, const char *written,
                     const char *text, void *value)
{
  const struct pen_option_word *word;
  switch (option->type) {
  case PEN_OPTION_STRING:
    if (*text == '\0' || (option->words && !find_word(option, text)))
      return refuse(option, written, text);
    return set_string(value, text);
  case PEN_OPTION_LIST:
  case PEN_OPTION_COUNTS:
  case PEN_OPTION_SIZES:
    return set_split_list(option, written, text, value);
  case PEN_OPTION_BOOL:
    return parse_bool(text, value) ? 0 : refuse(option, written, text);
  case PEN_OPTION_ENUM:
    word = find_word(option, text);
    if (!word)
      return refuse(option, written, text);
    *(int *)value = (int)word->value;
    return 0;
  case PEN_OPTION_U64:
  case PEN_OPTION_DOUBLE:
  case PEN_OPTION_SIZE:
  case PEN_OPTION_RATE:
    return parse_number(option, text, value) ? 0
                                             : refuse(option, written, text);
  }
  return 0;
}

/* Says once that `written` is another name of the option. */
static void note_alias(struct pen_options *options,
                       const struct pen_option *option, const char *written)
{
  size_t i = index_of(options, option);
  if (same_name(option->name, strlen(option->name), written) ||
      options->noted[i] || !options->note_alias)
    return;
  options->noted[i] = true;
  options->note_alias(written, option->name);
}

int pen_option_set(struct pen_options *options, const struct pen_option *option,
                   const char *written, const char *text,
                   enum pen_option_source source)
{
  size_t i = index_of(options, option);
  note_alias(options, option, written);
  if (options->sources[i] > source)
    return 0;
  int r = set_value(option, written, text, value_of(options, option));
  if (r == 0)
    options->sources[i] = (unsigned char)source;
  return r;
}

int pen_option_set_list(struct pen_options *options,
                        const struct pen_option *option, char *const *items,
                        size_t n_items, enum pen_option_source source)
{
  size_t i = index_of(options, option);
  assert(is_list(option));
  if (options->sources[i] > source)
    return 0;
  int r = store_items(option, option->name, items, n_items,
                      value_of(options, option));
  if (r == 0)
    options->sources[i] = (unsigned char)source;
  return r;
}

int pen_option_init(struct pen_options *options, const struct pen_option *table,
                    size_t n_options, void *values, size_t n_value_bytes)
{
  *options = (struct pen_options){ .table = table, .n_options = n_options,
                                   .values = values,
                                   .verb = UINT32_MAX, .verb_name = "" };
  memset(values, 0, n_value_bytes);
  options->sources = calloc(n_options, 1);
  options->noted = calloc(n_options, 1);
  int r = 0;
  if (!options->sources || !options->noted)
    r = pen_error_set(-ENOMEM, "cannot keep %zu options", n_options);
  for (size_t i = 0; !r && i < n_options; i++)
    if (table[i].standard)
      r = set_value(&table[i], table[i].name, table[i].standard,
                    value_of(options, &table[i]));
  if (r)
    pen_option_done(options);
  return r;
}

/* Strings and lists are kept by value: `values` holds none yet. */
static int copy_owned(const struct pen_option *option, const void *from,
                      void *to)
{
  if (option->type == PEN_OPTION_STRING) {
    char *text = *(char *const *)from;
    *(char **)to = NULL;
    return text ? set_string(to, text) : 0;
  }
  if (is_list(option)) {
    const struct pen_option_list *list = from;
    *(struct pen_option_list *)to = (struct pen_option_list){ NULL, 0 };
    return store_list(to, list->items, list->n_items);
  }
  return 0;
}

int pen_option_copy(struct pen_options *ret_copy,
                    const struct pen_options *options, void *values,
                    size_t n_value_bytes)
{
  struct pen_options *copy = ret_copy;
  size_t n = options->n_options;
  *copy = *options;
  copy->values = values;
  memcpy(values, options->values, n_value_bytes);
  copy->sources = malloc(n);
  copy->noted = malloc(n);
  int r = 0;
  for (size_t i = 0; i < n; i++) {
    const struct pen_option *o = &options->table[i];
    int code = copy_owned(o, value_of((struct pen_options *)options, o),
                          value_of(copy, o));
    r = r ? r : code;
  }
  if (!copy->sources || !copy->noted)
    r = r ? r : pen_error_set(-ENOMEM, "cannot keep %zu options", n);
  if (!r) {
    memcpy(copy->sources, options->sources, n);
    memcpy(copy->noted, options->noted, n);
  } else {
    pen_option_done(copy);
  }
  return r;
}

void pen_option_done(struct pen_options *options)
{
  for (size_t i = 0; i < options->n_options; i++) {
    void *value = value_of(options, &options->table[i]);
    if (is_list(&options->table[i])) {
      clear_list(value);
    } else if (options->table[i].type == PEN_OPTION_STRING) {
      free(*(char **)value);
      *(char **)value = NULL;
    }
  }
  free(options->sources);
  free(options->noted);
  *options = (struct pen_options){ 0 };
}
