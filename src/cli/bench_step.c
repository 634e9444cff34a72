/* bench_step.c: real training steps, by this program's own `train` in a process
 * of its own: tokens a second, and which lane binds.
 *
 * Everything lies in a folder that is removed.  Main thread.  Disadvantage: a
 * small model's steps say little of a large one's; --model names another. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/rng.h"
#include "io/files.h"
#include "src/cli/bench.h"
#include "src/cli/settings.h"
#include "src/model/config.h"
#include "src/model/model_dir.h"
#include "src/train/runlog.h"
#include "src/train/session.h"

#define WARM_STEPS 2 /* lanes fill */
#define LENGTH 256   /* tokens of a sequence, at most */
#define TOKENS 2048  /* of a step, unless told */
#define ARGS_MAX 48

extern char **environ;

/* A llama of 20 million parameters. */
static const char small_model[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 512, \"intermediate_size\": 1408,"
    " \"num_hidden_layers\": 4, \"num_attention_heads\": 8,"
    " \"num_key_value_heads\": 4, \"vocab_size\": 8192, \"hidden_act\": \"silu\","
    " \"max_position_embeddings\": 2048, \"rms_norm_eps\": 1e-5,"
    " \"rope_theta\": 10000.0, \"tie_word_embeddings\": true,"
    " \"torch_dtype\": \"bfloat16\"}\n";

struct step_bench {
  const struct pen_config *config;
  char folder[PATH_MAX]; /* ours */
  const char *model;
  size_t tokens, length; /* of a step, of a sequence */
  size_t n_runs;
  double seconds[PEN_BENCH_RUNS_MAX];
  double share[PEN_BENCH_RUNS_MAX]; /* of the lane that bound */
  char lane[32];
  size_t n_seen;
};

static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *ftw)
{
  (void)st;
  (void)type;
  (void)ftw;
  return remove(path);
}

/* ---- a child ---- */

/* The last line of what the child said. */
static int tell_failure(const char *said, const char *verb, int status)
{
  char *text = NULL;
  size_t n;
  int rc = pen_files_read_whole(said, 1 << 20, &text, &n);
  if (rc < 0)
    return rc;
  while (n && text[n - 1] == '\n')
    text[--n] = '\0';
  const char *line = strrchr(text, '\n') ? strrchr(text, '\n') + 1 : text;
  line = strncmp(line, "error: ", 7) == 0 ? line + 7 : line;
  int code = !WIFEXITED(status)        ? PEN_ESTOPPED
             : WEXITSTATUS(status) == 2 ? PEN_EUSAGE
             : WEXITSTATUS(status) == 3 ? PEN_ENOFIT
                                        : PEN_ESTOPPED;
  rc = pen_error_set(code, "penstock %s: %.900s", verb, line);
  free(text);
  return rc;
}

static int run_self(const struct step_bench *b, char *const *argv)
{
  char said[PATH_MAX + 16];
  posix_spawn_file_actions_t actions;
  pid_t child;
  int status = 0;
  snprintf(said, sizeof said, "%s/said", b->folder);
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null",
                                   O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, said,
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  int code = posix_spawn(&child, "/proc/self/exe", &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code)
    return pen_error_set(-code, "cannot start penstock %s", argv[1]);
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR)
      return pen_error_set(-errno, "cannot wait for penstock %s", argv[1]);
  return status ? tell_failure(said, argv[1], status) : 0;
}

/* ---- a model and tokens ---- */

static int make_model(struct step_bench *b, char *model, size_t bytes)
{
  char config[PATH_MAX + 16];
  snprintf(config, sizeof config, "%s/config.json", b->folder);
  snprintf(model, bytes, "%s/model", b->folder);
  int rc = pen_files_write_whole(config, small_model, strlen(small_model));
  if (rc < 0)
    return rc;
  char *const argv[] = {(char *)"penstock", (char *)"init", config,
                        (char *)"-o", model, NULL};
  b->model = model;
  return run_self(b, argv);
}

/* Random ids, as many as the steps take: what they are changes no time. */
static int make_tokens(struct step_bench *b, const char *path)
{
  struct pen_model_config model;
  char config[PATH_MAX];
  bool is_config;
  int rc = pen_session_config_path(b->model, config, sizeof config, &is_config);
  if (rc == 0)
    rc = pen_model_config_load(config, &model);
  if (rc < 0)
    return rc;
  size_t n = b->tokens * (WARM_STEPS + b->n_runs) + b->length + 1;
  uint32_t *ids = malloc(n * sizeof *ids);
  if (!ids)
    return pen_error_set(PEN_ENOFIT, "no memory for %zu tokens", n);
  for (size_t i = 0; i < n; i++)
    ids[i] = (uint32_t)pen_rng_below(1, 0, i, model.vocab_size);
  rc = pen_files_write_whole(path, ids, n * sizeof *ids);
  free(ids);
  return rc;
}

/* ---- the run ---- */

