/* nvme_drive.c: one drive: opened, measured in the pattern of a run, looked at
 * again.
 *
 * Rates are of windows in which the full depth is in flight from the first
 * moment to the last; what a sync then costs is a row of its own.  The thread
 * that opened the drive.  Disadvantage: a drive's own write cache may be larger
 * than the file, and then the rate is a burst's, unless a soak came before. */
#include "src/bench/nvme_drive.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/size.h"
#include "src/bench/soak.h"

#define SMALL_RUNS 32      /* of one page: latencies */
#define WINDOW_SECONDS 1.0 /* least length of one that counts */
#define LEAST_BYTES (16 * PEN_MIB)
#define SOAK_WINDOW_SECONDS 0.25
#define SOAK_SETTLE_SECONDS 60

int pen_bench_drive_measure(struct pen_bench_drive *d, const struct pen_bench_pattern *p, size_t n_runs,
                   double *ret_seconds)
{
  const struct pen_bench_traffic_options how = {
      .way = p->way, .request = p->request, .depth = p->depth, .stop = d->stop};
  struct pen_bench_traffic *t = NULL;
  uint64_t bytes = 0;
  double seconds = 0;
  int rc = pen_bench_traffic_open(&d->file, &how, &t);
  if (rc == 0) /* gets into its stride */
    rc = pen_bench_traffic_move(t, 2 * p->depth * p->request, 0, &bytes, &seconds);
  for (size_t i = 0; rc == 0 && i < n_runs; i++) {
    rc = pen_bench_traffic_move(t, 0, p->seconds, &bytes, &seconds);
    ret_seconds[i] = seconds / (double)bytes;
  }
  if (rc == 0)
    rc = pen_bench_traffic_sync(t, &seconds);
  if (rc == 0 && p->way != PEN_BENCH_READ && seconds > d->sync_s)
    d->sync_s = seconds;
  pen_bench_traffic_close(&t);
  return rc;
}

/* A run's own transfer of one tile, which a small file may not hold. */
static size_t tile_bytes(const struct pen_bench_drive *d, uint64_t state_bytes)
{
  uint64_t most = d->file.bytes / (8 * PEN_BENCH_LANE_DEPTH) /
                  PEN_BENCH_GRAIN * PEN_BENCH_GRAIN;
  uint64_t tile = state_bytes * PEN_BENCH_TILE_ELEMS;
  return (size_t)(tile < most ? tile : most);
}

struct pen_bench_pattern pen_bench_pattern_of(const struct pen_bench_drive *d, enum pen_bench_way way,
                                 uint64_t state_bytes)
{
  return (struct pen_bench_pattern){.way = way,
                          .request = tile_bytes(d, state_bytes),
                          .depth = PEN_BENCH_LANE_DEPTH *
                                   (way == PEN_BENCH_UPDATE ? 2 : 1),
                          .seconds = WINDOW_SECONDS};
}

/* One thing to measure, and where its rate goes. */
struct series {
  struct pen_bench_pattern pattern;
  double seconds[PEN_BENCH_RUNS_MAX];
  double *rate; /* NULL: the table alone */
};
#define SERIES_MAX (PEN_BENCH_WAYS + PEN_BENCH_LIST_MAX)

/* Bytes of all windows, which are equally long, by the time of all: what a run
 * of many steps gets of a drive that is now fast, now slow. */
static double mean_rate(const double *seconds, size_t n)
{
  double sum = 0;
  for (size_t i = 0; i < n; i++)
    sum += 1 / seconds[i];
  return sum / (double)n;
}

static void add_rate(const struct pen_bench_drive *d, struct series *s,
                     struct pen_bench_table *table)
{
  char size[PEN_SIZE_TEXT_BYTES];
  pen_size_format(s->pattern.request, size);
  if (s->rate)
    *s->rate = mean_rate(s->seconds, d->o->n_runs);
  pen_bench_add(table, "bytes/s", 1, s->seconds, d->o->n_runs,
                PEN_BENCH_NO_CEILING, "%s %s, %s x %zu", d->dir,
                pen_bench_way_name(s->pattern.way), size, s->pattern.depth);
}

