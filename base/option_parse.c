/* option_parse.c: names on the command line and keys in files.
 *
 * Turns argv and (key, items) pairs into pen_option_set calls and says what is
 * nearest when a name is not known.  Disadvantage: nearness is plain edit
 * distance; it knows nothing of meaning. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/option.h"

#define LONGEST_NAME 64

static size_t min3(size_t a, size_t b, size_t c)
{
  size_t m = a < b ? a : b;
  return m < c ? m : c;
}

/* Levenshtein distance, one row at a time; n bytes of `b` count. */
static size_t distance(const char *a, const char *b, size_t n)
{
  size_t row[LONGEST_NAME + 1];
  for (size_t j = 0; j <= n; j++)
    row[j] = j;
  for (size_t i = 1; a[i - 1]; i++) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= n; j++) {
      char x = a[i - 1] == '_' ? '-' : a[i - 1];
      size_t substituted = diagonal + (x != b[j - 1]);
      diagonal = row[j];
      row[j] = min3(row[j] + 1, row[j - 1] + 1, substituted);
    }
  }
  return row[n];
}

/* The smallest distance of `name` to the option's name and aliases; a name
 * whose beginning is typed counts as near ("learning" for learning-rate). */
static size_t option_distance(const struct pen_option *option, const char *name)
{
  size_t n_typed = strlen(name);
  size_t best = distance(name, option->name, strlen(option->name));
  if (n_typed >= 4 && strncmp(option->name, name, n_typed) == 0)
    best = 1;
  for (const char *p = option->aliases; p && *p;) {
    size_t n = strcspn(p, ",");
    if (n <= LONGEST_NAME) {
      size_t d = distance(name, p, n);
      best = d < best ? d : best;
    }
    p += n + (p[n] == ',');
  }
  return best;
}

const char *pen_option_nearest(const struct pen_options *options,
                               const char *name)
{
  size_t n = strlen(name);
  if (n > LONGEST_NAME)
    return NULL;
  const char *nearest = NULL;
  size_t best = n / 3 + 2; /* a third of the letters may be wrong */
  for (size_t i = 0; i < options->n_options; i++) {
    const struct pen_option *option = &options->table[i];
    assert(strlen(option->name) <= LONGEST_NAME);
    if (!(option->verbs & options->verb))
      continue;
    size_t d = option_distance(option, name);
    if (d < best) {
      best = d;
      nearest = option->name;
    }
  }
  return nearest;
}

static int unknown(const struct pen_options *options, const char *kind,
                   const char *dashes, const char *name)
{
  const char *nearest = pen_option_nearest(options, name);
  if (nearest)
    return pen_error_set(-PEN_EUSAGE, "unknown %s %s%.64s; did you mean %s%s?",
                         kind, dashes, name, dashes, nearest);
  return pen_error_set(-PEN_EUSAGE, "unknown %s %s%.64s; see penstock %s "
                       "--help", kind, dashes, name, options->verb_name);
}

static const struct pen_option *find_letter(const struct pen_options *options,
                                            char letter)
{
  for (size_t i = 0; i < options->n_options; i++)
    if (options->table[i].letter == letter &&
        options->table[i].verbs & options->verb)
      return &options->table[i];
  return NULL;
}

static bool is_bool_word(const char *text)
{
  return text &&
         (strcasecmp(text, "true") == 0 || strcasecmp(text, "false") == 0);
}

/* Sets `option` from `value` or, where that is NULL, from the next argument;
 * *i moves on to the last argument used. */
static int set_from_argv(struct pen_options *options,
                         const struct pen_option *option, const char *written,
                         const char *value, int argc, char *const *argv, int *i)
{
  const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
  if (!value && option->type == PEN_OPTION_BOOL) {
    value = is_bool_word(next) ? next : "true";
    if (value == next)
      ++*i;
  } else if (!value) {
    if (!next || strncmp(next, "--", 2) == 0)
      return pen_error_set(-PEN_EUSAGE, "--%s needs a value", written);
    value = next;
    ++*i;
  }
  return pen_option_set(options, option, written, value,
                        PEN_OPTION_COMMAND_LINE);
}

static int parse_long(struct pen_options *options, int argc, char *const *argv,
                      int *i)
{
  const char *text = argv[*i] + 2;
  char name[LONGEST_NAME + 1];
  const char *equals = strchr(text, '=');
  size_t n = equals ? (size_t)(equals - text) : strlen(text);
  if (n > LONGEST_NAME)
    return pen_error_set(-PEN_EUSAGE, "unknown option %.80s; see penstock %s "
                         "--help", argv[*i], options->verb_name);
  memcpy(name, text, n);
  name[n] = '\0';
  const char *value = equals ? equals + 1 : NULL;
  const char *written = name;
  const struct pen_option *option = pen_option_find(options, name);
  if (!option && (strncmp(name, "no-", 3) == 0 || strncmp(name, "no_", 3) == 0)) {
    const struct pen_option *positive = pen_option_find(options, name + 3);
    if (positive && positive->type == PEN_OPTION_BOOL) {
      if (value)
        return pen_error_set(-PEN_EUSAGE, "--%s takes no value", name);
      option = positive;
      written = name + 3;
      value = "false";
    }
  }
  if (!option)
    return unknown(options, "option", "--", name);
  if (!(option->verbs & options->verb))
    return pen_error_set(-PEN_EUSAGE, "--%s is not an option of penstock %s; "
                         "see penstock %s --help", name, options->verb_name,
                         options->verb_name);
  return set_from_argv(options, option, written, value, argc, argv, i);
}