static int see_line(void *ctx, const struct pen_json *json,
                    const struct pen_json_node *root)
{
  struct step_bench *b = ctx;
  const struct pen_json_node *seconds = pen_json_member(root, "step_seconds");
  const struct pen_json_node *bound = pen_json_member(root, "bound");
  double s = 0;
  const char *text = NULL;
  if (!seconds || !bound || pen_json_as_double(json, seconds, &s) < 0 ||
      pen_json_as_string(json, bound, &text) < 0)
    return 0;
  if (b->n_seen++ < WARM_STEPS || b->n_seen - WARM_STEPS > b->n_runs)
    return 0;
  size_t i = b->n_seen - WARM_STEPS - 1;
  double percent = 0;
  sscanf(text, "%31s %lf", b->lane, &percent);
  b->seconds[i] = s;
  b->share[i] = percent / 100;
  return 0;
}

/* Words of `train`; each borrowed from texts or literals. */
static int train(struct step_bench *b, const char *tokens)
{
  const struct pen_config *c = b->config;
  char output[PATH_MAX + 16], steps[24], length[24], batch[24], drives[4096] = "";
  char *argv[ARGS_MAX];
  size_t n = 0, at = 0;
  snprintf(output, sizeof output, "%s/run", b->folder);
  snprintf(steps, sizeof steps, "%zu", WARM_STEPS + b->n_runs);
  snprintf(length, sizeof length, "%zu", b->length);
  snprintf(batch, sizeof batch, "%zu", b->tokens / b->length);
  const char *const words[] = {
      "penstock", "train", "--model", b->model, "--data", tokens, "--output-dir",
      output, "--max-steps", steps, "--max-length", length, "--batch-size", batch,
      "--logging-steps", "1", "--state-after-run", "discard", "--io-engine",
      c->io_engine};
  for (; n < sizeof words / sizeof *words; n++)
    argv[n] = (char *)words[n];
  for (size_t i = 0; i < c->nvme_path.n_items && at < sizeof drives; i++)
    at += (size_t)snprintf(drives + at, sizeof drives - at, "%s%s", i ? "," : "",
                           c->nvme_path.items[i]);
  if (at >= sizeof drives)
    return pen_error_set(PEN_EUSAGE, "the names of the directories are too long");
  if (drives[0]) {
    argv[n++] = (char *)"--nvme-path";
    argv[n++] = drives;
    argv[n++] = (char *)"--offload-optimizer";
    argv[n++] = (char *)"nvme";
  }
  argv[n] = NULL;
  int rc = run_self(b, argv);
  if (rc < 0)
    return rc;
  snprintf(output, sizeof output, "%s/run/log.jsonl", b->folder);
  rc = pen_runlog_read(output, see_line, b);
  if (rc == 0 && b->n_seen < WARM_STEPS + b->n_runs)
    rc = pen_error_set(PEN_EFORMAT, "%zu steps are in the log, not %zu", b->n_seen,
                       WARM_STEPS + b->n_runs);
  return rc;
}

static void tell(struct step_bench *b, struct pen_bench_table *table)
{
  double share = pen_bench_median(b->share, b->n_runs);
  double rate = (double)b->tokens / pen_bench_median(b->seconds, b->n_runs);
  char ceiling[64];
  snprintf(ceiling, sizeof ceiling, "its %s lane alone", b->lane);
  pen_bench_add(table, "tokens/s", (double)b->tokens, b->seconds, b->n_runs,
                (struct pen_bench_ceiling){share > 0 ? rate / share : 0, ceiling},
                "training step of %zu tokens, state %s", b->tokens,
                b->config->nvme_path.n_items ? "on drives" : "in RAM");
  pen_bench_note(table, "step: the %s lane binds, busy %.0f %% of the time; %s",
                 b->lane, 100 * share,
                 b->config->model ? b->config->model
                                  : "a llama of 20 million parameters");
}

int pen_bench_step(const struct pen_config *config, size_t n_runs,
                   struct pen_bench_table *table)
{
  struct step_bench b = {.config = config, .n_runs = n_runs};
  char model[PATH_MAX + 16], tokens[PATH_MAX + 16];
  char *found = NULL;
  size_t tokens_wanted = config->tokens_per_step ? config->tokens_per_step : TOKENS;
  b.length = tokens_wanted < LENGTH ? tokens_wanted : LENGTH;
  b.tokens = tokens_wanted / b.length * b.length;
  pen_settings_temporary("step", b.folder, sizeof b.folder);
  int rc = pen_settings_make_temporary(b.folder);
  if (rc < 0)
    return rc;
  snprintf(tokens, sizeof tokens, "%s/tokens.u32", b.folder);
  if (config->model)
    rc = pen_model_dir_find(config->model, &found);
  else
    rc = make_model(&b, model, sizeof model);
  if (config->model)
    b.model = found;
  if (rc == 0)
    rc = make_tokens(&b, tokens);
  if (rc == 0)
    rc = train(&b, tokens);
  if (rc == 0)
    tell(&b, table);
  nftw(b.folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
  free(found);
  return rc;
}