/* ---- one drive ---- */

int pen_bench_drive_open(struct pen_bench_drive *d, const struct pen_bench_drives *drives,
                      const char *dir)
{
  char real[PATH_MAX];
  d->dir = dir;
  d->file.fd = -1;
  d->stop = drives->stop;
  if (!realpath(dir, real))
    return pen_error_set(-errno, "cannot measure in %s", dir);
  if (strlen(real) >= sizeof d->found.path)
    return pen_error_set(PEN_EUSAGE, "the path of %s is longer than %zu bytes",
                         real, sizeof d->found.path - 1);
  memcpy(d->found.path, real, strlen(real) + 1);
  if (d->o->bytes < LEAST_BYTES)
    return pen_error_set(PEN_EUSAGE, "--bench-size %llu is less than the %llu "
                         "bytes that a drive needs",
                         (unsigned long long)d->o->bytes,
                         (unsigned long long)LEAST_BYTES);
  int rc = pen_bench_file_open(drives->engine, dir, d->o->bytes, &d->file);
  if (rc == 0) /* blocks get their places */
    rc = pen_bench_traffic_fill(&d->file, d->stop);
  if (rc == 0)
    rc = pen_bench_file_look(&d->file);
  return rc < 0 ? rc : pen_bench_traffic_verify(&d->file, d->stop);
}

static int take_turns(struct pen_bench_drive *d, struct series *all, size_t n)
{
  int rc = 0;
  for (size_t run = 0; rc == 0 && run < d->o->n_runs; run++)
    for (size_t i = 0; rc == 0 && i < n; i++)
      rc = pen_bench_drive_measure(d, &all[i].pattern, 1, &all[i].seconds[run]);
  return rc;
}

/* In turns, each in its own stride: what a drive gives may change by the second,
 * and then it does so for all of them. */
int pen_bench_drive_rates(struct pen_bench_drive *d, const struct pen_bench_drives *drives,
                         struct pen_bench_table *table)
{
  double *const keep[PEN_BENCH_WAYS] = {&d->found.read, &d->found.write,
                                        &d->found.mixed};
  struct series *all = calloc(SERIES_MAX, sizeof *all);
  size_t n = 0;
  if (!all)
    return pen_error_set(PEN_ENOFIT, "no memory to measure a drive with");
  for (int way = 0; way < PEN_BENCH_WAYS; way++, n++) {
    all[n].pattern = pen_bench_pattern_of(d, (enum pen_bench_way)way, drives->state_bytes[0]);
    all[n].rate = keep[way];
  }
  for (size_t i = 1; i < drives->n_state_bytes; i++)
    all[n++].pattern = pen_bench_pattern_of(d, PEN_BENCH_UPDATE, drives->state_bytes[i]);
  int rc = take_turns(d, all, n);
  for (size_t i = 0; rc == 0 && i < n; i++)
    add_rate(d, &all[i], table);
  free(all);
  return rc;
}

/* A commit syncs what a step wrote, and then its manifest: the profile's sync
 * is the mean of the two. */
