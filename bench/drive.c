/* drive.c: threads that take requests of one file in turn.
 *
 * Disadvantage: a thread has one request in flight, so the depth is the number
 * of threads, and each costs a wake-up. */
#include "bench/drive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "bench/crew.h"
#include "bench/report.h"
#include "kernels/device.h"

#define PAGE ((size_t)4096)

struct job {
  const struct pen_drive *drive;
  enum pen_drive_kind kind;
  atomic_size_t next; /* claimed by whoever is free */
  atomic_int failed;  /* an errno, 0: none */
};

_Noreturn static void fail(struct pen_drive *drive, int code, const char *what)
{
  pen_error_set(-code, "cannot %s %s", what, drive->path);
  pen_drive_done(drive);
  pen_report_fail();
}

/* Request `number` of a pass: which one of the file, and whether it is written.
 * Mixed: even numbers read the first half, odd ones write the second. */
static size_t place(const struct job *job, size_t number, bool *ret_write)
{
  *ret_write = job->kind == PEN_DRIVE_WRITE ||
               (job->kind == PEN_DRIVE_MIXED && number % 2);
  if (job->kind != PEN_DRIVE_MIXED)
    return number;
  return (number % 2 ? job->drive->n / 2 : 0) + number / 2;
}

/* All of it, however the kernel cuts it; 0 or an errno. */
static int transfer(int fd, bool write, unsigned char *buffer, size_t bytes,
                    uint64_t offset)
{
  for (size_t done = 0; done < bytes;) {
    ssize_t n = write ? pwrite(fd, buffer + done, bytes - done,
                               (off_t)(offset + done))
                      : pread(fd, buffer + done, bytes - done,
                              (off_t)(offset + done));
    if (n == 0)
      return EIO;
    if (n < 0 && errno != EINTR)
      return errno;
    done += n > 0 ? (size_t)n : 0;
  }
  return 0;
}

static void serve(void *ctx, size_t thread, size_t n_threads)
{
  struct job *job = ctx;
  const struct pen_drive *d = job->drive;
  size_t number;
  while ((number = atomic_fetch_add(&job->next, 1)) < d->n) {
    bool write;
    size_t at = place(job, number, &write);
    int code = transfer(d->fd, write, d->buffers + thread * d->request,
                        d->request, (uint64_t)at * d->request);
    if (code)
      atomic_store(&job->failed, code);
  }
  (void)n_threads;
}

double pen_drive_run(struct pen_drive *drive, enum pen_drive_kind kind)
{
  struct job job = {.drive = drive, .kind = kind};
  double seconds = pen_crew_run(drive->n_threads, serve, &job);
  uint64_t begin_ns = pen_clock_ns();
  if (atomic_load(&job.failed))
    fail(drive, atomic_load(&job.failed), "transfer to or from");
  if (kind != PEN_DRIVE_READ && fdatasync(drive->fd) < 0)
    fail(drive, errno, "sync");
  seconds += (double)(pen_clock_ns() - begin_ns) * 1e-9;
  return (double)(drive->n * drive->request) / seconds;
}

/* xorshift64 (Marsaglia 2003): no two pages alike, none compressible. */
static void fill(unsigned char *buffer, size_t bytes, uint64_t seed)
{
  uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
  for (size_t i = 0; i < bytes; i += sizeof x) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    memcpy(buffer + i, &x, sizeof x);
  }
}

/* Blocks get their places on the drive. */
static void write_all(struct pen_drive *d)
{
  for (size_t i = 0; i < d->n; i++) {
    unsigned char *buffer = d->buffers + i % d->n_threads * d->request;
    if (i < d->n_threads)
      fill(buffer, d->request, i + 1);
    int code = transfer(d->fd, true, buffer, d->request,
                        (uint64_t)i * d->request);
    if (code)
      fail(d, code, "write");
  }
}

void pen_drive_init(struct pen_drive *ret_drive, const char *dir,
                    size_t request, uint64_t bytes, size_t n_threads)
{
  struct pen_drive *d = ret_drive;
  *d = (struct pen_drive){.fd = -1, .request = (request + PAGE - 1) / PAGE * PAGE,
                          .n_threads = n_threads};
  d->n = (size_t)(bytes / d->request / 2 * 2);
  snprintf(d->path, sizeof d->path, "%s/penstock-roof.%ld", dir, (long)getpid());
  if (!d->n) {
    pen_error_set(PEN_EUSAGE, "--size %llu holds no two requests of %zu bytes",
                  (unsigned long long)bytes, d->request);
    pen_report_fail();
  }
  d->fd = open(d->path, O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);
  if (d->fd < 0) {
    pen_error_set(-errno, "cannot make %s for direct I/O; name a directory on a "
                  "local drive", d->path);
    pen_report_fail();
  }
  void *buffers = NULL; /* as a run's: small pages would cut requests small */
  int code = -pen_device_host_alloc(n_threads * d->request, &buffers);
  d->buffers = buffers;
  if (code == 0)
    code = posix_fallocate(d->fd, 0, (off_t)(d->n * d->request));
  if (code)
    fail(d, code, "take room for");
  write_all(d);
}

void pen_drive_done(struct pen_drive *drive)
{
  if (drive->fd >= 0) {
    close(drive->fd);
    unlink(drive->path);
  }
  drive->fd = -1;
  void *buffers = drive->buffers;
  pen_device_host_free(&buffers, drive->n_threads * drive->request);
  drive->buffers = NULL;
}

const char *pen_drive_kind_name(enum pen_drive_kind kind)
{
  static const char *const names[] = {"read", "write", "mixed"};
  return names[kind];
}
