/* file.c: the file, its pages, and what the system shows of where it lies.
 *
 * Page: its number in the file, the serial number of the write that put it
 * there, a seed, then the random sequence that the seed begins.  So a page in a
 * wrong place, an older one and a damaged one are all seen.  Invariant: after
 * open the file has no name.  Disadvantage: while it is measured, free space is
 * gone that no directory shows. */
#include "src/bench/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/size.h"

#define RESIDENT_MAX 0.01 /* share of pages in the cache that is an accident */
#define SPARSE_MAX 0.01   /* and of bytes that the file system has no place for */
#define FREE_SHARE 0.9
#define EXTENTS 128
#define PAGE PEN_BENCH_PAGE
#define WORDS (PAGE / sizeof(uint64_t))

enum { PLACE, SERIAL, SEED, FIRST }; /* words of a page */

/* ---- opening ---- */

static int refuse(const char *dir, const char *why)
{
  return pen_error_set(PEN_EUNSUPPORTED,
                       "no drive can be measured in %s: %s; name a directory "
                       "on a local drive",
                       dir, why);
}

/* Where the system knows the file it loses its name now. */
static int take_name(struct pen_bench_file *f)
{
  struct stat ours;
  f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (f->fd < 0 && f->engine->drive)
    return pen_error_set(-errno, "cannot look at %s", f->path);
  if (f->fd < 0)
    return 0;
  int rc = f->engine->remove(f->engine, f->path);
  f->named = rc < 0;
  if (rc == 0 && (fstat(f->fd, &ours) || ours.st_nlink != 0))
    rc = pen_error_say(-EBUSY, "%s was put in our file's place", f->path);
  return rc;
}

static int check_room(const struct pen_bench_file *f)
{
  struct pen_engine_info info;
  char want[PEN_SIZE_TEXT_BYTES], room[PEN_SIZE_TEXT_BYTES];
  int rc = f->engine->info(f->file, &info);
  if (rc < 0 || (double)f->bytes <= FREE_SHARE * (double)info.free_bytes)
    return rc;
  pen_size_format(f->bytes, want);
  pen_size_format(info.free_bytes, room);
  return pen_error_set(PEN_ENOFIT, "a file of %s would take more than nine "
                       "tenths of the %s free in %s; lower --bench-size",
                       want, room, f->dir);
}

int pen_bench_file_open(const struct pen_engine *engine, const char *dir,
                        uint64_t bytes, struct pen_bench_file *ret_file)
{
  struct pen_bench_file *f = ret_file;
  *f = (struct pen_bench_file){.engine = engine, .fd = -1};
  f->bytes = bytes / PEN_BENCH_FILL_BYTES * PEN_BENCH_FILL_BYTES;
  snprintf(f->dir, sizeof f->dir, "%.3900s", dir);
  snprintf(f->path, sizeof f->path, "%.3900s/penstock-bench.%ld", dir,
           (long)getpid());
  int rc = engine->open(engine, f->path, true, &f->file);
  if (rc < 0)
    return rc;
  if (!f->file->created)
    return pen_error_say(-EEXIST, "%s is not ours", f->path);
  f->named = true;
  rc = take_name(f);
  const struct pen_bench_evidence first = {.note = f->file->note,
                                           .direct = f->file->direct};
  if (rc == 0)
    rc = pen_bench_judge(dir, &first);
  if (rc == 0)
    rc = check_room(f);
  if (rc == 0)
    rc = engine->allocate(f->file, f->bytes);
  if (rc < 0)
    return rc;
  f->serial = calloc(f->bytes / PEN_BENCH_GRAIN + 1, sizeof *f->serial);
  if (!f->serial)
    rc = pen_error_set(PEN_ENOFIT, "no memory to note what lies where in a file "
                       "of %" PRIu64 " bytes", f->bytes);
  return rc;
}

void pen_bench_file_close(struct pen_bench_file *file)
{
  struct pen_error kept;
  pen_error_take(&kept);
  if (file->file)
    file->engine->close(&file->file);
  if (file->named)
    file->engine->remove(file->engine, file->path);
  if (file->fd >= 0)
    close(file->fd);
  free(file->serial);
  pen_error_clear();
  if (kept.code)
    pen_error_put(&kept);
  *file = (struct pen_bench_file){.fd = -1};
}

/* ---- pages ---- */

/* xorshift64 (Marsaglia 2003) */
static uint64_t next(uint64_t x)
{
  x ^= x << 13;
  x ^= x >> 7;
  return x ^ x << 17;
}

