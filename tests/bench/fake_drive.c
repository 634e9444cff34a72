/* fake_drive.c: bytes are kept by the `ram` engine; time is the drive's: clock_
 * gettime and nanosleep are ours in a program that links this, so nothing
 * depends on how busy the machine is. */
#include "tests/bench/fake_drive.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "base/rng.h"
#include "io/engine_memory.h"

#define COLD 30000 /* millidegrees */

struct fake_drive fake_drive;

int clock_gettime(clockid_t id, struct timespec *ret_now);
int nanosleep(const struct timespec *wanted, struct timespec *left);

int clock_gettime(clockid_t id, struct timespec *ret_now)
{
  double whole = floor(fake_drive.now_s);
  (void)id;
  *ret_now = (struct timespec){(time_t)whole,
                               (long)((fake_drive.now_s - whole) * 1e9)};
  return 0;
}

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
  struct fake_drive *d = &fake_drive;
  double s = (double)wanted->tv_sec + (double)wanted->tv_nsec * 1e-9;
  (void)left;
  d->now_s += s;
  d->used = fmax(0, d->used - s * d->recovers);
  return 0;
}

static void warm(struct fake_drive *d)
{
  bool hot = d->hot_after > 0 && (double)d->written >= d->hot_after;
  if (hot == d->shown_hot)
    return;
  FILE *f = d->sensor ? fopen(d->sensor, "w") : NULL;
  d->shown_hot = hot;
  if (f) {
    fprintf(f, "%d\n", hot ? 84000 : COLD);
    fclose(f);
  }
}

static void pass_time(struct fake_drive *d, double seconds)
{
  double pair[2];
  pen_rng_normal_pair(1, 0, d->n_transfers++, pair);
  d->now_s += seconds * fmax(0.1, 1 + d->noise * pair[0]);
}

static int64_t write_at(struct pen_engine_file *file, const void *buffer,
                        size_t bytes, uint64_t offset)
{
  struct fake_drive *d = &fake_drive;
  bool was_hot = d->hot_after > 0 && (double)d->written >= d->hot_after;
  double rate = d->used + (double)bytes <= d->cache_bytes ? d->burst : d->sustained;
  if (d->fail_after && d->written >= d->fail_after)
    return -EIO;
  if (was_hot)
    rate = fmin(rate, d->throttled);
  d->used = fmin(d->cache_bytes, d->used + (double)bytes);
  d->written += bytes;
  pass_time(d, (double)bytes / rate);
  warm(d);
  if (d->stop && d->stop_after && d->written >= d->stop_after)
    *d->stop = 1;
  return pen_engine_ram.write_at(file, buffer, bytes, offset);
}

static int64_t read_at(struct pen_engine_file *file, void *buffer, size_t bytes,
                       uint64_t offset)
{
  pass_time(&fake_drive, (double)bytes / fake_drive.read);
  int64_t n = pen_engine_ram.read_at(file, buffer, bytes, offset);
  if (n > 100 && fake_drive.corrupts)
    ((unsigned char *)buffer)[n - 100] ^= 4;
  return n;
}

static int open_file(const struct pen_engine *engine, const char *path,
                     bool create, struct pen_engine_file **ret_file)
{
  int rc = pen_engine_ram.open(engine, path, create, ret_file);
  if (rc == 0)
    (*ret_file)->direct = true;
  return rc;
}

static void close_file(struct pen_engine_file **file) { pen_engine_ram.close(file); }
static int info(struct pen_engine_file *file, struct pen_engine_info *ret_info)
{
  return pen_engine_ram.info(file, ret_info);
}
static int allocate(struct pen_engine_file *file, uint64_t bytes)
{
  return pen_engine_ram.allocate(file, bytes);
}
static int sync_file(struct pen_engine_file *file)
{
  pass_time(&fake_drive, 1e-3);
  return pen_engine_ram.sync(file);
}
static int remove_file(const struct pen_engine *engine, const char *path)
{
  return pen_engine_ram.remove(engine, path);
}

const struct pen_engine fake_drive_engine = {
    .name = "fake drive",
    .keeps = true,
    .open = open_file,
    .close = close_file,
    .info = info,
    .allocate = allocate,
    .sync = sync_file,
    .read_at = read_at,
    .write_at = write_at,
    .remove = remove_file,
    .ring_create = pen_engine_memory_ring_create,
    .ring_free = pen_engine_memory_ring_free,
    .ring_submit = pen_engine_memory_ring_submit,
    .ring_reap = pen_engine_memory_ring_reap,
};
