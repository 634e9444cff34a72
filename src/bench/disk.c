/* disk.c: the tree of /sys, from a device number upwards.
 *
 * Any thread.  Disadvantage: a volume over several disks is told as itself. */
#include "src/bench/disk.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#define LEVELS 5 /* from a disk up to its PCI device, or its sensor */

bool pen_disk_attribute(const char *folder, const char *name, char *ret_text,
                        size_t bytes)
{
  char path[PATH_MAX + 256];
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

static bool number_of(const char *folder, const char *name, double *ret_number)
{
  char text[64], *end;
  if (!pen_disk_attribute(folder, name, text, sizeof text))
    return false;
  double number = strtod(text, &end);
  if (end == text)
    return false;
  *ret_number = number;
  return true;
}

/* false at the top. */
static bool go_up(char *folder)
{
  char *slash = strrchr(folder, '/');
  if (!slash || slash == folder)
    return false;
  *slash = '\0';
  return true;
}

/* The first entry of a folder whose name begins so; whether it is the only
 * one. */
static bool find_entry(const char *folder, const char *begin, char *ret_name,
                       size_t bytes, bool *ret_only)
{
  DIR *dir = opendir(folder);
  size_t n = 0;
  for (struct dirent *e; dir && (e = readdir(dir));)
    if (e->d_name[0] != '.' && strncmp(e->d_name, begin, strlen(begin)) == 0 &&
        n++ == 0)
      snprintf(ret_name, bytes, "%s", e->d_name);
  if (dir)
    closedir(dir);
  *ret_only = n == 1;
  return n > 0;
}

/* folder/hwmonN or folder/hwmon/hwmonN, whichever the kernel made. */
static bool find_sensor(const char *folder, char ret_path[PATH_MAX])
{
  static const char *const below[] = {"", "/hwmon"};
  char where[PATH_MAX + 8], name[256];
  double celsius;
  bool only;
  for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
    snprintf(where, sizeof where, "%s%s", folder, below[i]);
    if (!find_entry(where, "hwmon", name, sizeof name, &only))
      continue;
    char path[sizeof where + sizeof name];
    snprintf(path, sizeof path, "%s/%s", where, name);
    if (strlen(path) < PATH_MAX && number_of(path, "temp1_input", &celsius)) {
      memcpy(ret_path, path, strlen(path) + 1);
      return true;
    }
  }
  return false;
}

/* Where one disk alone carries a volume, that disk. */
static void follow_volume(char folder[PATH_MAX])
{
  char slaves[PATH_MAX + 8], name[256], real[PATH_MAX];
  bool only;
  for (int i = 0; i < LEVELS; i++) {
    snprintf(slaves, sizeof slaves, "%s/slaves", folder);
    if (!find_entry(slaves, "", name, sizeof name, &only) || !only)
      return;
    char path[sizeof slaves + sizeof name];
    snprintf(path, sizeof path, "%s/%s", slaves, name);
    if (!realpath(path, real))
      return;
    memcpy(folder, real, strlen(real) + 1);
  }
}

bool pen_disk_find(const char *sys, dev_t device, struct pen_disk *ret_disk)
{
  struct pen_disk d = {.turns = false};
  char link[PATH_MAX], part[16], turns[8] = "";
  snprintf(link, sizeof link, "%.4000s/dev/block/%u:%u", sys, major(device),
           minor(device));
  if (!realpath(link, d.folder))
    return false;
  follow_volume(d.folder);
  if (pen_disk_attribute(d.folder, "partition", part, sizeof part))
    go_up(d.folder);
  snprintf(d.name, sizeof d.name, "%s", strrchr(d.folder, '/') + 1);
  pen_disk_attribute(d.folder, "device/model", d.model, sizeof d.model);
  pen_disk_attribute(d.folder, "queue/rotational", turns, sizeof turns);
  d.turns = strcmp(turns, "1") == 0;
  char up[PATH_MAX];
  memcpy(up, d.folder, strlen(d.folder) + 1);
  for (int i = 0; i < LEVELS && !d.heat[0] && go_up(up); i++)
    find_sensor(up, d.heat);
  *ret_disk = d;
  return true;
}

/* ---- link ---- */

bool pen_disk_link(const char *folder, struct pen_disk_link *ret_link)
{
  char up[PATH_MAX];
  if (!realpath(folder, up))
    return false;
  for (int i = 0; i <= LEVELS; i++) {
    struct pen_disk_link link;
    double width, width_max;
    /* "Unknown" where a port has no link */
    if (number_of(up, "current_link_speed", &link.speed) &&
        number_of(up, "max_link_speed", &link.speed_max) &&
        number_of(up, "current_link_width", &width) &&
        number_of(up, "max_link_width", &width_max) && width > 0) {
      link.width = (unsigned)width;
      link.width_max = (unsigned)width_max;
      *ret_link = link;
      return true;
    }
    if (!go_up(up))
      return false;
  }
  return false;
}

/* Generation of a speed: 2.5, 5, 8, 16, 32, 64 GT/s. */
static int generation(double speed)
{
  return speed < 4 ? 1 : speed < 7 ? 2 : speed < 12 ? 3 : speed < 24 ? 4
                                               : speed < 48 ? 5 : 6;
}

bool pen_disk_link_is_full(const struct pen_disk_link *link)
{
  return generation(link->speed) >= generation(link->speed_max) &&
         link->width >= link->width_max;
}

void pen_disk_link_text(const struct pen_disk_link *link,
                        char ret_text[PEN_DISK_LINK_TEXT_BYTES])
{
  int n = snprintf(ret_text, PEN_DISK_LINK_TEXT_BYTES, "PCIe %d.0 x%u",
                   generation(link->speed), link->width);
  if (!pen_disk_link_is_full(link))
    snprintf(ret_text + n, PEN_DISK_LINK_TEXT_BYTES - (size_t)n,
             " of %d.0 x%u", generation(link->speed_max), link->width_max);
}

/* ---- heat ---- */

void pen_disk_heat(const struct pen_disk *disk, struct pen_disk_heat *ret_heat)
{
  struct pen_disk_heat h = {NAN, NAN, false};
  double value;
  if (disk->heat[0] && number_of(disk->heat, "temp1_input", &value))
    h.celsius = value / 1000;
  if (disk->heat[0] && number_of(disk->heat, "temp1_max", &value) && value > 0)
    h.limit = value / 1000;
  if (disk->heat[0] && number_of(disk->heat, "temp1_alarm", &value))
    h.alarm = value != 0;
  *ret_heat = h;
}