static int parse_letter(struct pen_options *options, int argc,
                        char *const *argv, int *i)
{
  const char *text = argv[*i];
  const struct pen_option *option = find_letter(options, text[1]);
  if (!option)
    return pen_error_set(-PEN_EUSAGE, "unknown option %.64s; see penstock %s "
                         "--help", text, options->verb_name);
  const char *value = text[2] == '=' ? text + 3 : text[2] ? text + 2 : NULL;
  return set_from_argv(options, option, option->name, value, argc, argv, i);
}

/* *positional: the names that none of the n_set arguments before has set. */
static int set_positional(struct pen_options *options, const char *text,
                          const char **positional, size_t *n_set)
{
  static const char *const places[] = {"", "second ", "third "};
  char name[LONGEST_NAME + 1];
  if (!*positional)
    return pen_error_set(-PEN_EUSAGE, "unexpected %sargument \"%.128s\"; "
                         "options begin with --", places[*n_set], text);
  ++*n_set;
  assert(*n_set < sizeof places / sizeof *places);
  size_t n = strcspn(*positional, ",");
  assert(n <= LONGEST_NAME);
  memcpy(name, *positional, n);
  name[n] = '\0';
  *positional = (*positional)[n] ? *positional + n + 1 : NULL;
  const struct pen_option *option = pen_option_find(options, name);
  assert(option);
  return pen_option_set(options, option, option->name, text,
                        PEN_OPTION_COMMAND_LINE);
}

int pen_option_parse(struct pen_options *options, int argc, char *const *argv,
                     const char *positional)
{
  bool only_bare = false;
  size_t n_set = 0;
  for (int i = 0; i < argc; i++) {
    int r;
    if (!only_bare && strcmp(argv[i], "--") == 0) {
      only_bare = true;
      continue;
    }
    if (only_bare || argv[i][0] != '-' || argv[i][1] == '\0')
      r = set_positional(options, argv[i], &positional, &n_set);
    else if (argv[i][1] == '-')
      r = parse_long(options, argc, argv, &i);
    else
      r = parse_letter(options, argc, argv, &i);
    if (r)
      return r;
  }
  return 0;
}

/* Checks a key of another verb by setting it in scratch memory. */
static int check_only(const struct pen_options *options,
                      const struct pen_option *option, const char *key,
                      const char *text)
{
  union {
    char *string;
    struct pen_option_list list;
    uint64_t number;
    double real;
  } scratch;
  struct pen_option copy = *option;
  struct pen_options one;
  copy.offset = 0;
  copy.standard = NULL;
  int r = pen_option_init(&one, &copy, 1, &scratch, sizeof scratch);
  if (r)
    return r;
  r = pen_option_set(&one, &copy, key, text, PEN_OPTION_FILE);
  pen_option_done(&one);
  return r;
}

int pen_option_set_key(struct pen_options *options, const char *key,
                       char *const *items, size_t n_items, bool is_list)
{
  const struct pen_option *option = pen_option_find(options, key);
  if (!option)
    return unknown(options, "key", "", key);
  if (!option->group)
    return pen_error_set(-PEN_EUSAGE, "key %s makes no sense in a file", key);
  if (options->sources[option - options->table] == PEN_OPTION_FILE)
    return pen_error_set(-PEN_EUSAGE, "key %s (%s) is given twice", key,
                         option->name);
  if (is_list && option->type != PEN_OPTION_LIST &&
      option->type != PEN_OPTION_COUNTS && option->type != PEN_OPTION_SIZES)
    return pen_error_set(-PEN_EUSAGE, "key %s takes one value, not a list",
                         key);
  if (!(option->verbs & options->verb))
    return is_list ? 0 : check_only(options, option, key, items[0]);
  if (is_list)
    return pen_option_set_list(options, option, items, n_items,
                               PEN_OPTION_FILE);
  return pen_option_set(options, option, key, items[0], PEN_OPTION_FILE);
}

int pen_option_check_required(const struct pen_options *options)
{
  for (size_t i = 0; i < options->n_options; i++) {
    const struct pen_option *option = &options->table[i];
    if (option->required & options->verb &&
        options->sources[i] == PEN_OPTION_DEFAULT)
      return pen_error_set(-PEN_EUSAGE, "penstock %s needs --%s (%s)",
                           options->verb_name, option->name, option->help);
  }
  return 0;
}
