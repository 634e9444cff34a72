/* nvme.c: drives, each alone and then all together.
 *
 * One thread a drive when they are together, the calling one for the first.
 * Disadvantage: what a run adds, waiting for its other lanes, is not here. */
#include "src/bench/nvme.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/thread.h"
#include "src/bench/nvme_drive.h"

struct part {
  struct pen_bench_drive *drive;
  struct pen_bench_pattern pattern;
  double seconds[PEN_BENCH_RUNS_MAX];
  int code;
  struct pen_error error;
};

static void run_part(void *arg)
{
  struct part *p = arg;
  p->code = pen_bench_drive_measure(p->drive, &p->pattern, p->drive->o->n_runs, p->seconds);
  pen_error_take(&p->error);
}

/* Windows of equal time, so that the fast do not leave the slow alone. */
static int run_parts(struct part *parts, size_t n)
{
  struct pen_thread threads[PEN_MACHINE_DRIVES_MAX] = {0};
  int rc = 0;
  for (size_t i = 1; rc == 0 && i < n; i++)
    rc = pen_thread_create(&threads[i], "drive", run_part, &parts[i]);
  if (rc == 0)
    run_part(&parts[0]);
  for (size_t i = 1; i < n; i++)
    pen_thread_join(&threads[i]);
  for (size_t i = 0; rc == 0 && i < n; i++)
    if (parts[i].code < 0)
      rc = pen_error_put(&parts[i].error);
  return rc;
}

static int measure_together(struct pen_bench_drive *drives, size_t n,
                            enum pen_bench_way way, uint64_t state_bytes,
                            struct pen_bench_table *table)
{
  struct part parts[PEN_MACHINE_DRIVES_MAX];
  size_t n_runs = drives[0].o->n_runs;
  double sums[PEN_BENCH_RUNS_MAX], alone = 0;
  for (size_t i = 0; i < n; i++) {
    const struct pen_machine_drive *m = &drives[i].found;
    parts[i] = (struct part){.drive = &drives[i]};
    parts[i].pattern = pen_bench_pattern_of(&drives[i], way, state_bytes);
    alone += way == PEN_BENCH_READ    ? m->read
             : way == PEN_BENCH_WRITE ? m->write
                                      : m->mixed;
  }
  int rc = run_parts(parts, n);
  for (size_t run = 0; rc == 0 && run < n_runs; run++) {
    double rate = 0;
    for (size_t i = 0; i < n; i++)
      rate += 1 / parts[i].seconds[run];
    sums[run] = 1 / rate;
  }
  if (rc == 0)
    pen_bench_add(table, "bytes/s", 1, sums, n_runs,
                  (struct pen_bench_ceiling){alone, "their sum alone"},
                  "%zu drives together, %s", n, pen_bench_way_name(way));
  return rc;
}

/* The profile's drive of that path, or a new one. */
static int keep(struct pen_machine *m, const struct pen_machine_drive *drive)
{
  size_t i = 0;
  while (i < m->n_drives && strcmp(m->drives[i].path, drive->path))
    i++;
  if (i == PEN_MACHINE_DRIVES_MAX)
    return pen_error_set(PEN_ENOFIT, "a profile has room for %d drives; remove "
                         "one from it",
                         PEN_MACHINE_DRIVES_MAX);
  m->drives[i] = *drive;
  m->n_drives += i == m->n_drives;
  return 0;
}

/* Before any is measured: two directories of one drive are no two drives. */
static int compare(const char *const *dirs, size_t i,
                   struct pen_bench_table *table)
{
  struct stat mine, other;
  if (stat(dirs[i], &mine))
    return pen_error_set(-errno, "cannot measure in %s", dirs[i]);
  for (size_t k = 0; k < i; k++) {
    if (stat(dirs[k], &other) || mine.st_dev != other.st_dev)
      continue;
    if (mine.st_ino == other.st_ino)
      return pen_error_set(PEN_EUSAGE, "%s and %s are the same directory; name "
                           "each drive once", dirs[k], dirs[i]);
    pen_bench_note(table, "%s and %s lie in one file system: what they do "
                   "together is one drive's work", dirs[k], dirs[i]);
  }
  return 0;
}

int pen_bench_nvme(const struct pen_bench_options *options,
                   const struct pen_bench_drives *drives,
                   struct pen_bench_table *table, struct pen_machine *machine)
{
  struct pen_bench_drive all[PEN_MACHINE_DRIVES_MAX];
  size_t n = drives->n_dirs, n_open = 0;
  int rc = 0;
  for (size_t i = 0; rc == 0 && i < n; i++)
    rc = compare(drives->dirs, i, table);
  for (size_t i = 0; rc == 0 && i < n; i++) {
    all[i] = (struct pen_bench_drive){.o = options};
    n_open++;
    rc = pen_bench_drive_open(&all[i], drives, drives->dirs[i]);
    if (rc == 0 && drives->soak)
      rc = pen_bench_drive_soak(&all[i], drives, table);
    if (rc == 0)
      rc = pen_bench_drive_sweep(&all[i], drives, table);
    if (rc == 0)
      rc = pen_bench_drive_rates(&all[i], drives, table);
  }
  for (int way = 0; rc == 0 && n > 1 && way < PEN_BENCH_WAYS; way++)
    rc = measure_together(all, n, (enum pen_bench_way)way,
                          drives->state_bytes[0], table);
  for (size_t i = 0; rc == 0 && i < n; i++) {
    rc = pen_bench_drive_finish(&all[i], table);
    if (rc == 0)
      rc = keep(machine, &all[i].found);
  }
  for (size_t i = 0; i < n_open; i++)
    pen_bench_file_close(&all[i].file);
  return rc;
}
