/* verb_bench.c: `penstock bench`: measures this machine's ceilings, prints them
 * with their spread, and keeps them in the machine profile.
 *
 * What was measured before and is not measured now stays in the profile.
 * Disadvantage: other programs at work are measured along. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/size.h"
#include "base/thread.h"
#include "io/files.h"
#include "src/cli/bench.h"
#include "src/cli/profile.h"
#include "src/cli/verb.h"

/* ---- the profile ---- */

/* What is there, or a new one of this machine. */
static int open_profile(const char *path, struct pen_machine *m)
{
  int rc = 0;
  *m = (struct pen_machine){.cores = 0};
  if (pen_files_exists(path))
    rc = pen_machine_load(path, m);
  if (rc < 0)
    return pen_error_context(rc, "bench adds to a profile that is there; move "
                                 "it away to begin anew");
  m->cores = pen_thread_usable_cpus();
  if (!m->name[0] && gethostname(m->name, sizeof m->name) == 0)
    m->name[sizeof m->name - 1] = '\0';
  return 0;
}

static int save_profile(const char *path, const struct pen_machine *m)
{
  char folder[4096];
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  int rc = 0;
  if (slash && slash != folder) {
    *slash = '\0';
    rc = pen_files_make_dirs(folder);
  }
  if (rc == 0)
    rc = pen_machine_save(m, path);
  if (rc == 0)
    pen_log_info("profile: %s", path);
  return rc;
}

/* ---- the verb ---- */

static int run_drives(const struct pen_config *config,
                      const struct pen_bench_options *o,
                      struct pen_bench_table *table, struct pen_machine *m)
{
  char text[PEN_SIZE_TEXT_BYTES];
  int rc = 0;
  pen_size_format(o->bytes, text);
  for (size_t i = 0; rc == 0 && i < config->nvme_path.n_items; i++)
    rc = pen_bench_nvme(o, config->nvme_path.items[i], table, m);
  if (rc == 0 && config->nvme_path.n_items)
    pen_log_info("drives: direct I/O, the page cache was passed by (checked), "
                 "what was read was what had been written (checked); files of "
                 "%s: give a --bench-size beyond a drive's own cache to see "
                 "what it sustains",
                 text);
  return rc;
}

/* optional: as a part of "all", where having no device is no failure. */
static int run_device(const struct pen_config *config,
                      const struct pen_bench_options *o, bool optional,
                      struct pen_bench_table *table, struct pen_machine *m)
{
  int rc = pen_bench_device(o, config->device, table, m);
  if (rc != -PEN_EUNSUPPORTED || !optional)
    return rc;
  pen_log_info("no device was measured: %s", pen_error_text());
  pen_error_clear();
  return 0;
}

static int run(const struct pen_config *config,
               const struct pen_bench_options *o, struct pen_bench_table *table,
               struct pen_machine *m)
{
  const char *what = config->bench;
  bool all = strcmp(what, "all") == 0;
  int rc = 0;
  if (all || strcmp(what, "memory") == 0)
    rc = pen_bench_memory(o, table, m);
  if (rc == 0 && (all || strcmp(what, "gemm") == 0))
    rc = pen_bench_gemm(o, table, m);
  if (rc == 0 && (all || strcmp(what, "adam") == 0))
    rc = pen_bench_adam(o, table, m);
  if (rc == 0 && (all || strcmp(what, "device") == 0))
    rc = run_device(config, o, all, table, m);
  if (rc == 0 && (all || strcmp(what, "nvme") == 0))
    rc = run_drives(config, o, table, m);
  return rc;
}

int pen_verb_bench(const struct pen_config *config)
{
  struct pen_bench_options o = {.threads = config->threads
                                               ? config->threads
                                               : pen_thread_usable_cpus(),
                                .n_runs = config->repeats,
                                .bytes = config->bench_size};
  struct pen_bench_table table = {.n_rows = 0};
  struct pen_machine machine;
  char path[4096];
  int rc = pen_isa_choose(config->isa, &o.isa);
  if (rc == 0)
    rc = pen_profile_path(config->profile, path, sizeof path);
  if (rc == 0)
    rc = open_profile(path, &machine);
  if (rc == 0 && strcmp(config->bench, "tiers") == 0)
    return pen_bench_show_tiers(config->output_format, &o, &machine);
  if (rc == 0)
    rc = run(config, &o, &table, &machine);
  if (rc == 0)
    rc = pen_bench_print(config->output_format, &table, &machine);
  return rc < 0 ? rc : save_profile(path, &machine);
}
