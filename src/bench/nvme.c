/* nvme.c: one drive, by direct I/O in the pattern of a run: tiles, several in
 * flight, read and written at once.
 *
 * Every page of the file is different and incompressible; it is checked that
 * the page cache holds none of it, before and after reading, and that what is
 * read is what was written.  The file is made here, has a size given before,
 * and is removed whatever happens.  Main thread.  Disadvantage: a drive's own
 * write cache may be larger than the file, and then the rate is a burst's. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "io/transfer.h"
#include "src/bench/bench.h"

#define TILE_BYTES ((size_t)4 << 20)
#define DEPTH 8 /* tiles in flight */
#define PAGE ((size_t)PEN_ENGINE_ALIGN)
#define SMALL_RUNS 32 /* of one page: latencies */
#define RESIDENT_MAX 0.01 /* share of pages in the cache that is an accident */

struct bench {
  const struct pen_bench_options *o;
  const struct pen_engine *engine;
  char path[PATH_MAX];
  struct pen_engine_file *file;
  struct pen_transfer_queue *queue;
  unsigned char *buffers; /* [DEPTH, TILE_BYTES] */
  size_t n_tiles;
};

/* ---- what lies in the file ---- */

/* Page `page`: its number, then the random sequence that the number seeds, so
 * that no two are equal and none can be compressed. */
static void fill_page(unsigned char *out, uint64_t page)
{
  uint64_t *words = (uint64_t *)out;
  uint64_t x = page * UINT64_C(0x9e3779b97f4a7c15) + 1;
  words[0] = page;
  for (size_t i = 1; i < PAGE / sizeof *words; i++) {
    x ^= x << 13; /* xorshift64 (Marsaglia 2003) */
    x ^= x >> 7;
    x ^= x << 17;
    words[i] = x;
  }
}

static void fill_tile(unsigned char *out, size_t tile)
{
  for (size_t p = 0; p < TILE_BYTES / PAGE; p++)
    fill_page(out + p * PAGE, tile * (TILE_BYTES / PAGE) + p);
}

static int verify_tile(const struct bench *b, const unsigned char *in,
                       size_t tile)
{
  unsigned char want[PAGE] __attribute__((aligned(8)));
  for (size_t p = 0; p < TILE_BYTES / PAGE; p++) {
    uint64_t page = tile * (TILE_BYTES / PAGE) + p;
    fill_page(want, page);
    if (memcmp(in + p * PAGE, want, PAGE))
      return pen_error_set(PEN_ECORRUPT, "%s gives back other bytes than were "
                           "written, in page %" PRIu64, b->path, page);
  }
  return 0;
}

/* ---- opening ---- */

static int refuse(const struct bench *b, const char *why)
{
  return pen_error_set(PEN_EUNSUPPORTED,
                       "no drive can be measured in %s: %s; name a directory "
                       "on a local drive",
                       b->path, why);
}

static int open_file(struct bench *b, const char *dir)
{
  snprintf(b->path, sizeof b->path, "%.3900s/penstock-bench.%ld", dir,
           (long)getpid());
  b->engine = pen_engine_find("auto");
  int rc = b->engine->open(b->engine, b->path, true, &b->file);
  if (rc < 0)
    return rc;
  if (!b->file->created)
    return pen_error_set(-EEXIST, "%s is not ours", b->path);
  if (b->file->note[0])
    return refuse(b, b->file->note);
  if (!b->file->direct)
    return refuse(b, "its file system has no direct I/O");
  b->n_tiles = (size_t)(b->o->bytes / TILE_BYTES);
  if (b->n_tiles < 2 * DEPTH)
    return pen_error_set(PEN_EUSAGE, "--bench-size %" PRIu64 " is less than "
                         "the %zu bytes that a drive needs",
                         b->o->bytes, 2 * DEPTH * TILE_BYTES);
  rc = b->engine->allocate(b->file, b->n_tiles * TILE_BYTES);
  if (rc == 0 && posix_memalign((void **)&b->buffers, PAGE, DEPTH * TILE_BYTES))
    rc = pen_error_set(PEN_ENOFIT, "no memory for %zu bytes of buffers",
                       DEPTH * TILE_BYTES);
  struct pen_engine_region region = {b->buffers, DEPTH * TILE_BYTES};
  if (rc == 0)
    rc = pen_transfer_queue_create(b->engine, DEPTH, &b->file, 1, &region, 1,
                                   NULL, NULL, &b->queue);
  return rc;
}

