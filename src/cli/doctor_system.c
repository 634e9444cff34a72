/* doctor_system.c: what the kernel and its administrator allow.
 *
 * Reads /proc and /sys.  Main thread.
 * Disadvantage: memory is judged as it is now. */
#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/error.h"
#include "base/size.h"
#include "offload/division.h"
#include "src/cli/doctor.h"
#include "src/train/memory.h"

#define LANES_THAT_REGISTER 2 /* read and write */

static void see_kernel(struct pen_doctor *d)
{
  struct utsname name;
  int major = 0, minor = 0;
  if (uname(&name) < 0)
    return;
  if (sscanf(name.release, "%d.%d", &major, &minor) != 2)
    major = 0;
  bool old = major < 5 || (major == 5 && minor < 6);
  pen_doctor_add(d, "kernel", old ? PEN_DOCTOR_DEGRADED : PEN_DOCTOR_OK,
                 "io_uring as it is used here needs Linux 5.6",
                 "%s %s, %s", name.sysname, name.release, name.machine);
}

/* ---- locked memory ---- */

static const char *limit_text(rlim_t limit, char text[PEN_SIZE_TEXT_BYTES])
{
  if (limit == RLIM_INFINITY)
    snprintf(text, PEN_SIZE_TEXT_BYTES, "unlimited");
  else
    pen_size_format(limit, text);
  return text;
}

/* Each lane that does I/O registers all slots in RAM. */
static void see_memlock(struct pen_doctor *d, uint64_t host_bytes)
{
  struct rlimit limit = {0, 0};
  char soft[PEN_SIZE_TEXT_BYTES], hard[PEN_SIZE_TEXT_BYTES];
  char need[PEN_SIZE_TEXT_BYTES], advice[256];
  uint64_t bytes = host_bytes ? host_bytes : pen_memory_available();
  bool capable = pen_doctor_status(d, "CapEff:", 16, 0) >> CAP_IPC_LOCK & 1;
  if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
    return;
  if (__builtin_mul_overflow(bytes, LANES_THAT_REGISTER, &bytes))
    bytes = UINT64_MAX;
  pen_size_format(bytes, need);
  bool enough = capable || limit.rlim_cur == RLIM_INFINITY ||
                limit.rlim_cur >= bytes;
  bool may_raise = limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= bytes;
  snprintf(advice, sizeof advice, "%s",
           may_raise ? "ulimit -l \"$(ulimit -H -l)\" before the run"
                     : "raise memlock in limits.conf, systemd's LimitMEMLOCK "
                       "or the container's --ulimit memlock=-1");
  pen_doctor_add(d, "locked memory",
                 enough ? PEN_DOCTOR_OK : PEN_DOCTOR_DEGRADED, advice,
                 "limit %s soft, %s hard%s; a run with drives registers up to "
                 "%s%s",
                 limit_text(limit.rlim_cur, soft),
                 limit_text(limit.rlim_max, hard),
                 capable ? " (not counted: CAP_IPC_LOCK)" : "", need,
                 enough ? "" : ", and goes without registered buffers");
}

/* ---- memory and CPUs ---- */

static void see_huge_pages(struct pen_doctor *d)
{
  char line[128] = "";
  bool known = pen_doctor_line(d->sys, "kernel/mm/transparent_hugepage/enabled",
                               line, sizeof line);
  bool good = strstr(line, "[always]") || strstr(line, "[madvise]");
  pen_doctor_add(d, "huge pages", good ? PEN_DOCTOR_OK : PEN_DOCTOR_DEGRADED,
                 "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
                 "transparent huge pages: %s",
                 known ? line : "none in this kernel");
}

static int kernel_nodes(const struct pen_doctor *d)
{
  char path[PATH_MAX];
  int n = 0;
  for (int node = 0; node < 1024; node++) {
    snprintf(path, sizeof path, "%s/devices/system/node/node%d", d->sys, node);
    n += access(path, F_OK) == 0;
  }
  return n ? n : 1;
}

/* What `train` would do if nothing else were asked for. */
static void see_cpus(struct pen_doctor *d)
{
  struct pen_topology topology = {.n_nodes = 1};
  struct pen_division division = {.binds = false};
  struct pen_division_wish wish = {.numa = true};
  char text[PEN_DIVISION_TEXT_BYTES];
  int rc = pen_topology_read(&topology);
  if (rc == 0)
    rc = pen_division_make(&topology, &wish, &division);
  if (rc == 0)
    pen_doctor_add(d, "CPUs", PEN_DOCTOR_OK, NULL, "%s; %ld online",
                   pen_division_text(&division, &topology, text),
                   sysconf(_SC_NPROCESSORS_ONLN));
  else
    pen_doctor_add(d, "CPUs", PEN_DOCTOR_MISSING, "see the message", "%s",
                   pen_error_text());
  pen_error_clear();
  bool missed = kernel_nodes(d) > 1 && !topology.knows_nodes;
  pen_doctor_add(d, "NUMA", missed ? PEN_DOCTOR_DEGRADED : PEN_DOCTOR_OK,
                 "install hwloc's headers and build again",
                 "%d node%s in the kernel, %zu in use", kernel_nodes(d),
                 kernel_nodes(d) > 1 ? "s" : "", topology.n_nodes);
  pen_division_done(&division);
  pen_topology_done(&topology);
}

static void see_ram(struct pen_doctor *d, uint64_t host_bytes)
{
  uint64_t bytes = pen_memory_available();
  char text[PEN_SIZE_TEXT_BYTES];
  bool enough = bytes >= host_bytes;
  pen_size_format(bytes, text);
  pen_doctor_add(d, "RAM", enough ? PEN_DOCTOR_OK : PEN_DOCTOR_MISSING,
                 "lower --host-memory, or end what else uses memory",
                 "%s can be had now (MemAvailable and cgroup limit)%s", text,
                 enough ? "" : ", less than --host-memory");
}

void pen_doctor_system(struct pen_doctor *doctor, uint64_t host_bytes)
{
  see_kernel(doctor);
  pen_doctor_uring(doctor);
  see_memlock(doctor, host_bytes);
  see_ram(doctor, host_bytes);
  see_huge_pages(doctor);
  see_cpus(doctor);
}
