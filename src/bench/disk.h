/* disk.h: what the system shows of the drive below a directory: its name, its
 * link, how warm it is.  Only files of /sys are read. */
#ifndef PEN_SRC_BENCH_DISK_H
#define PEN_SRC_BENCH_DISK_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct pen_disk {
  char folder[PATH_MAX]; /* of the whole disk, a partition's parent */
  char name[64];         /* "nvme0n1" */
  char model[128];       /* "": not shown */
  bool turns;            /* a disk of platters; virtual ones say so of themselves,
                            and have no model */
  char heat[PATH_MAX];   /* folder of its sensor; "": none is shown */
};

/* The disk of a file system's device number under `sys` ("/sys"); through a
 * volume of one disk to that disk.  false: nothing is shown of it. */
bool pen_disk_find(const char *sys, dev_t device, struct pen_disk *ret_disk);

/* A PCI device's link. */
struct pen_disk_link {
  double speed, speed_max;  /* GT/s of a lane */
  unsigned width, width_max; /* lanes */
};
/* Of the nearest PCI device above `folder`; false: none is, or it says
 * nothing. */
bool pen_disk_link(const char *folder, struct pen_disk_link *ret_link);
/* "PCIe 3.0 x2 of 4.0 x4" */
#define PEN_DISK_LINK_TEXT_BYTES 64
void pen_disk_link_text(const struct pen_disk_link *link,
                        char ret_text[PEN_DISK_LINK_TEXT_BYTES]);
bool pen_disk_link_is_full(const struct pen_disk_link *link);

struct pen_disk_heat {
  double celsius; /* NAN: not known */
  double limit;   /* above which it slows itself down; NAN: not said */
  bool alarm;     /* it says that it is there */
};
void pen_disk_heat(const struct pen_disk *disk, struct pen_disk_heat *ret_heat);

/* One line of folder/name without its end; false where there is none. */
bool pen_disk_attribute(const char *folder, const char *name, char *ret_text,
                        size_t bytes);

#endif
