/* doctor_drive.c: a directory that is to hold state.
 *
 * Opened by the same engine as a run's stores, so that the answer is the run's.
 * Main thread.  Disadvantage: a drive behind a volume manager or a container's
 * mount is named only where /sys shows it. */
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/error.h"
#include "base/size.h"
#include "io/engine.h"
#include "src/bench/disk.h"
#include "src/cli/doctor.h"

#define NEAR_LIMIT 5.0 /* degrees */

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

static void see_link(struct pen_doctor *d, const char *dir,
                     const struct pen_disk *disk)
{
  struct pen_disk_link link;
  char text[PEN_DISK_LINK_TEXT_BYTES];
  if (!pen_disk_link(disk->folder, &link))
    return;
  pen_disk_link_text(&link, text);
  bool full = pen_disk_link_is_full(&link);
  pen_doctor_add(d, "drive link", full ? PEN_DOCTOR_OK : PEN_DOCTOR_DEGRADED,
                 "put the drive into a slot with as many lanes of its generation, "
                 "or look into the firmware's settings of this one",
                 "%s: %s, %s", dir, disk->name, text);
}

static void see_heat(struct pen_doctor *d, const char *dir,
                     const struct pen_disk *disk)
{
  struct pen_disk_heat heat;
  char limit[48] = "";
  pen_disk_heat(disk, &heat);
  if (isnan(heat.celsius))
    return;
  bool hot = heat.alarm || heat.celsius >= heat.limit - NEAR_LIMIT;
  if (!isnan(heat.limit))
    snprintf(limit, sizeof limit, ", slows down above %.0f", heat.limit);
  pen_doctor_add(d, "drive heat", hot ? PEN_DOCTOR_DEGRADED : PEN_DOCTOR_OK,
                 "give it a heat sink or air: bench nvme --soak shows what it costs",
                 "%s: %s is at %.0f degrees C%s%s", dir, disk->name, heat.celsius,
                 limit, heat.alarm ? ", and says that it is too hot" : "");
}

static void see_disk(struct pen_doctor *d, const char *dir)
{
  struct pen_disk disk;
  struct stat st;
  if (stat(dir, &st) < 0 || !pen_disk_find(d->sys, st.st_dev, &disk)) {
    pen_doctor_add(d, "drive", PEN_DOCTOR_OK, NULL,
                   "%s: what lies below is not shown here", dir);
    return;
  }
  /* Virtual disks, which have no model, say that they turn whatever they are. */
  bool platters = disk.model[0] && disk.turns;
  pen_doctor_add(d, "drive", platters ? PEN_DOCTOR_DEGRADED : PEN_DOCTOR_OK,
                 "state wants an SSD", "%s: %s, %s%s", dir, disk.name,
                 disk.model[0] ? disk.model : "a disk whose model is not shown",
                 platters ? ", turning disks" : "");
  see_link(d, dir, &disk);
  see_heat(d, dir, &disk);
}

/* Whether a file can be a copy of another without taking room: nothing here
 * needs it, checkpoints of state on drives share extents by themselves. */
static void see_reflink(struct pen_doctor *d, const char *dir, const char *path)
{
  char copy[PATH_MAX + 8];
  snprintf(copy, sizeof copy, "%s.copy", path);
  int from = open(path, O_RDONLY | O_CLOEXEC);
  int to = from < 0 ? -1 : open(copy, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  bool works = to >= 0 && ioctl(to, FICLONE, from) == 0;
  if (to >= 0) {
    pen_doctor_add(d, "reflink", PEN_DOCTOR_OK, NULL, "%s: %s", dir,
                   works ? "copies of files share their blocks"
                         : "none on this file system: copies of models take their "
                           "full room; state on drives shares its own");
    close(to);
    unlink(copy);
  }
  if (from >= 0)
    close(from);
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
    if (rc == 0 && file->created)
      see_reflink(doctor, dir, path);
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
