/* files.c: whole reads, durable writes, folders replaced in one step.
 *
 * No state; any thread.  Disadvantage: every durable write syncs by itself,
 * which is dear for many small files; we have a handful. */
#include "io/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.h"
#include "base/size.h"

int pen_files_read_at(int fd, const char *path, void *out, size_t n,
                      uint64_t offset)
{
  for (size_t got = 0; got < n;) {
    ssize_t r = pread(fd, (char *)out + got, n - got, (off_t)(offset + got));
    if (r < 0 && errno == EINTR)
      continue;
    if (r < 0)
      return pen_error_set(-errno,
                           "cannot read %zu bytes at offset %" PRIu64 " of %s",
                           n - got, offset + got, path);
    if (r == 0)
      return pen_error_set(-PEN_ESHORT,
                           "unexpected end of file at byte %" PRIu64 " of %s",
                           offset + got, path);
    got += (size_t)r;
  }
  return 0;
}

int pen_files_write_at(int fd, const char *path, const void *bytes, size_t n,
                       uint64_t offset)
{
  for (size_t put = 0; put < n;) {
    ssize_t r = pwrite(fd, (const char *)bytes + put, n - put,
                       (off_t)(offset + put));
    if (r < 0 && errno == EINTR)
      continue;
    if (r <= 0)
      return pen_error_set(r ? -errno : -EIO,
                           "cannot write %zu bytes at offset %" PRIu64 " of %s",
                           n - put, offset + put, path);
    put += (size_t)r;
  }
  return 0;
}

int pen_files_reserve(int fd, const char *path, uint64_t n_bytes)
{
  if (!n_bytes)
    return 0;
  int rc;
  do
    rc = fallocate(fd, 0, 0, (off_t)n_bytes) ? errno : 0;
  while (rc == EINTR);
  if (rc == EOPNOTSUPP || rc == ENOSYS)
    rc = ftruncate(fd, (off_t)n_bytes) ? errno : 0;
  if (!rc)
    return 0;
  struct statvfs fs;
  uint64_t free_bytes =
      fstatvfs(fd, &fs) ? 0 : (uint64_t)fs.f_bavail * fs.f_frsize;
  return pen_error_set(-rc,
                       "cannot make %s %" PRIu64 " bytes long, %" PRIu64
                       " are free there", path, n_bytes, free_bytes);
}

int pen_files_free_bytes(const char *path, uint64_t *ret_bytes)
{
  char there[PATH_MAX];
  struct statvfs fs;
  size_t n = pen_files_existing(path);
  snprintf(there, sizeof there, "%.*s", (int)n, n ? path : "");
  if (statvfs(n ? there : ".", &fs))
    return pen_error_set(-errno, "cannot look at the drive of %s", path);
  *ret_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
  return 0;
}

int pen_files_check_room(const char *path, uint64_t n_bytes, const char *what,
                         const char *remedy)
{
  char need[PEN_SIZE_TEXT_BYTES], has[PEN_SIZE_TEXT_BYTES];
  uint64_t free_bytes = 0;
  int rc = pen_files_free_bytes(path, &free_bytes);
  if (rc || n_bytes <= free_bytes)
    return rc;
  pen_size_format(n_bytes, need);
  pen_size_format(free_bytes, has);
  return pen_error_set(-PEN_ENOFIT, "does not fit: %s needs %s on the drive of "
                       "%s, which has %s free: %" PRIu64 " bytes too few; %s",
                       what, need, path, has, n_bytes - free_bytes, remedy);
}

int pen_files_read_whole(const char *path, size_t max_bytes, char **ret_bytes,
                         size_t *ret_n)
{
  int rc = 0;
  char *bytes = NULL;
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return pen_error_set(-errno, "cannot open %s", path);
  if (fstat(fd, &st))
    rc = pen_error_set(-errno, "cannot stat %s", path);
  else if (!S_ISREG(st.st_mode))
    rc = pen_error_set(-PEN_EFORMAT, "%s is not a regular file", path);
  else if ((uint64_t)st.st_size > max_bytes)
    rc = pen_error_set(-PEN_EFORMAT,
                       "%s has %" PRIu64 " bytes, at most %zu are read", path,
                       (uint64_t)st.st_size, max_bytes);
  if (rc)
    goto out;
  size_t n = (size_t)st.st_size;
  bytes = malloc(n + 1);
  if (!bytes) {
    rc = pen_error_set(-ENOMEM, "cannot read %s (%zu bytes)", path, n);
    goto out;
  }
  rc = pen_files_read_at(fd, path, bytes, n, 0);
  if (rc)
    goto out;
  bytes[n] = '\0';
  *ret_bytes = bytes;
  *ret_n = n;
  bytes = NULL;
out:
  free(bytes);
  close(fd);
  return rc;
}