static void close_file(struct bench *b)
{
  struct pen_error kept;
  pen_error_take(&kept);
  pen_transfer_queue_free(&b->queue);
  free(b->buffers);
  bool ours = b->file && b->file->created;
  if (b->file)
    b->engine->close(&b->file);
  if (ours)
    b->engine->remove(b->engine, b->path);
  if (kept.code)
    pen_error_put(&kept);
}

/* ---- passes ---- */

enum direction { READ, WRITE, BOTH };

/* In BOTH, even numbers read the first half of the file while odd ones write
 * the second, as far as the two go alike. */
static void place(const struct bench *b, enum direction way, size_t number,
                  bool *ret_write, size_t *ret_tile)
{
  *ret_write = way == WRITE || (way == BOTH && number % 2);
  *ret_tile = way != BOTH    ? number
              : number % 2 ? b->n_tiles / 2 + number / 2
                             : number / 2;
}

static int submit(struct bench *b, enum direction way, size_t number,
                  size_t buffer, bool fresh)
{
  bool write;
  size_t tile;
  unsigned char *at = b->buffers + buffer * TILE_BYTES;
  place(b, way, number, &write, &tile);
  if (write && fresh)
    fill_tile(at, tile);
  struct pen_transfer t = {.write = write,
                           .offset = (uint64_t)tile * TILE_BYTES,
                           .buffer = at,
                           .bytes = TILE_BYTES,
                           .tag = number * DEPTH + buffer};
  return pen_transfer_submit(b->queue, &t);
}

/* All tiles, DEPTH in flight; then, if any were written, a sync.  fresh: write
 * each tile's own bytes (which takes time), else whatever is in the buffers;
 * verify: compare what was read. */
static int pass(struct bench *b, enum direction way, bool fresh, bool verify,
                double *ret_seconds)
{
  struct pen_transfer_done done[DEPTH];
  size_t n = way == BOTH ? b->n_tiles / 2 * 2 : b->n_tiles, next = 0, over = 0;
  uint64_t begin = pen_clock_ns();
  int rc = 0;
  for (; rc == 0 && next < DEPTH && next < n; next++)
    rc = submit(b, way, next, next, fresh);
  while (rc == 0 && over < n) {
    int got = pen_transfer_reap(b->queue, 1, DEPTH, done);
    rc = got < 0 ? got : 0;
    for (int i = 0; rc == 0 && i < got; i++, over++) {
      size_t buffer = done[i].tag % DEPTH, number = done[i].tag / DEPTH;
      rc = done[i].code;
      if (rc == 0 && verify)
        rc = verify_tile(b, b->buffers + buffer * TILE_BYTES, number);
      if (rc == 0 && next < n)
        rc = submit(b, way, next++, buffer, fresh);
    }
  }
  if (rc == 0 && way != READ)
    rc = b->engine->sync(b->file);
  *ret_seconds = (double)(pen_clock_ns() - begin) * 1e-9;
  return rc;
}

/* Direct transfers leave nothing in the page cache; if it holds the file, the
 * figure is the cache's. */
static int check_residency(const struct bench *b)
{
  size_t bytes = b->n_tiles * TILE_BYTES, n = bytes / PAGE, resident = 0;
  int fd = open(b->path, O_RDONLY | O_CLOEXEC);
  void *map = fd < 0 ? MAP_FAILED
                     : mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
  unsigned char *pages = calloc(n, 1);
  int rc = map == MAP_FAILED || !pages || mincore(map, bytes, pages)
               ? pen_error_set(-errno, "cannot see what the page cache holds "
                               "of %s", b->path)
               : 0;
  for (size_t i = 0; rc == 0 && i < n; i++)
    resident += pages[i] & 1;
  if (map != MAP_FAILED)
    munmap(map, bytes);
  if (fd >= 0)
    close(fd);
  free(pages);
  if (rc == 0 && (double)resident > RESIDENT_MAX * (double)n)
    return refuse(b, "the page cache holds the file in spite of direct I/O");
  return rc;
}