static int measure_latencies(struct pen_bench_drive *d, struct pen_bench_table *table)
{
  static _Alignas(PEN_ENGINE_ALIGN) unsigned char page[PEN_BENCH_PAGE];
  struct pen_engine_file *file = d->file.file;
  double reads[SMALL_RUNS], syncs[SMALL_RUNS];
  size_t n_pages = (size_t)(d->file.bytes / PEN_BENCH_PAGE);
  int rc = 0;
  for (size_t i = 0; rc == 0 && i < SMALL_RUNS; i++) {
    uint64_t at = pen_rng_below(1, i, 0, n_pages) * PEN_BENCH_PAGE;
    uint64_t begin = pen_clock_ns();
    rc = pen_engine_read_whole(file, page, PEN_BENCH_PAGE, at, NULL);
    reads[i] = (double)(pen_clock_ns() - begin) * 1e-9;
    if (rc == 0)
      rc = pen_engine_write_whole(file, page, PEN_BENCH_PAGE, at, NULL);
    begin = pen_clock_ns();
    if (rc == 0)
      rc = file->engine->sync(file);
    syncs[i] = (double)(pen_clock_ns() - begin) * 1e-9;
  }
  if (rc < 0)
    return rc;
  d->found.latency_s =
      1 / pen_bench_add(table, "reads/s", 1, reads, SMALL_RUNS,
                        PEN_BENCH_NO_CEILING, "%s one page after the other",
                        d->dir);
  double small = 1 / pen_bench_add(table, "syncs/s", 1, syncs, SMALL_RUNS,
                                   PEN_BENCH_NO_CEILING,
                                   "%s fdatasync after one page", d->dir);
  pen_bench_add(table, "syncs/s", 1, &d->sync_s, 1, PEN_BENCH_NO_CEILING,
                "%s fdatasync after many tiles, the slowest", d->dir);
  d->found.sync_s = (small + d->sync_s) / 2;
  return 0;
}

/* ---- for long ---- */

int pen_bench_drive_soak(struct pen_bench_drive *d, const struct pen_bench_drives *drives,
                      struct pen_bench_table *table)
{
  struct pen_disk disk;
  struct stat st;
  struct pen_bench_pattern p = pen_bench_pattern_of(d, PEN_BENCH_WRITE, drives->state_bytes[0]);
  struct pen_bench_soak_options o = {
      .request = p.request, .depth = p.depth, .window_s = SOAK_WINDOW_SECONDS,
      .settle_s = SOAK_SETTLE_SECONDS, .idle_s = drives->idle_s,
      .most_bytes = drives->soak_bytes ? drives->soak_bytes : 3 * d->file.bytes,
      .stop = d->stop};
  if (stat(d->dir, &st) == 0 && pen_disk_find("/sys", st.st_dev, &disk))
    o.disk = &disk;
  struct pen_bench_soak soak;
  int rc = pen_bench_soak(&d->file, &o, &soak);
  if (rc < 0)
    return rc;
  pen_bench_soak_rows(&soak, &o, d->dir, table);
  d->sustained = soak.dropped ? soak.sustained : 0;
  return 0;
}

/* What was measured in the cache is not what a run of hours sees: each byte
 * written, alone or with one read, waits for the drive behind it. */
static void bound_by_sustained(struct pen_bench_drive *d)
{
  struct pen_machine_drive *m = &d->found;
  if (d->sustained <= 0)
    return;
  m->write = m->write < d->sustained ? m->write : d->sustained;
  m->mixed = m->mixed < 2 * d->sustained ? m->mixed : 2 * d->sustained;
}

/* ---- the end ---- */

static int look_again(struct pen_bench_drive *d, struct pen_bench_table *table)
{
  char text[PEN_SIZE_TEXT_BYTES], size[PEN_SIZE_TEXT_BYTES];
  int rc = pen_bench_traffic_verify(&d->file, d->stop);
  if (rc == 0)
    rc = pen_bench_file_look(&d->file);
  if (rc < 0)
    return rc;
  pen_size_format(d->file.bytes, size);
  pen_size_format(d->file.written_bytes, text);
  pen_bench_note(table, "%s: direct I/O on a file of %s, the page cache was "
                 "passed by (seen before and after), what was read was what had "
                 "been written; %s were written", d->dir, size, text);
  return 0;
}

int pen_bench_drive_finish(struct pen_bench_drive *drive,
                           struct pen_bench_table *table)
{
  int rc = look_again(drive, table);
  if (rc == 0)
    rc = measure_latencies(drive, table);
  if (rc == 0)
    bound_by_sustained(drive);
  return rc;
}
