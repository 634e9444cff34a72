/* engine_posix.c: real files, shared by the engines uring, threads and auto.
 *
 * Files are opened for direct I/O; where the file system has none they are
 * buffered and say so in their note.  Invariant: a file that is open takes
 * transfers aligned to PEN_ENGINE_ALIGN.  Any thread.  Disadvantage: on file
 * systems without fallocate, preallocating writes zeros, which takes as long
 * as it sounds. */
#include "io/engine_posix.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "io/files.h"

#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x2000U
#define PEN_NO_DIOALIGN /* headers older than Linux 6.1: nothing to ask */
#endif

#define LOCK_WAIT_MS 1000
#define LOCK_POLL_MS 10

/* File systems that do not keep what O_DIRECT and fsync promise. */
static const struct {
  long magic;
  const char *what;
} weak_file_systems[] = {
    {TMPFS_MAGIC, "tmpfs keeps files in memory: nothing survives a power cut "
                  "and it is no measure of a drive"},
    {RAMFS_MAGIC, "ramfs keeps files in memory: nothing survives a power cut "
                  "and it is no measure of a drive"},
    {OVERLAYFS_SUPER_MAGIC, "overlay mount: what is below may not keep the "
                            "promises of direct I/O and fsync"},
    {NFS_SUPER_MAGIC, "network mount: slow, and its promises are the server's"},
    {0x65735546 /* FUSE */, "FUSE mount: direct I/O and fsync are what its "
                            "program makes of them"},
    {0xff534d42 /* CIFS */, "network mount: slow, and its promises are the "
                            "server's"},
    {0x01021997 /* 9p */, "9p mount: direct I/O and fsync are what the host "
                          "makes of them"},
};

static struct pen_engine_posix_file *posix(struct pen_engine_file *file)
{
  return (struct pen_engine_posix_file *)file;
}

/* Fills the note from the file system; it is a remark, so failures are not. */
static void note_file_system(struct pen_engine_posix_file *file)
{
  struct statfs fs;
  if (fstatfs(file->fd, &fs))
    return;
  for (size_t i = 0; i < sizeof weak_file_systems / sizeof *weak_file_systems;
       i++)
    if ((uint32_t)fs.f_type == (uint32_t)weak_file_systems[i].magic)
      snprintf(file->base.note, sizeof file->base.note, "%s",
               weak_file_systems[i].what);
}

/* Refuses a file that needs a coarser alignment than all of ours. */
static int check_alignment(struct pen_engine_posix_file *file,
                           bool *ret_direct)
{
#ifndef PEN_NO_DIOALIGN
  struct statx sx;
  if (statx(file->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) ||
      !(sx.stx_mask & STATX_DIOALIGN))
    return 0; /* a kernel before 6.1 or a file system that does not say */
  if (sx.stx_dio_offset_align == 0 || sx.stx_dio_mem_align == 0) {
    *ret_direct = false;
    return 0;
  }
  if (sx.stx_dio_offset_align > PEN_ENGINE_ALIGN ||
      sx.stx_dio_mem_align > PEN_ENGINE_ALIGN)
    return pen_error_set(
        -PEN_EUNSUPPORTED,
        "%s needs direct I/O aligned to %u bytes in memory and %u in the file, "
        "at most %d is supported; use another drive",
        file->base.path, sx.stx_dio_mem_align, sx.stx_dio_offset_align,
        PEN_ENGINE_ALIGN);
#endif
  return 0;
}

static int open_flags(struct pen_engine_posix_file *file, bool create,
                      int flags)
{
  const char *path = file->base.path;
  flags |= O_RDWR | O_CLOEXEC;
  file->fd = create ? open(path, flags | O_CREAT | O_EXCL, 0666) : -1;
  file->base.created = file->fd >= 0;
  if (file->fd < 0 && (!create || errno == EEXIST))
    file->fd = open(path, flags);
  return file->fd < 0 ? -errno : 0;
}

static int open_best(struct pen_engine_posix_file *file, bool create)
{
  bool direct = true;
  int code = open_flags(file, create, O_DIRECT);
  if (code == -EINVAL || code == -EOPNOTSUPP) {
    direct = false;
    /* Some kernels make the file before they refuse the flag. */
    bool created = create && access(file->base.path, F_OK) == 0;
    code = open_flags(file, create, 0);
    file->base.created |= created && !code;
  }
  if (code)
    return pen_error_set(code, "cannot open %s", file->base.path);
  note_file_system(file);
  if (direct)
    code = check_alignment(file, &direct);
  file->base.direct = direct;
  if (code || direct)
    return code;
  int flags = fcntl(file->fd, F_GETFL);
  if (flags & O_DIRECT && fcntl(file->fd, F_SETFL, flags & ~O_DIRECT))
    return pen_error_set(-errno, "cannot open %s buffered", file->base.path);
  if (!file->base.note[0])
    snprintf(file->base.note, sizeof file->base.note,
             "its file system has no direct I/O: buffered");
  return 0;
}

int pen_engine_posix_open(const struct pen_engine *engine, const char *path,
                          bool create, struct pen_engine_file **ret_file)
{
  struct pen_engine_posix_file *file = calloc(1, sizeof *file);
  char *copy = strdup(path);
  if (!file || !copy) {
    free(file);
    free(copy);
    return pen_error_set(-ENOMEM, "cannot open %s", path);
  }
  file->base.engine = engine;
  file->base.path = copy;
  file->fd = -1;
  int code = open_best(file, create);
  struct pen_engine_file *base = &file->base;
  if (code)
    pen_engine_posix_close(&base);
  else
    *ret_file = base;
  return code;
}

