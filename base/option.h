/* option.h: one table of options that drives the command line, config files,
 * help and dump. */
#ifndef PEN_BASE_OPTION_H
#define PEN_BASE_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum pen_option_type {
  PEN_OPTION_STRING, /* char *, owned by the values; NULL: not given; with
                        words: one of them */
  PEN_OPTION_LIST,   /* struct pen_option_list, "a,b" on the command line */
  PEN_OPTION_COUNTS, /* the same of whole numbers and ranges of them, kept as
                        plain numbers; a word: the empty list */
  PEN_OPTION_SIZES,  /* the same of bytes */
  PEN_OPTION_U64,    /* uint64_t */
  PEN_OPTION_DOUBLE, /* double */
  PEN_OPTION_SIZE,   /* uint64_t bytes, base/size.h */
  PEN_OPTION_RATE,   /* uint64_t bytes a second, a size with or without "/s" */
  PEN_OPTION_BOOL,   /* bool; --name, --no-name, --name true|false */
  PEN_OPTION_ENUM,   /* int, one of the words' values; case counts, dashes
                        and underscores are equal */
};

struct pen_option_list {
  char **items; /* [n_items], owned by the values */
  size_t n_items;
};

/* Item i of a list of counts or sizes. */
uint64_t pen_option_list_number(const struct pen_option_list *list, size_t i);

/* Most numbers of one list, ranges counted by their members. */
#define PEN_OPTION_NUMBERS_MAX 64

/* One item of such a list: "8", "1-8" (each), "1-8+2" (every second), "1-8*2"
 * (1, 2, 4, 8); members beyond the end are left out.  Adds to ret_numbers, of
 * which *n_numbers are there; false for anything else, for empty and endless
 * ranges, and where there is no room. */
bool pen_option_range(const char *text, bool sizes,
                      uint64_t ret_numbers[PEN_OPTION_NUMBERS_MAX],
                      size_t *n_numbers);

/* A word that stands for a value; for numbers beside the numbers ("auto"). */
struct pen_option_word {
  const char *name; /* NULL ends the array */
  uint64_t value;
};

struct pen_option {
  const char *name;    /* canonical, with dashes */
  const char *aliases; /* other trainers' names, comma between them, or NULL */
  char letter;         /* short form, 0: none; unique per verb */
  enum pen_option_type type;
  size_t offset;             /* of the value in the caller's struct */
  const char *standard;      /* default, as a user would write it; or NULL */
  const struct pen_option_word *words; /* or NULL */
  double min, max;     /* numbers and sizes; max 0: no limit above */
  uint32_t verbs;      /* mask of the verbs that take it */
  uint32_t required;   /* mask of the verbs that cannot do without */
  const char *group;   /* heading in help and dump; NULL: not dumped, and
                          refused in files (help, config itself) */
  const char *metavar; /* "FILE"; NULL: by type */
  const char *help;    /* one line */
};

enum pen_option_source {
  PEN_OPTION_DEFAULT,
  PEN_OPTION_FILE,
  PEN_OPTION_COMMAND_LINE, /* wins over a file, in whatever order they come */
};

/* A table and the values it fills. */
struct pen_options {
  const struct pen_option *table; /* [n_options], borrowed */
  size_t n_options;
  void *values;           /* the caller's struct, borrowed */
  unsigned char *sources; /* [n_options] enum pen_option_source */
  unsigned char *noted;   /* [n_options] an alias was already spoken of */
  uint32_t verb;          /* bit of the verb at hand */
  const char *verb_name;  /* borrowed, for messages */
  /* Told once per option that an alias was used; NULL: nobody. */
  void (*note_alias)(const char *alias, const char *canonical);
};

/* Zeroes the struct `values` of n_value_bytes and fills in the defaults.  The
 * strings put into it belong to it until pen_option_done. */
int pen_option_init(struct pen_options *options, const struct pen_option *table,
                    size_t n_options, void *values, size_t n_value_bytes);
void pen_option_done(struct pen_options *options);
/* A copy with values of its own, to try others on.  The caller's struct
 * `values` is as large as the one copied from.  Done with by pen_option_done. */
int pen_option_copy(struct pen_options *ret_copy,
                    const struct pen_options *options, void *values,
                    size_t n_value_bytes);

/* The option of that name or alias, the verb's own where several rows have it;
 * dashes and underscores are equal.  NULL: none. */
const struct pen_option *pen_option_find(const struct pen_options *options,
                                         const char *name);

/* The nearest canonical name of the verb at hand by edit distance; NULL: none
 * is near. */
const char *pen_option_nearest(const struct pen_options *options,
                               const char *name);

/* Sets a value from its text.  `written` is the name the user wrote, for
 * messages.  Ignored if a stronger source has set it.  -PEN_EUSAGE names the
 * option, the text and what is allowed. */
int pen_option_set(struct pen_options *options, const struct pen_option *option,
                   const char *written, const char *text,
                   enum pen_option_source source);

/* Sets a list from separate items, which may contain commas. */
int pen_option_set_list(struct pen_options *options,
                        const struct pen_option *option,
                        char *const *items, size_t n_items,
                        enum pen_option_source source);

/* -PEN_EUSAGE naming the first option that the verb at hand needs and nobody
 * gave. */
int pen_option_check_required(const struct pen_options *options);

/* Where the value of `name` (canonical) comes from. */
enum pen_option_source pen_option_source(const struct pen_options *options,
                                         const char *name);

/* Parses arguments: --name value, --name=value, --no-name, -x value, -xvalue,
 * "--" ends options.  Bare arguments set `positional` (canonical names with
 * commas, the first argument the first; NULL: there may be none), once each.  -PEN_EUSAGE for unknown names (with the
 * nearest right one), names of other verbs, missing or wrong values. */
int pen_option_parse(struct pen_options *options, int argc, char *const *argv,
                     const char *positional);

/* Sets `key` of a config file.  A key that only other verbs take is checked
 * and otherwise ignored: one file describes a run for several verbs. */
int pen_option_set_key(struct pen_options *options, const char *key,
                       char *const *items, size_t n_items, bool is_list);

/* Writes the options of the verb at hand, by group. */
void pen_option_help(const struct pen_options *options, FILE *f);

/* Writes every value of the verb at hand as YAML that a config file accepts:
 * reading it back gives the same values, doubles to the bit. */
void pen_option_dump(const struct pen_options *options, FILE *f);

#endif