int pen_files_write_whole(const char *path, const void *bytes, size_t n)
{
  char tmp[PATH_MAX];
  if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
    return pen_error_set(-ENAMETOOLONG, "cannot write %s", path);
  int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0)
    return pen_error_set(-errno, "cannot create %s", tmp);
  int rc = pen_files_write_at(fd, tmp, bytes, n, 0);
  if (!rc && fsync(fd))
    rc = pen_error_set(-errno, "cannot sync %s", tmp);
  if (close(fd) && !rc)
    rc = pen_error_set(-errno, "cannot close %s", tmp);
  if (!rc && rename(tmp, path))
    rc = pen_error_set(-errno, "cannot rename %s to %s", tmp, path);
  if (rc) {
    unlink(tmp);
    return rc;
  }
  return pen_files_sync_parent(path);
}

int pen_files_copy(const char *from, const char *to)
{
  char *bytes = NULL;
  size_t n = 0;
  int rc = pen_files_read_whole(from, (size_t)1 << 30, &bytes, &n);
  if (!rc)
    rc = pen_files_write_whole(to, bytes, n);
  free(bytes);
  return rc;
}

bool pen_files_exists(const char *path) { return access(path, F_OK) == 0; }

/* Is what lies at `path` empty, or does it begin as what `option` writes does? */
static int check_ours(const char *path, const char *option, const char *mark)
{
  char head[512];
  struct stat st;
  if (stat(path, &st))
    return pen_error_set(-errno, "%s: cannot look at %s", option, path);
  if (!S_ISREG(st.st_mode))
    return pen_error_set(-PEN_EUSAGE, "%s: %s is there and is no file; name "
                         "another one", option, path);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return pen_error_set(-errno, "%s: cannot open %s", option, path);
  ssize_t n = pread(fd, head, sizeof head, 0);
  int rc = n < 0 ? pen_error_set(-errno, "%s: cannot read %s", option, path) : 0;
  close(fd);
  if (n > 0 && !memmem(head, (size_t)n, mark, strlen(mark)))
    rc = pen_error_set(-PEN_EUSAGE, "%s: %s is there and is not what this option "
                       "writes: it is not replaced; name another file, or "
                       "remove it", option, path);
  return rc;
}

int pen_files_may_replace(const char *path, const char *option,
                          const char *mark)
{
  char tmp[PATH_MAX];
  struct stat st;
  if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
    return pen_error_set(-ENAMETOOLONG, "%s: cannot write %.80s...", option, path);
  int rc = stat(path, &st) ? 0 : check_ours(path, option, mark);
  if (rc)
    return rc;
  /* Makes the file that will be renamed to `path`, and removes it again. */
  int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 && errno == EEXIST)
    return check_ours(tmp, option, mark); /* what a killed run left */
  if (fd < 0)
    return pen_error_set(-errno, "%s: cannot make %s", option, path);
  close(fd);
  unlink(tmp);
  return 0;
}

int pen_files_sync_dir(const char *path)
{
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return pen_error_set(-errno, "cannot open the folder %s", path);
  int rc = fsync(fd) ? pen_error_set(-errno, "cannot sync the folder %s", path)
                     : 0;
  close(fd);
  return rc;
}

/* parent [PATH_MAX] = the folder that holds path ("." for a bare name). */
static int parent_of(const char *path, char *parent)
{
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/')
    n--;
  while (n && path[n - 1] != '/')
    n--;
  while (n > 1 && path[n - 1] == '/')
    n--;
  if (n >= PATH_MAX)
    return pen_error_set(-ENAMETOOLONG, "cannot use the path %.80s...", path);
  memcpy(parent, n ? path : ".", n ? n : 1);
  parent[n ? n : 1] = '\0';
  return 0;
}

int pen_files_sync_parent(const char *path)
{
  char parent[PATH_MAX];
  int rc = parent_of(path, parent);
  return rc ? rc : pen_files_sync_dir(parent);
}