static uint64_t begin(uint64_t seed)
{
  return seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

void pen_bench_file_fill(struct pen_bench_file *file, void *buffer,
                         size_t bytes)
{
  for (size_t at = 0; at < bytes; at += PAGE) {
    uint64_t *words = (uint64_t *)((unsigned char *)buffer + at);
    uint64_t x = begin(++file->n_seeds);
    words[SEED] = file->n_seeds;
    for (size_t i = FIRST; i < WORDS; i++)
      words[i] = x = next(x);
  }
}

void pen_bench_file_stamp(struct pen_bench_file *file, void *buffer,
                          size_t bytes, uint64_t offset)
{
  file->n_writes++;
  file->written_bytes += bytes;
  for (size_t at = 0; at < bytes; at += PAGE) {
    uint64_t *words = (uint64_t *)((unsigned char *)buffer + at);
    words[PLACE] = (offset + at) / PAGE;
    words[SERIAL] = file->n_writes;
  }
  for (size_t at = 0; at < bytes; at += PEN_BENCH_GRAIN)
    file->serial[(offset + at) / PEN_BENCH_GRAIN] = file->n_writes;
}

static bool whole_is_right(const uint64_t *words)
{
  uint64_t x = begin(words[SEED]), wrong = 0;
  for (size_t i = FIRST; i < WORDS; i++)
    wrong |= words[i] ^ (x = next(x));
  return !wrong;
}

int pen_bench_file_check(const struct pen_bench_file *file, const void *buffer,
                         size_t bytes, uint64_t offset, bool whole)
{
  for (size_t at = 0; at < bytes; at += PAGE) {
    const uint64_t *words =
        (const uint64_t *)((const unsigned char *)buffer + at);
    uint64_t page = (offset + at) / PAGE;
    bool right = words[PLACE] == page &&
                 words[SERIAL] == file->serial[(offset + at) / PEN_BENCH_GRAIN];
    if (!right || (whole && !whole_is_right(words)))
      return pen_error_set(PEN_ECORRUPT, "%s gives back other bytes than were "
                           "written, in page %" PRIu64 " of the file",
                           file->dir, page);
  }
  return 0;
}

/* ---- evidence ---- */

int pen_bench_judge(const char *dir, const struct pen_bench_evidence *evidence)
{
  const struct pen_bench_evidence *e = evidence;
  if (e->note[0])
    return refuse(dir, e->note);
  if (!e->direct)
    return refuse(dir, "its file system has no direct I/O, so the page cache "
                       "would be measured");
  if (e->compressed)
    return refuse(dir, "its file system compresses the file");
  if (e->unwritten ||
      (double)e->allocated_bytes < (1 - SPARSE_MAX) * (double)e->bytes)
    return refuse(dir, "parts of the file have no place on the drive (sparse)");
  if ((double)e->resident_pages > RESIDENT_MAX * (double)e->pages)
    return refuse(dir, "the page cache holds the file in spite of direct I/O");
  return 0;
}

static int see_cache(const struct pen_bench_file *f,
                     struct pen_bench_evidence *e)
{
  e->pages = f->bytes / PAGE;
  void *map = mmap(NULL, f->bytes, PROT_READ, MAP_SHARED, f->fd, 0);
  unsigned char *pages = malloc(e->pages);
  int rc = map == MAP_FAILED || !pages || mincore(map, f->bytes, pages)
               ? pen_error_set(-errno, "cannot see what the page cache holds "
                               "of a file in %s", f->dir)
               : 0;
  for (size_t i = 0; rc == 0 && i < e->pages; i++)
    e->resident_pages += pages[i] & 1;
  if (map != MAP_FAILED)
    munmap(map, f->bytes);
  free(pages);
  return rc;
}

/* Where the file system tells of its extents. */
static void see_extents(const struct pen_bench_file *f,
                        struct pen_bench_evidence *e)
{
  struct fiemap *map = calloc(1, sizeof *map + EXTENTS * sizeof *map->fm_extents);
  uint32_t flags = 0;
  int attributes = 0;
  if (ioctl(f->fd, FS_IOC_GETFLAGS, &attributes) == 0)
    e->compressed = attributes & FS_COMPR_FL;
  for (uint64_t at = 0; map && at < f->bytes && !(flags & FIEMAP_EXTENT_LAST);) {
    *map = (struct fiemap){.fm_start = at, .fm_length = f->bytes - at,
                           .fm_extent_count = EXTENTS};
    if (ioctl(f->fd, FS_IOC_FIEMAP, map) || !map->fm_mapped_extents)
      break;
    for (uint32_t i = 0; i < map->fm_mapped_extents; i++) {
      flags = map->fm_extents[i].fe_flags;
      at = map->fm_extents[i].fe_logical + map->fm_extents[i].fe_length;
      e->compressed |= (flags & FIEMAP_EXTENT_ENCODED) != 0;
      e->unwritten |= (flags & FIEMAP_EXTENT_UNWRITTEN) != 0;
    }
  }
  free(map);
}

int pen_bench_file_look(struct pen_bench_file *file)
{
  struct pen_engine_info info;
  struct pen_bench_evidence e = {.note = file->file->note,
                                 .direct = file->file->direct,
                                 .bytes = file->bytes};
  if (!file->engine->drive || file->fd < 0)
    return refuse(file->dir, "this I/O engine uses no drive");
  int rc = file->engine->info(file->file, &info);
  if (rc == 0)
    rc = see_cache(file, &e);
  if (rc < 0)
    return rc;
  e.allocated_bytes = info.allocated_bytes;
  see_extents(file, &e);
  return pen_bench_judge(file->dir, &e);
}
