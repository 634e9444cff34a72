/* doctor_drive.c: a directory that is to hold state.
 *
 * Opened by the same engine as a run's stores, so that the answer is the run's.
 * Main thread.  Disadvantage: a drive behind a volume manager or a container's
 * mount is named only where /sys shows it. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/error.h"
#include "base/size.h"
#include "io/engine.h"
#include "src/cli/doctor.h"

/* Writes, syncs and reads back one aligned block. */
static int try_block(struct pen_engine_file *file)
{
  static _Alignas(PEN_ENGINE_ALIGN) unsigned char out[PEN_ENGINE_ALIGN],
      back[PEN_ENGINE_ALIGN];
  for (size_t i = 0; i < sizeof out; i++)
    out[i] = (unsigned char)(i * 131 + 7);
  int rc = pen_engine_write_whole(file, out, sizeof out, PEN_ENGINE_ALIGN, NULL);
  if (rc == 0)
    rc = file->engine->sync(file);
  if (rc == 0)
    rc = pen_engine_read_whole(file, back, sizeof back, PEN_ENGINE_ALIGN, NULL);
  if (rc == 0 && memcmp(out, back, sizeof out))
    rc = pen_error_set(PEN_ECORRUPT, "%s gives back other bytes than were "
                       "written", file->path);
  return rc;
}

static const char *file_system_name(long type, char text[32])
{
  static const struct {
    long type;
    const char *name;
  } names[] = {{0xef53, "ext4"},      {0x58465342, "xfs"},
               {0x9123683e, "btrfs"}, {0x2fc12fc1, "zfs"},
               {0xf2f52010, "f2fs"},  {0x01021994, "tmpfs"},
               {0x858458f6, "ramfs"}, {0x794c7630, "overlay"},
               {0x6969, "nfs"},       {0x65735546, "fuse"},
               {0xca451a4e, "bcachefs"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if ((uint32_t)names[i].type == (uint32_t)type)
      return names[i].name;
  snprintf(text, 32, "type %#lx", (unsigned long)type);
  return text;
}

static void see_file_system(struct pen_doctor *d, const char *dir,
                            const char *note)
{
  struct statfs fs;
  char name[32], room[PEN_SIZE_TEXT_BYTES];
  if (statfs(dir, &fs) < 0)
    return;
  pen_size_format((uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize, room);
  pen_doctor_add(d, "file system",
                 note[0] ? PEN_DOCTOR_DEGRADED : PEN_DOCTOR_OK,
                 "choose a directory on a local drive",
                 "%s: %s, %s free%s%s", dir,
                 file_system_name((long)fs.f_type, name), room,
                 note[0] ? "; " : "", note);
}

/* A line of a file of /sys. */
static bool read_attribute(const char *folder, const char *name, char *ret_text,
                           size_t bytes)
{
  char path[PATH_MAX + 64];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "re");
  bool good = f && fgets(ret_text, (int)bytes, f);
  if (good) {
    size_t n = strcspn(ret_text, "\n");
    while (n && ret_text[n - 1] == ' ')
      n--;
    ret_text[n] = '\0';
  }
  if (f)
    fclose(f);
  return good;
}

/* The disk below a directory: its folder in /sys, a partition's parent. */
static bool find_disk(const char *dir, char ret_folder[PATH_MAX])
{
  struct stat st;
  char link[64];
  if (stat(dir, &st) < 0)
    return false;
  snprintf(link, sizeof link, "/sys/dev/block/%u:%u", major(st.st_dev),
           minor(st.st_dev));
  if (!realpath(link, ret_folder))
    return false;
  char part[8];
  if (read_attribute(ret_folder, "partition", part, sizeof part))
    *strrchr(ret_folder, '/') = '\0';
  return true;
}

static void see_disk(struct pen_doctor *d, const char *dir)
{
  char folder[PATH_MAX], model[128] = "", turns[8] = "";
  if (!find_disk(dir, folder)) {
    pen_doctor_add(d, "drive", PEN_DOCTOR_OK, NULL,
                   "%s: what lies below is not shown here", dir);
    return;
  }
  bool named = read_attribute(folder, "device/model", model, sizeof model);
  read_attribute(folder, "queue/rotational", turns, sizeof turns);
  /* Virtual disks, which have no model, say that they turn whatever they are. */
  bool disk = named && strcmp(turns, "1") == 0;
  pen_doctor_add(d, "drive", disk ? PEN_DOCTOR_DEGRADED : PEN_DOCTOR_OK,
                 "state wants an SSD", "%s: %s, %s%s", dir,
                 strrchr(folder, '/') + 1, named ? model : "a disk whose model is not shown",
                 disk ? ", turning disks" : "");
}

static void see_direct(struct pen_doctor *d, const struct pen_engine_file *file,
                       const char *dir, int rc)
{
  if (rc < 0)
    pen_doctor_add(d, "direct I/O", PEN_DOCTOR_MISSING,
                   "choose another directory", "%s: %s", dir,
                   pen_error_text());
  else if (file->direct && file->note[0])
    pen_doctor_add(d, "direct I/O", PEN_DOCTOR_DEGRADED,
                   "choose a directory on a local drive",
                   "%s: accepted, which on this file system promises little",
                   dir);
  else if (file->direct)
    pen_doctor_add(d, "direct I/O", PEN_DOCTOR_OK, NULL,
                   "%s: transfers of %d aligned bytes pass by the page cache",
                   dir, PEN_ENGINE_ALIGN);
  else
    pen_doctor_add(d, "direct I/O", PEN_DOCTOR_DEGRADED,
                   "choose a directory on ext4 or xfs",
                   "%s: refused by the file system; transfers go through the "
                   "page cache",
                   dir);
}

void pen_doctor_drive(struct pen_doctor *doctor, const char *dir)
{
  const struct pen_engine *engine = pen_engine_find("threads");
  struct pen_engine_file *file = NULL;
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%.3900s/penstock-doctor.%ld", dir,
           (long)getpid());
  int rc = engine->open(engine, path, true, &file);
  if (rc == 0)
    rc = try_block(file);
  see_direct(doctor, file, dir, rc);
  if (file) {
    see_file_system(doctor, dir, file->note);
    see_disk(doctor, dir);
  }
  pen_error_clear();
  if (file) {
    bool ours = file->created;
    engine->close(&file);
    if (ours)
      engine->remove(engine, path);
  }
}
