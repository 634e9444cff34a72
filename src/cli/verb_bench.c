/* verb_bench.c: `penstock bench`: measures this machine's ceilings, prints them
 * with their spread, and keeps them in the machine profile.
 *
 * What was measured before and is not measured now stays in the profile.
 * Disadvantage: other programs at work are measured along. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/size.h"
#include "base/thread.h"
#include "io/files.h"
#include "src/bench/nvme.h"
#include "src/cli/bench.h"
#include "src/cli/profile.h"
#include "src/cli/stop.h"
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

/* Its folder, made where there is none: seen before minutes of measuring. */
static int make_folder(const char *path)
{
  char folder[4096];
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  int rc = 0;
  if (!slash) {
    snprintf(folder, sizeof folder, ".");
  } else if (slash != folder) {
    *slash = '\0';
    rc = pen_files_make_dirs(folder);
  } else {
    slash[1] = '\0';
  }
  if (rc == 0 && access(folder, W_OK | X_OK))
    rc = pen_error_set(-errno, "cannot write a profile into %s", folder);
  return rc < 0 ? pen_error_context(rc, "give --profile FILE") : 0;
}

static int save_profile(const char *path, const struct pen_machine *m)
{
  int rc = pen_machine_save(m, path);
  fflush(stdout); /* the next line goes elsewhere */
  if (rc == 0)
    pen_log_info("profile: %s", path);
  return rc;
}

/* ---- what is asked for ---- */

static size_t numbers(const struct pen_option_list *list, uint64_t *ret_numbers)
{
  size_t n = list->n_items < PEN_BENCH_LIST_MAX ? list->n_items
                                                : PEN_BENCH_LIST_MAX;
  for (size_t i = 0; i < n; i++)
    ret_numbers[i] = pen_option_list_number(list, i);
  return n;
}

static int by_size(const void *a, const void *b)
{
  size_t x = *(const size_t *)a, y = *(const size_t *)b;
  return (x > y) - (x < y);
}

/* Unless told: 1, 2, 4 ... and all CPUs. */
static void set_threads(const struct pen_config *config,
                        struct pen_bench_options *o)
{
  uint64_t given[PEN_BENCH_LIST_MAX];
  size_t n = numbers(&config->bench_threads, given);
  size_t cpus = pen_thread_usable_cpus();
  for (size_t i = 0; i < n; i++)
    o->thread_list[i] = (size_t)given[i];
  for (size_t t = 1; !config->bench_threads.n_items && t < cpus; t *= 2)
    o->thread_list[n++] = t;
  if (!config->bench_threads.n_items)
    o->thread_list[n++] = cpus;
  qsort(o->thread_list, n, sizeof *o->thread_list, by_size);
  o->n_thread_list = n;
  o->threads = o->thread_list[n - 1];
}

/* A sweep only where drives are all that is asked for. */
static int set_drives(const struct pen_config *config, bool alone,
                      struct pen_bench_drives *d)
{
  static const uint64_t requests[] = {256 << 10, 1 << 20, 4 << 20};
  static const uint64_t depths[] = {1, 2, 4, 8, 16, 32};
  *d = (struct pen_bench_drives){
      .dirs = (const char *const *)config->nvme_path.items,
      .n_dirs = config->nvme_path.n_items,
      .soak = config->soak,
      .soak_bytes = config->max_write,
      .idle_s = config->soak_idle};
  d->n_requests = numbers(&config->request_sizes, d->requests);
  d->n_depths = numbers(&config->bench_depths, d->depths);
  d->n_state_bytes = numbers(&config->state_bytes, d->state_bytes);
  bool wanted = alone || d->n_requests || d->n_depths;
  if (wanted && !d->n_requests) {
    d->n_requests = sizeof requests / sizeof *requests;
    memcpy(d->requests, requests, sizeof requests);
  }
  if (wanted && !d->n_depths) {
    d->n_depths = sizeof depths / sizeof *depths;
    memcpy(d->depths, depths, sizeof depths);
  }
  if (d->n_dirs > PEN_MACHINE_DRIVES_MAX)
    return pen_error_set(PEN_EUSAGE, "%zu directories are more drives than the "
                         "%d that a profile has room for",
                         d->n_dirs, PEN_MACHINE_DRIVES_MAX);
  return pen_engine_parse(config->io_engine, &d->engine);
}

/* ---- the verb ---- */

#define RAM_BYTES PEN_GIB
#define DRIVE_BYTES (4 * PEN_GIB)

static int run_drives(const struct pen_config *config, bool alone,
                      struct pen_bench_options o, struct pen_bench_table *table,
                      struct pen_machine *m)
{
  struct pen_bench_drives *d = calloc(1, sizeof *d);
  int rc = d ? set_drives(config, alone, d)
             : pen_error_set(PEN_ENOFIT, "no memory for a list of drives");
  if (config->bench_size == PEN_CONFIG_AUTO)
    o.bytes = DRIVE_BYTES;
  if (rc == 0 && d->n_dirs)
    d->stop = pen_stop_on_signals(); /* a soak still tells what it saw */
  if (rc == 0 && d->n_dirs)
    rc = pen_bench_nvme(&o, d, table, m);
  if (d)
    pen_engine_release(&d->engine);
  free(d);
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
  if (rc == 0 && (all || strcmp(what, "gemm") == 0))
    rc = pen_bench_passes(o, table, m);
  if (rc == 0 && (all || strcmp(what, "adam") == 0))
    rc = pen_bench_adam(o, table, m);
  if (rc == 0 && strcmp(what, "step") == 0)
    rc = pen_bench_step(config, o->n_runs, table);
  if (rc == 0 && strcmp(what, "link") == 0)
    rc = pen_bench_device_link(o, config->device, table, m);
  if (rc == 0 && (all || strcmp(what, "device") == 0))
    rc = run_device(config, o, all, table, m);
  if (rc == 0 && (all || strcmp(what, "nvme") == 0))
    rc = run_drives(config, !all, *o, table, m);
  return rc;
}

static int measure(const struct pen_config *config,
                   const struct pen_bench_options *o, const char *path,
                   struct pen_machine *machine)
{
  struct pen_bench_table *table = calloc(1, sizeof *table);
  struct pen_bench_advice advice = {.asked = false};
  int rc = table ? run(config, o, table, machine)
                 : pen_error_set(PEN_ENOFIT, "no memory for results");
  if (rc == 0 && strcmp(config->bench, "step"))
    rc = pen_bench_advice_make(config, machine, &advice);
  if (rc == 0)
    rc = pen_bench_print(config->output_format, table, &advice, machine);
  free(table);
  return rc < 0 ? rc : save_profile(path, machine);
}

int pen_verb_bench(const struct pen_config *config)
{
  struct pen_bench_options o = {.n_runs = config->repeats,
                                .bytes = config->bench_size
                                             ? config->bench_size
                                             : RAM_BYTES};
  struct pen_machine machine;
  char path[4096];
  set_threads(config, &o);
  int rc = pen_isa_choose(config->isa, &o.isa);
  if (rc == 0)
    rc = pen_profile_path(config->profile, path, sizeof path);
  if (rc == 0)
    rc = open_profile(path, &machine);
  if (rc == 0 && strcmp(config->bench, "tiers") == 0)
    return pen_bench_show_tiers(config->output_format, &o, &machine);
  if (rc == 0)
    rc = make_folder(path);
  return rc < 0 ? rc : measure(config, &o, path, &machine);
}