int pen_files_make_dirs(const char *path)
{
  struct stat st;
  if (!mkdir(path, 0777))
    return pen_files_sync_parent(path);
  int failure = errno;
  if (failure == EEXIST && !stat(path, &st) && S_ISDIR(st.st_mode))
    return 0;
  if (failure == EEXIST)
    return pen_error_say(-ENOTDIR, "cannot make the folder %s: a file is there",
                         path);
  char parent[PATH_MAX];
  int rc = parent_of(path, parent);
  if (!rc && failure == ENOENT && strcmp(parent, path)) {
    rc = pen_files_make_dirs(parent);
    if (rc)
      return rc;
    failure = mkdir(path, 0777) && errno != EEXIST ? errno : 0;
    if (!failure)
      rc = pen_files_sync_parent(path);
  }
  if (!rc && failure)
    rc = pen_error_set(-failure, "cannot make the folder %s", path);
  return rc;
}

/* Cuts the last name off; false where there is none to cut. */
static bool cut_name(char *path)
{
  size_t n = strlen(path);
  while (n && path[n - 1] == '/')
    n--;
  while (n && path[n - 1] != '/')
    n--;
  while (n > 1 && path[n - 1] == '/')
    n--;
  bool shorter = n < strlen(path);
  path[n] = '\0';
  return shorter && n;
}

size_t pen_files_existing(const char *path)
{
  char part[PATH_MAX];
  if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
    return 0;
  while (!pen_files_exists(part))
    if (!cut_name(part))
      return 0;
  return strlen(part);
}

void pen_files_unmake_dirs(const char *path, size_t existing)
{
  char part[PATH_MAX];
  if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
    return;
  while (strlen(part) > existing && (!rmdir(part) || errno == ENOENT) &&
         cut_name(part))
    ;
}

bool pen_files_lies_in(const char *path, const char *dir)
{
  char real_dir[PATH_MAX], real[PATH_MAX], part[PATH_MAX];
  struct stat st;
  if (stat(dir, &st) || !S_ISDIR(st.st_mode) || !realpath(dir, real_dir) ||
      snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
    return false;
  part[pen_files_existing(path)] = '\0';
  if (!realpath(*part ? part : ".", real))
    return false;
  size_t n = strlen(real_dir);
  return strcmp(real_dir, "/") == 0 ||
         (strncmp(real, real_dir, n) == 0 && (!real[n] || real[n] == '/'));
}

/* Itself, and not by a link, behind which others' files lie. */
static bool is_folder(const char *path)
{
  struct stat st;
  return !lstat(path, &st) && S_ISDIR(st.st_mode);
}

int pen_files_remove_flat_dir(const char *path, const char *inside)
{
  char folder[PATH_MAX];
  int rc = 0;
  if (inside &&
      snprintf(folder, sizeof folder, "%s/%s", path, inside) < (int)sizeof folder &&
      is_folder(folder))
    rc = pen_files_remove_flat_dir(folder, NULL);
  DIR *dir = rc ? NULL : opendir(path);
  if (!dir)
    return rc || errno == ENOENT
               ? rc
               : pen_error_set(-errno, "cannot open the folder %s", path);
  struct dirent *entry;
  while (!rc && (entry = readdir(dir))) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
      continue;
    if (unlinkat(dirfd(dir), entry->d_name, 0))
      rc = pen_error_set(errno == EISDIR ? -ENOTEMPTY : -errno,
                         "cannot remove %s/%s", path, entry->d_name);
  }
  closedir(dir);
  if (!rc && rmdir(path))
    rc = pen_error_set(-errno, "cannot remove the folder %s", path);
  return rc;
}

int pen_files_replace_dir_by_steps(const char *from, const char *to,
                                   const char *inside)
{
  char old[PATH_MAX];
  if (snprintf(old, sizeof old, "%s.old", to) >= (int)sizeof old)
    return pen_error_set(-ENAMETOOLONG, "cannot replace %s", to);
  int rc = pen_files_remove_flat_dir(old, inside);
  if (!rc && rename(to, old))
    rc = pen_error_set(-errno, "cannot rename %s to %s", to, old);
  if (!rc && rename(from, to)) {
    rc = pen_error_set(-errno, "cannot rename %s to %s", from, to);
    rename(old, to);
  }
  if (!rc)
    rc = pen_files_sync_parent(to);
  return rc ? rc : pen_files_remove_flat_dir(old, inside);
}

int pen_files_replace_dir(const char *from, const char *to, const char *inside)
{
  if (!pen_files_exists(to)) {
    if (rename(from, to))
      return pen_error_set(-errno, "cannot rename %s to %s", from, to);
    return pen_files_sync_parent(to);
  }
  if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE)) {
    if (errno == EINVAL || errno == ENOSYS)
      return pen_files_replace_dir_by_steps(from, to, inside);
    return pen_error_set(-errno, "cannot exchange %s and %s", from, to);
  }
  int rc = pen_files_sync_parent(to);
  return rc ? rc : pen_files_remove_flat_dir(from, inside);
}
