/* verb_bench.c: `penstock bench`: measures this machine's ceilings, prints them
 * with their spread, and keeps them in the machine profile.
 *
 * What was measured before and is not measured now stays in the profile.
 * Disadvantage: other programs at work are measured along. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/size.h"
#include "base/thread.h"
#include "io/files.h"
#include "io/json_write.h"
#include "src/bench/bench.h"
#include "src/cli/profile.h"
#include "src/cli/verb.h"

/* ---- results ---- */

static void print_rate(double rate)
{
  static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t i = 0;
  for (; rate >= 1000 && i + 1 < sizeof prefixes / sizeof *prefixes; i++)
    rate /= 1000;
  printf("%.4g%s%s", rate, *prefixes[i] ? " " : "", prefixes[i]);
}

static void print_text(const struct pen_bench_table *table)
{
  for (size_t i = 0; i < table->n_rows; i++) {
    const struct pen_bench_row *r = &table->rows[i];
    printf("%-46s  ", r->name);
    print_rate(r->median);
    printf(" %s (", r->unit);
    print_rate(r->least);
    printf(" to ");
    print_rate(r->most);
    printf(" in %zu runs)", r->n_runs);
    if (r->of_ceiling > 0)
      printf(", %.0f %% of the ceiling", 100 * r->of_ceiling);
    putchar('\n');
  }
}

/* What drives add to a step of models whose state is all on them: p, m and v
 * are read and written once, 12 bytes each way a parameter, while nothing else
 * is slower.  Stores are striped evenly, so the slowest drive counts. */
static double state_rate(const struct pen_machine *m)
{
  double slowest = m->drives[0].mixed;
  for (size_t d = 1; d < m->n_drives; d++)
    if (m->drives[d].mixed < slowest)
      slowest = m->drives[d].mixed;
  return slowest * (double)m->n_drives;
}

static const double sizes[] = {1.5e9, 3e9, 7e9, 14e9, 32e9, 70e9};
#define STATE_BYTES_EACH_WAY 12

static void print_models(const struct pen_machine *m)
{
  char text[PEN_SIZE_TEXT_BYTES];
  if (!m->n_drives || state_rate(m) <= 0)
    return;
  printf("with all state on the profile's %zu drive%s a step takes at least\n",
         m->n_drives, m->n_drives > 1 ? "s" : "");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    double bytes = STATE_BYTES_EACH_WAY * sizes[i];
    pen_size_format((uint64_t)bytes, text);
    printf("  %4g B parameters: %6.4g s, writing %s\n", sizes[i] / 1e9,
           2 * bytes / state_rate(m), text);
  }
}

static void put_models(struct pen_json_writer *w, const struct pen_machine *m)
{
  pen_json_begin_array(w, "steps_with_state_on_drives");
  for (size_t i = 0; m->n_drives && state_rate(m) > 0 &&
                     i < sizeof sizes / sizeof *sizes; i++) {
    double bytes = STATE_BYTES_EACH_WAY * sizes[i];
    pen_json_begin_object(w, NULL);
    pen_json_put_double(w, "parameters", sizes[i]);
    pen_json_put_double(w, "least_seconds", 2 * bytes / state_rate(m));
    pen_json_put_double(w, "written_bytes", bytes);
    pen_json_end_object(w);
  }
  pen_json_end_array(w);
}

static int print_json(const struct pen_bench_table *table,
                      const struct pen_machine *machine)
{
  struct pen_json_writer w;
  const char *text;
  size_t bytes;
  pen_json_writer_init(&w, NULL, 0, true);
  pen_json_begin_object(&w, NULL);
  pen_json_begin_array(&w, "results");
  for (size_t i = 0; i < table->n_rows; i++) {
    const struct pen_bench_row *r = &table->rows[i];
    pen_json_begin_object(&w, NULL);
    pen_json_put_string(&w, "name", r->name);
    pen_json_put_string(&w, "unit", r->unit);
    pen_json_put_double(&w, "median", r->median);
    pen_json_put_double(&w, "least", r->least);
    pen_json_put_double(&w, "most", r->most);
    pen_json_put_u64(&w, "runs", r->n_runs);
    if (r->of_ceiling > 0)
      pen_json_put_double(&w, "of_ceiling", r->of_ceiling);
    pen_json_end_object(&w);
  }
  pen_json_end_array(&w);
  put_models(&w, machine);
  pen_machine_write(machine, &w, "profile");
  pen_json_end_object(&w);
  int rc = pen_json_finish(&w, &text, &bytes);
  if (rc == 0)
    puts(text);
  pen_json_writer_done(&w);
  return rc;
}

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
  if (rc == 0)
    rc = run(config, &o, &table, &machine);
  if (rc == 0 && config->output_format == PEN_CONFIG_OUTPUT_JSON)
    rc = print_json(&table, &machine);
  else if (rc == 0) {
    print_text(&table);
    print_models(&machine);
  }
  return rc < 0 ? rc : save_profile(path, &machine);
}
