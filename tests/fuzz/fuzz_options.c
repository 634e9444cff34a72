/* fuzz_options.c: arguments and config files of any bytes.
 *
 * The first byte chooses the verb and the form: arguments (one a line), YAML
 * or JSON.  Beyond not crashing: a failure has a text, a success none, and
 * what parses is dumped to text that parses to the same dump. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "src/cli/config_file.h"
#include "src/cli/options.h"
#include "src/cli/verb.h"
#include "tests/fuzz/fuzz.h"

#define N_ARGS_MAX 64

static const struct {
  uint32_t bit;
  const char *name, *positional;
} verbs[] = {
  { PEN_VERB_TRAIN, "train", "config" },
  { PEN_VERB_EVAL, "eval", NULL },
  { PEN_VERB_GENERATE, "generate", NULL },
  { PEN_VERB_INIT, "init", "model-config" },
  { PEN_VERB_INSPECT, "inspect", "path" },
  { PEN_VERB_PLAN, "plan", "config" },
  { PEN_VERB_DOCTOR, "doctor", NULL },
  { PEN_VERB_BENCH, "bench", "bench" },
};

#define N_VERBS (sizeof verbs / sizeof verbs[0])

static int parse_arguments(struct pen_options *options, char *text,
                           const char *positional)
{
  char *argv[N_ARGS_MAX];
  int argc = 0;
  for (char *p = strtok(text, "\n"); p && argc < N_ARGS_MAX;
       p = strtok(NULL, "\n"))
    argv[argc++] = p;
  return pen_option_parse(options, argc, argv, positional);
}

static char *dump(const struct pen_config *config, uint32_t verb)
{
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  if (!f)
    abort();
  pen_options_dump(config, verb, f);
  fclose(f);
  return text;
}

/* YAML forbids and folds some characters beyond ASCII. */
static bool is_ascii(const char *text)
{
  for (; *text; text++)
    if ((unsigned char)*text >= 0x7f)
      return false;
  return true;
}

static void check_round_trip(const struct pen_config *config, size_t verb)
{
  struct pen_options options;
  struct pen_config again;
  char *first = dump(config, verbs[verb].bit);
  if (pen_options_init(&options, &again, verbs[verb].bit, verbs[verb].name))
    abort();
  int r = pen_config_file_parse(first, strlen(first), false, "dump", &options);
  if (r == -PEN_EUNSUPPORTED) {
    pen_error_clear(); /* built without libyaml */
  } else if (is_ascii(first)) {
    char *second = dump(&again, verbs[verb].bit);
    if (r || strcmp(first, second) != 0)
      fuzz_fail("%s\n--- is read back as (%s)\n%s", first, pen_error_text(),
                second);
    free(second);
  }
  pen_error_clear();
  pen_option_done(&options);
  free(first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
  if (n_bytes < 1)
    return 0;
  struct pen_options options;
  struct pen_config config;
  size_t verb = data[0] % N_VERBS, form = data[0] / N_VERBS % 3;
  char *text = malloc(n_bytes);
  if (!text || pen_options_init(&options, &config, verbs[verb].bit,
                                verbs[verb].name))
    abort();
  memcpy(text, data + 1, n_bytes - 1);
  text[n_bytes - 1] = '\0';
  int r = form == 0 ? parse_arguments(&options, text, verbs[verb].positional)
                    : pen_config_file_parse(text, n_bytes - 1, form == 2, "x",
                                            &options);
  if ((r != 0) != (*pen_error_text() != '\0'))
    fuzz_fail("code %d with the text \"%s\"", r, pen_error_text());
  pen_error_clear();
  if (r == 0) {
    pen_option_check_required(&options);
    pen_error_clear();
    pen_options_check(&config, verbs[verb].bit);
    pen_error_clear();
    check_round_trip(&config, verb);
  }
  pen_option_done(&options);
  free(text);
  return 0;
}
