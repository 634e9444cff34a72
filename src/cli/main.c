/* main.c: verb, options, exit code.
 *
 * Exit codes: 0 done, 1 failed, 2 usage, 3 does not fit.  Disadvantage: none
 * worth a line; it only wires. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "src/cli/options.h"
#include "src/cli/verb.h"

static const struct pen_verb verbs[] = {
  { "train", PEN_VERB_TRAIN, "fine-tune or pretrain; --resume goes on from the "
    "newest committed state", "config", pen_verb_train },
  { "plan", PEN_VERB_PLAN, "what train would take, how long its steps would "
    "last and what binds", "config", pen_verb_plan },
  { "bench", PEN_VERB_BENCH, "measure this machine's ceilings, and keep them "
    "for plan", "bench,nvme-path", pen_verb_bench },
  { "doctor", PEN_VERB_DOCTOR, "what this machine allows, and what to change",
    NULL, pen_verb_doctor },
  { "eval", PEN_VERB_EVAL, "loss and perplexity of a model on data", NULL,
    pen_verb_eval },
  { "generate", PEN_VERB_GENERATE, "text from a model", NULL,
    pen_verb_generate },
  { "export", PEN_VERB_EXPORT, "a model directory for others out of a run, a "
    "checkpoint or a model", "path", pen_verb_export },
  { "init", PEN_VERB_INIT, "make a new model with random weights from a "
    "config.json", "model-config", pen_verb_init },
  { "inspect", PEN_VERB_INSPECT, "look into a model, a config, a safetensors, "
    "GGUF or token file", "path", pen_verb_inspect },
  { "verify", PEN_VERB_VERIFY, "read all of a model or file and say whether it "
    "is whole", "path", pen_verb_verify },
  { 0 },
};

static void print_verbs(FILE *f)
{
  fputs("penstock: trains language models bigger than the GPU, or bigger than "
        "the RAM,\nby streaming them through it.\n\n"
        "  penstock VERB [options]\n  penstock VERB --help\n"
        "  penstock --version\n\nverbs:\n", f);
  for (const struct pen_verb *verb = verbs; verb->name; verb++)
    fprintf(f, "  %-10s %s\n", verb->name, verb->summary);
  fputs("\nexit codes: 0 done, 1 failed, 2 wrong usage, 3 does not fit\n", f);
}

static void print_help(const struct pen_verb *verb,
                       const struct pen_options *options)
{
  printf("penstock %s: %s\n\n  penstock %s", verb->name, verb->summary,
         verb->name);
  for (const char *p = verb->positional; p && *p; p += strspn(p, ",")) {
    printf(" [%.*s]", (int)strcspn(p, ","), p);
    p += strcspn(p, ",");
  }
  puts(" [options]");
  pen_option_help(options, stdout);
  puts("\nDashes and underscores are equal in names; sizes read 24GiB, 800GB.");
}

static const struct pen_verb *find_verb(const char *name)
{
  for (const struct pen_verb *verb = verbs; verb->name; verb++)
    if (strcmp(verb->name, name) == 0)
      return verb;
  return NULL;
}

static void note_alias(const char *alias, const char *canonical)
{
  pen_log_info("note: --%s is --%s here", alias, canonical);
}

static int run_verb(const struct pen_verb *verb, int argc, char *const *argv)
{
  struct pen_options options;
  struct pen_config config;
  int r = pen_options_init(&options, &config, verb->bit, verb->name);
  if (r)
    return r;
  options.note_alias = note_alias;
  r = pen_options_parse(&options, &config, argc, argv, verb->positional);
  if (r)
    goto out;
  if (pen_option_source(&options, "log-level") != PEN_OPTION_DEFAULT)
    pen_log_set_level((enum pen_log_level)config.log_level);
  if (config.help)
    print_help(verb, &options);
  else if (config.dump_config)
    pen_options_dump(&config, verb->bit, stdout);
  else
    r = verb->run(&config);
out:
  pen_option_done(&options);
  return r;
}

static int run(int argc, char *const *argv)
{
  if (argc < 2) {
    print_verbs(stderr);
    return pen_error_set(-PEN_EUSAGE, "no verb given");
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
      strcmp(argv[1], "help") == 0) {
    print_verbs(stdout);
    return 0;
  }
  if (strcmp(argv[1], "--version") == 0) {
    puts("penstock " PEN_VERSION);
    return 0;
  }
  const struct pen_verb *verb = find_verb(argv[1]);
  if (!verb)
    return pen_error_set(-PEN_EUSAGE, "there is no verb \"%.64s\"; see "
                         "penstock --help", argv[1]);
  return run_verb(verb, argc - 2, argv + 2);
}

/* A standard stream that is closed would be the next file that is opened, and what
 * is said would be written into it.  Writing to what stands in for it still fails. */
static void fill_standard_streams(void)
{
  int fd;
  do
    fd = open("/dev/null", O_RDONLY);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO)
    close(fd);
}

int main(int argc, char **argv)
{
  fill_standard_streams();
  signal(SIGXFSZ, SIG_IGN); /* `ulimit -f`: the write that fails is told */
  int r = run(argc, argv);
  if (r == 0 && (fflush(stdout) || ferror(stdout)))
    r = pen_error_set(-PEN_ESTOPPED, "cannot write to standard output");
  if (r)
    pen_log_error("%s", *pen_error_text() ? pen_error_text()
                                          : pen_error_describe(r));
  return pen_error_exit_code(r);
}