void pen_engine_posix_close(struct pen_engine_file **file)
{
  if (!*file)
    return;
  if (posix(*file)->fd >= 0) {
    /* By hand: a ring that had it registered lets go of it only later. */
    flock(posix(*file)->fd, LOCK_UN);
    close(posix(*file)->fd);
  }
  free((*file)->path);
  free(*file);
  *file = NULL;
}

/* A killed run's lock lasts until the kernel has finished its transfers, which
 * is as it should be: so wait a little before it is called another run's. */
int pen_engine_posix_lock(struct pen_engine_file *file)
{
  struct stat st;
  for (int waited_ms = 0; flock(posix(file)->fd, LOCK_EX | LOCK_NB);
       waited_ms += LOCK_POLL_MS) {
    if (errno != EINTR && errno != EWOULDBLOCK)
      return pen_error_set(-errno, "cannot lock %s", file->path);
    if (waited_ms >= LOCK_WAIT_MS)
      return pen_error_say(-EBUSY, "another run uses %s", file->path);
    nanosleep(&(struct timespec){.tv_nsec = LOCK_POLL_MS * 1000000L}, NULL);
  }
  /* Whoever held it may have removed it between our open and our lock. */
  if (fstat(posix(file)->fd, &st) == 0 && st.st_nlink == 0)
    return pen_error_say(-EBUSY, "another run has just removed %s",
                         file->path);
  return 0;
}

int pen_engine_posix_info(struct pen_engine_file *file,
                          struct pen_engine_info *ret_info)
{
  struct stat st;
  struct statfs fs;
  if (fstat(posix(file)->fd, &st) || fstatfs(posix(file)->fd, &fs))
    return pen_error_set(-errno, "cannot ask for the size of %s", file->path);
  ret_info->size_bytes = (uint64_t)st.st_size;
  ret_info->allocated_bytes = (uint64_t)st.st_blocks * 512;
  ret_info->free_bytes = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
  ret_info->file_system = st.st_dev;
  return 0;
}

/* Zeros from `offset` on, for file systems without fallocate. */
static int write_zeros(struct pen_engine_file *file, uint64_t offset,
                       uint64_t bytes)
{
  const size_t piece = 1 << 20;
  void *zeros = aligned_alloc(PEN_ENGINE_ALIGN, piece);
  if (!zeros)
    return pen_error_set(-ENOMEM, "cannot preallocate %s", file->path);
  memset(zeros, 0, piece);
  int code = 0;
  while (offset < bytes && !code) {
    size_t n = bytes - offset < piece ? (size_t)(bytes - offset) : piece;
    code = pen_engine_write_whole(file, zeros, n, offset, NULL);
    offset += n;
  }
  free(zeros);
  return code;
}

int pen_engine_posix_allocate(struct pen_engine_file *file, uint64_t bytes)
{
  int fd = posix(file)->fd;
  struct stat st;
  if (fstat(fd, &st))
    return pen_error_set(-errno, "cannot ask for the size of %s", file->path);
  if ((uint64_t)st.st_size > bytes && ftruncate(fd, (off_t)bytes))
    return pen_error_set(-errno, "cannot shorten %s to %" PRIu64 " bytes",
                         file->path, bytes);
  int failed;
  do
    failed = bytes ? fallocate(fd, 0, 0, (off_t)bytes) : 0;
  while (failed && errno == EINTR);
  if (!failed)
    return 0;
  if (errno == EOPNOTSUPP)
    return write_zeros(file, (uint64_t)st.st_size & ~UINT64_C(4095), bytes);
  return pen_error_set(-errno, "cannot preallocate %" PRIu64 " bytes for %s",
                       bytes, file->path);
}

int pen_engine_posix_sync(struct pen_engine_file *file)
{
  int failed;
  do
    failed = fdatasync(posix(file)->fd);
  while (failed && errno == EINTR);
  return failed ? pen_error_set(-errno, "cannot sync %s; what was written to "
                                        "it may be lost", file->path)
                : 0;
}

int64_t pen_engine_posix_read_at(struct pen_engine_file *file, void *buffer,
                                 size_t bytes, uint64_t offset)
{
  ssize_t n = pread(posix(file)->fd, buffer, bytes, (off_t)offset);
  return n < 0 ? -errno : n;
}

int64_t pen_engine_posix_write_at(struct pen_engine_file *file,
                                  const void *buffer, size_t bytes,
                                  uint64_t offset)
{
  ssize_t n = pwrite(posix(file)->fd, buffer, bytes, (off_t)offset);
  return n < 0 ? -errno : n;
}

int pen_engine_posix_make_dirs(const struct pen_engine *engine,
                               const char *dir)
{
  return pen_files_make_dirs(dir);
}

int pen_engine_posix_rename(const struct pen_engine *engine, const char *from,
                            const char *to)
{
  return rename(from, to)
             ? pen_error_set(-errno, "cannot rename %s to %s", from, to)
             : 0;
}

int pen_engine_posix_remove(const struct pen_engine *engine, const char *path)
{
  return unlink(path) && errno != ENOENT
             ? pen_error_set(-errno, "cannot remove %s", path)
             : 0;
}

int pen_engine_posix_sync_dir(const struct pen_engine *engine,
                              const char *dir)
{
  return pen_files_sync_dir(dir);
}
