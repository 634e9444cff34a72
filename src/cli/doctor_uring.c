/* doctor_uring.c: tries one io_uring_setup and says who refuses.
 *
 * Main thread.  Disadvantage: a filter that lets the ring be made and refuses its
 * use later is seen only when a run starts. */
#include <errno.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/engine.h"
#include "src/cli/doctor.h"

#define CAP_SYS_ADMIN_BIT 21

static void refused_by_sysctl(struct pen_doctor *d, const char *value,
                              bool or_filter)
{
  pen_doctor_add(d, "io_uring", PEN_DOCTOR_DEGRADED,
                 "sysctl kernel.io_uring_disabled=0, or, where it is 1, join "
                 "the group of kernel.io_uring_group",
                 "refused (EPERM) by sysctl kernel.io_uring_disabled=%s%s; "
                 "drives are used through threads",
                 value, or_filter ? " or by a seccomp filter" : "");
}

static void refused_by_filter(struct pen_doctor *d, const char *name)
{
  pen_doctor_add(d, "io_uring", PEN_DOCTOR_DEGRADED,
                 "run the container with a seccomp profile that allows "
                 "io_uring_setup, io_uring_enter and io_uring_register",
                 "refused (%s) by a seccomp filter; drives are used through "
                 "threads",
                 name);
}

static void not_there(struct pen_doctor *d, const char *name, bool lacks)
{
  pen_doctor_add(d, "io_uring", PEN_DOCTOR_DEGRADED,
                 lacks ? "use a kernel built with CONFIG_IO_URING"
                       : "see whether a security module forbids it",
                 "not to be had (%s)%s; drives are used through threads", name,
                 lacks ? ": this kernel has none" : "");
}

/* The sysctl refuses with EPERM alone: all if it is 2, if it is 1 those without
 * CAP_SYS_ADMIN (and out of its group, which is not asked).  A filter refuses
 * with what its author chose; without one ENOSYS is the kernel's own. */
void pen_doctor_uring_refused(struct pen_doctor *doctor, int code)
{
  char sysctl[32] = "";
  pen_doctor_line(doctor->proc, "sys/kernel/io_uring_disabled", sysctl,
                  sizeof sysctl);
  bool filtered = pen_doctor_status(doctor, "Seccomp:", 10, 0) == 2;
  bool admin = pen_doctor_status(doctor, "CapEff:", 16, 0) >>
                   CAP_SYS_ADMIN_BIT & 1;
  const char *name = code == ENOSYS  ? "ENOSYS"
                     : code == EPERM ? "EPERM"
                                     : strerror(code);
  if (code == EPERM && strcmp(sysctl, "2") == 0)
    refused_by_sysctl(doctor, sysctl, false);
  else if (code == EPERM && strcmp(sysctl, "1") == 0 && !admin)
    refused_by_sysctl(doctor, sysctl, filtered);
  else if (filtered)
    refused_by_filter(doctor, name);
  else
    not_there(doctor, name, code == ENOSYS);
}

/* "NODROP, FAST_POLL ...": what <linux/io_uring.h> calls each bit. */
static void name_features(uint32_t features, char *ret_text, size_t bytes)
{
  static const char *const names[] = {
      "SINGLE_MMAP", "NODROP", "SUBMIT_STABLE", "RW_CUR_POS", "CUR_PERSONALITY",
      "FAST_POLL", "POLL_32BITS", "SQPOLL_NONFIXED", "EXT_ARG", "NATIVE_WORKERS",
      "RSRC_TAGS", "CQE_SKIP", "LINKED_FILE", "REG_REG_RING", "RECVSEND_BUNDLE",
      "MIN_TIMEOUT", "RW_ATTR", "NO_IOWAIT"};
  size_t at = 0;
  ret_text[0] = '\0';
  for (size_t i = 0; i < 32 && at < bytes; i++) {
    bool known = i < sizeof names / sizeof *names;
    if (!(features >> i & 1))
      continue;
    at += (size_t)(known ? snprintf(ret_text + at, bytes - at, " %s", names[i])
                         : snprintf(ret_text + at, bytes - at, " bit %zu", i));
  }
}

void pen_doctor_uring(struct pen_doctor *doctor)
{
  struct pen_doctor *d = doctor;
  struct io_uring_params params;
  char features[400];
  memset(&params, 0, sizeof params);
  if (pen_engine_find("uring")->absent) {
    pen_doctor_add(d, "io_uring", PEN_DOCTOR_DEGRADED,
                   "install liburing's headers and build again",
                   "this penstock was built without it; drives are used "
                   "through threads");
    return;
  }
  long fd = syscall(SYS_io_uring_setup, 4, &params);
  if (fd < 0) {
    pen_doctor_uring_refused(d, errno);
    return;
  }
  close((int)fd);
  name_features(params.features, features, sizeof features);
  pen_doctor_add(d, "io_uring", PEN_DOCTOR_OK, NULL, "permitted;%s", features);
}