static int measure_rates(struct bench *b, struct pen_bench_table *table,
                         const char *dir, struct pen_machine_drive *drive)
{
  double seconds[3][PEN_BENCH_RUNS_MAX], once;
  double bytes = (double)(b->n_tiles * TILE_BYTES);
  int rc = pass(b, WRITE, true, false, &once); /* blocks get their places */
  if (rc == 0)
    rc = check_residency(b);
  if (rc == 0)
    rc = pass(b, READ, false, true, &once);
  for (size_t i = 0; rc == 0 && i < b->o->n_runs; i++) {
    rc = pass(b, READ, false, false, &seconds[READ][i]);
    if (rc == 0)
      rc = pass(b, WRITE, false, false, &seconds[WRITE][i]);
    if (rc == 0)
      rc = pass(b, BOTH, false, false, &seconds[BOTH][i]);
  }
  if (rc == 0)
    rc = check_residency(b);
  if (rc < 0)
    return rc;
  size_t n = b->o->n_runs;
  double both = (double)(b->n_tiles / 2 * 2) * (double)TILE_BYTES;
  drive->read = pen_bench_add(table, "bytes/s", bytes, seconds[READ], n, 0,
                              "%s read", dir);
  drive->write = pen_bench_add(table, "bytes/s", bytes, seconds[WRITE], n, 0,
                               "%s written and synced", dir);
  drive->mixed = pen_bench_add(table, "bytes/s", both, seconds[BOTH], n, 0,
                               "%s read and written at once, sum", dir);
  return 0;
}

static int measure_latencies(struct bench *b, struct pen_bench_table *table,
                             const char *dir, struct pen_machine_drive *drive)
{
  double reads[SMALL_RUNS], syncs[SMALL_RUNS];
  size_t n_pages = b->n_tiles * (TILE_BYTES / PAGE);
  int rc = 0;
  for (size_t i = 0; rc == 0 && i < SMALL_RUNS; i++) {
    uint64_t page = pen_rng_below(1, i, 0, n_pages), begin = pen_clock_ns();
    rc = pen_engine_read_whole(b->file, b->buffers, PAGE, page * PAGE, NULL);
    reads[i] = (double)(pen_clock_ns() - begin) * 1e-9;
    if (rc == 0)
      rc = pen_engine_write_whole(b->file, b->buffers, PAGE, page * PAGE, NULL);
    begin = pen_clock_ns();
    if (rc == 0)
      rc = b->engine->sync(b->file);
    syncs[i] = (double)(pen_clock_ns() - begin) * 1e-9;
  }
  if (rc < 0)
    return rc;
  drive->latency_s = 1 / pen_bench_add(table, "reads/s", 1, reads, SMALL_RUNS,
                                       0, "%s one page after the other", dir);
  drive->sync_s = 1 / pen_bench_add(table, "syncs/s", 1, syncs, SMALL_RUNS, 0,
                                    "%s fdatasync after one page", dir);
  return 0;
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

int pen_bench_nvme(const struct pen_bench_options *options, const char *dir,
                   struct pen_bench_table *table, struct pen_machine *machine)
{
  struct pen_machine_drive drive = {.path = ""};
  struct bench b = {.o = options};
  char real[PATH_MAX];
  if (!realpath(dir, real))
    return pen_error_set(-errno, "cannot measure in %s", dir);
  if (strlen(real) >= sizeof drive.path)
    return pen_error_set(PEN_EUSAGE, "the path of %s is longer than %zu bytes",
                         real, sizeof drive.path - 1);
  memcpy(drive.path, real, strlen(real) + 1);
  int rc = open_file(&b, dir);
  if (rc == 0)
    rc = measure_rates(&b, table, dir, &drive);
  if (rc == 0)
    rc = measure_latencies(&b, table, dir, &drive);
  close_file(&b);
  return rc < 0 ? rc : keep(machine, &drive);
}
