/* doctor.h: what this machine allows, fact by fact. */
#ifndef PEN_SRC_CLI_DOCTOR_H
#define PEN_SRC_CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEN_DOCTOR_FACTS_MAX 128

enum pen_doctor_level {
  PEN_DOCTOR_OK,
  PEN_DOCTOR_DEGRADED, /* training runs, slower or with less protection */
  PEN_DOCTOR_MISSING,  /* what was asked for cannot be had */
};

struct pen_doctor_fact {
  enum pen_doctor_level level;
  char name[24];
  char text[480];
  char advice[320]; /* what to do; "" where nothing */
};

struct pen_doctor {
  const char *sys, *proc; /* "/sys" and "/proc", borrowed */
  struct pen_doctor_fact facts[PEN_DOCTOR_FACTS_MAX];
  size_t n_facts;
};

/* Adds a fact; beyond PEN_DOCTOR_FACTS_MAX they are dropped.  advice is kept
 * only where the level is not OK. */
void pen_doctor_add(struct pen_doctor *doctor, const char *name,
                    enum pen_doctor_level level, const char *advice,
                    const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* "OK", "degraded", "missing" */
const char *pen_doctor_level_name(enum pen_doctor_level level);

/* doctor_system.c: kernel, io_uring, locked memory against what a run with
 * host_bytes of RAM (0: all that is available) registers, huge pages, NUMA,
 * CPUs, RAM. */
void pen_doctor_system(struct pen_doctor *doctor, uint64_t host_bytes);
/* doctor_uring.c: whether io_uring is permitted and, if not, by whom it is
 * refused. */
void pen_doctor_uring(struct pen_doctor *doctor);
/* The part that explains: io_uring_setup failed with this errno. */
void pen_doctor_uring_refused(struct pen_doctor *doctor, int code);
/* doctor_gpu.c: the backend's word, and each NVIDIA device's link, power and
 * heat: by its driver's library where that can be loaded, else by /sys. */
void pen_doctor_gpu(struct pen_doctor *doctor);
/* doctor_compute.c: instruction sets, product libraries, environment. */
void pen_doctor_compute(struct pen_doctor *doctor);
/* doctor_drive.c: one directory: file system, direct I/O and reflinks (tried on
 * files of 8 KiB that are removed), free space, drive, its link and heat. */
void pen_doctor_drive(struct pen_doctor *doctor, const char *dir);

/* The number after `key` in /proc/self/status; `fallback` where it is not. */
unsigned long long pen_doctor_status(const struct pen_doctor *doctor,
                                     const char *key, int base,
                                     unsigned long long fallback);
/* The first line of root/path without its end; false where there is none. */
bool pen_doctor_line(const char *root, const char *path, char *ret_line,
                     size_t bytes);

#endif
