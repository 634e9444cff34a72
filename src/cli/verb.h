/* verb.h: what penstock can be told to do. */
#ifndef PEN_SRC_CLI_VERB_H
#define PEN_SRC_CLI_VERB_H

#include <stdint.h>

#include "src/cli/config.h"

/* Bits for the verb masks of the option table. */
enum {
  PEN_VERB_TRAIN = 1 << 0,
  PEN_VERB_EVAL = 1 << 1,
  PEN_VERB_GENERATE = 1 << 2,
  PEN_VERB_INIT = 1 << 3,
  PEN_VERB_INSPECT = 1 << 4,
  PEN_VERB_VERIFY = 1 << 5,
  PEN_VERB_PLAN = 1 << 6,
  PEN_VERB_DOCTOR = 1 << 7,
  PEN_VERB_BENCH = 1 << 8,
  PEN_VERB_EXPORT = 1 << 9,
};

struct pen_verb {
  const char *name;
  uint32_t bit;
  const char *summary;    /* one line */
  const char *positional; /* option that a bare argument sets, or NULL */
  /* Does the job; 0 or a negative code with its text standing, which main
   * prints and turns into the exit code.  The configuration is complete and
   * free of contradictions. */
  int (*run)(const struct pen_config *config);
};

/* Each in its own file verb_NAME.c; main.c's table holds those there are. */
int pen_verb_train(const struct pen_config *config);
int pen_verb_eval(const struct pen_config *config);
int pen_verb_export(const struct pen_config *config);
int pen_verb_generate(const struct pen_config *config);
int pen_verb_init(const struct pen_config *config);
int pen_verb_inspect(const struct pen_config *config);
int pen_verb_bench(const struct pen_config *config);
int pen_verb_doctor(const struct pen_config *config);
int pen_verb_plan(const struct pen_config *config);
int pen_verb_verify(const struct pen_config *config);

#endif
