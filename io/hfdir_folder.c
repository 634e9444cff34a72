/* hfdir_folder.c: names of files that a model's folder holds.
 *
 * What has another name is somebody's own: it is not copied, and nothing half-written
 * is taken for ours that holds it.  A model that is overwritten goes with all that is in
 * its folder.  Any thread.  Disadvantage: a model's own code (modeling_*.py) is such a
 * name, and stays behind. */
#include "io/hfdir_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "io/files.h"
#include "io/hfdir.h"

/* Everything but weights and config.json that a published model carries and
 * its users load. */
static const char *const companions[] = {
  "tokenizer.json",      "tokenizer_config.json", "special_tokens_map.json",
  "added_tokens.json",   "tokenizer.model",       "vocab.json",
  "merges.txt",          "vocab.txt",             "chat_template.jinja",
  "chat_template.json",  "generation_config.json"};

static bool ends_in(const char *name, const char *ending)
{
  size_t n = strlen(name), m = strlen(ending);
  return n > m && !strcmp(name + n - m, ending);
}

static bool is_dots(const char *name)
{
  return !strcmp(name, ".") || !strcmp(name, "..");
}

/* Is this a name that a half-written model may have? */
static bool is_ours(const char *name)
{
  for (size_t i = 0; i < sizeof companions / sizeof companions[0]; i++)
    if (!strcmp(name, companions[i]))
      return true;
  return !strcmp(name, "config.json") || !strcmp(name, PEN_HFDIR_INDEX) ||
         ends_in(name, ".safetensors") || ends_in(name, ".state") ||
         ends_in(name, ".tmp");
}

static bool is_folder(DIR *dir, const struct dirent *entry)
{
  struct stat st;
  if (entry->d_type != DT_UNKNOWN)
    return entry->d_type == DT_DIR;
  return !fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) &&
         S_ISDIR(st.st_mode);
}

/* Is this folder that of chat templates, and nothing but these in it? */
static bool is_templates(DIR *dir, const struct dirent *folder)
{
  if (strcmp(folder->d_name, PEN_HFDIR_TEMPLATES))
    return false;
  int fd = openat(dirfd(dir), folder->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *inside = fd < 0 ? NULL : fdopendir(fd);
  struct dirent *entry;
  bool all = inside;
  while (all && (entry = readdir(inside)))
    all = is_dots(entry->d_name) || (ends_in(entry->d_name, ".jinja") &&
                                     !is_folder(inside, entry));
  if (inside)
    closedir(inside);
  else if (fd >= 0)
    close(fd);
  return all;
}

int pen_hfdir_check_target(const char *path, bool overwrite)
{
  char foreign[NAME_MAX + 1] = "", folder[NAME_MAX + 1] = "";
  bool empty = true, has_config = false;
  struct dirent *entry;
  DIR *dir = opendir(path);
  if (!dir && errno != ENOTDIR)
    return errno == ENOENT ? 0 : pen_error_set(-errno, "cannot replace %s", path);
  if (!dir && pen_files_exists(path))
    return pen_error_say(-ENOTDIR, "%s is a file; name a folder to make", path);
  if (!dir)
    return pen_error_say(-ENOTDIR, "cannot make the folder %s: what it would lie "
                         "in is a file; name another", path);
  while ((entry = readdir(dir))) {
    if (is_dots(entry->d_name))
      continue;
    empty = false;
    has_config |= !strcmp(entry->d_name, "config.json");
    if (is_folder(dir, entry) && !is_templates(dir, entry))
      snprintf(folder, sizeof folder, "%s", entry->d_name);
    else if (!is_folder(dir, entry) && !is_ours(entry->d_name))
      snprintf(foreign, sizeof foreign, "%s", entry->d_name);
  }
  closedir(dir);
  if (empty)
    return 0;
  if (!overwrite)
    return pen_error_say(-EEXIST, "%s is there and not empty: choose another or "
                         "--overwrite", path);
  if (!has_config || *folder)
    return pen_error_say(-EEXIST, "cannot overwrite %s, it is not just a model "
                         "directory (%s%s); choose another", path,
                         *folder || *foreign ? "it holds " : "it has no config.json",
                         *folder ? folder : foreign);
  return 0;
}

int pen_hfdir_check_leftover(const char *tmp)
{
  DIR *dir = opendir(tmp);
  struct dirent *entry;
  int rc = 0;
  while (dir && !rc && (entry = readdir(dir)))
    if (!is_dots(entry->d_name) &&
        (is_folder(dir, entry) ? !is_templates(dir, entry)
                               : !is_ours(entry->d_name)))
      rc = pen_error_say(-EEXIST, "%s is needed for writing, but holds %s, which "
                         "is of no model: move it away", tmp, entry->d_name);
  if (dir)
    closedir(dir);
  return rc;
}

/* FROM/name to TO/name. */
static int copy(const char *from, const char *to, const char *name)
{
  char source[PATH_MAX], target[PATH_MAX];
  if (snprintf(source, sizeof source, "%s/%s", from, name) >= PATH_MAX ||
      snprintf(target, sizeof target, "%s/%s", to, name) >= PATH_MAX)
    return pen_error_set(-ENAMETOOLONG, "cannot copy %s from %s to %s", name, from,
                         to);
  return pen_files_exists(source) ? pen_files_copy(source, target) : 0;
}

static int copy_templates(const char *from, const char *to)
{
  char source[PATH_MAX], target[PATH_MAX];
  if (snprintf(source, sizeof source, "%s/" PEN_HFDIR_TEMPLATES, from) >= PATH_MAX ||
      snprintf(target, sizeof target, "%s/" PEN_HFDIR_TEMPLATES, to) >= PATH_MAX)
    return pen_error_set(-ENAMETOOLONG, "cannot copy from %s to %s", from, to);
  DIR *dir = opendir(source);
  if (!dir)
    return errno == ENOENT || errno == ENOTDIR
               ? 0
               : pen_error_set(-errno, "cannot open the folder %s", source);
  struct dirent *entry;
  int rc = pen_files_make_dirs(target);
  while (!rc && (entry = readdir(dir)))
    if (ends_in(entry->d_name, ".jinja") && !is_folder(dir, entry))
      rc = copy(source, target, entry->d_name);
  closedir(dir);
  return rc ? rc : pen_files_sync_dir(target);
}

int pen_hfdir_copy_folder(const char *from, const char *to)
{
  int rc = 0;
  for (size_t i = 0; i < sizeof companions / sizeof companions[0] && !rc; i++)
    rc = copy(from, to, companions[i]);
  return rc ? rc : copy_templates(from, to);
}

int pen_hfdir_remove(const char *path)
{
  return pen_files_remove_flat_dir(path, PEN_HFDIR_TEMPLATES);
}
