/* drives.c: directories to drives, by the file systems they are on.
 *
 * Main thread.  Disadvantage: two partitions of one drive count as two. */
#include "src/train/drives.h"

#include <sys/stat.h>

#include "base/error.h"

static bool same_drive(const char *a, const char *b)
{
  struct stat x, y;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev;
}

/* The profile's drive for the n-th directory: measured on the same file system,
 * or, in a described machine, the n-th. */
static const struct pen_machine_drive *
find_drive(const struct pen_machine *m, const char *dir, size_t n)
{
  for (size_t i = 0; i < m->n_drives; i++)
    if (m->drives[i].path[0] && same_drive(m->drives[i].path, dir))
      return &m->drives[i];
  return n < m->n_drives && !m->drives[n].path[0] ? &m->drives[n] : NULL;
}

static void divide(struct pen_machine_drive *drive, size_t parts)
{
  drive->read /= (double)parts;
  drive->write /= (double)parts;
  drive->mixed /= (double)parts;
}

int pen_drives_choose(const struct pen_machine_settings *set,
                      struct pen_machine *m)
{
  const struct pen_machine all = *m;
  if (set->described_drives)
    return 0;
  if (set->n_nvme_dirs > PEN_MACHINE_DRIVES_MAX)
    return pen_error_set(PEN_EUSAGE, "--nvme-path names %zu directories; %d "
                         "can be simulated",
                         set->n_nvme_dirs, PEN_MACHINE_DRIVES_MAX);
  m->n_drives = set->n_nvme_dirs;
  for (size_t d = 0; d < set->n_nvme_dirs; d++) {
    const struct pen_machine_drive *drive =
        find_drive(&all, set->nvme_dirs[d], d);
    if (!drive)
      return pen_error_set(PEN_EUSAGE,
                           "the machine profile says nothing of the drive of "
                           "%s; run penstock bench nvme --nvme-path %s",
                           set->nvme_dirs[d], set->nvme_dirs[d]);
    size_t sharers = 0;
    for (size_t i = 0; i < set->n_nvme_dirs; i++)
      sharers += i == d || same_drive(set->nvme_dirs[i], set->nvme_dirs[d]);
    m->drives[d] = *drive;
    divide(&m->drives[d], sharers);
  }
  return 0;
}

const char *const *pen_drives_names(void)
{
  static const char *const names[PEN_MACHINE_DRIVES_MAX] = {
      "drive 1",  "drive 2",  "drive 3",  "drive 4",  "drive 5",  "drive 6",
      "drive 7",  "drive 8",  "drive 9",  "drive 10", "drive 11", "drive 12",
      "drive 13", "drive 14", "drive 15", "drive 16"};
  return names;
}
