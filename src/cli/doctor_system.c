/* doctor_system.c: what the kernel and its administrator allow.
 *
 * Reads /proc and /sys, and tries one io_uring_setup.  Main thread.
 * Disadvantage: memory is judged as it is now; a limit of a parent cgroup is
 * not looked for. */
#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/error.h"
#include "base/size.h"
#include "io/engine.h"
#include "kernels/backend.h"
#include "offload/division.h"
#include "src/cli/doctor.h"
#include "src/train/memory.h"

#define LANES_THAT_REGISTER 2 /* read and write */

/* The first line of a file without its end; false where there is none. */
static bool read_line(const char *path, char *ret_line, size_t bytes)
{
  FILE *f = fopen(path, "re");
  bool good = f && fgets(ret_line, (int)bytes, f);
  if (good)
    ret_line[strcspn(ret_line, "\n")] = '\0';
  if (f)
    fclose(f);
  return good;
}

/* The number after `key` in /proc/self/status; `fallback` where it is not. */
static unsigned long long status_of(const char *key, int base,
                                    unsigned long long fallback)
{
  char line[256];
  FILE *f = fopen("/proc/self/status", "re");
  unsigned long long value = fallback;
  while (f && fgets(line, sizeof line, f))
    if (strncmp(line, key, strlen(key)) == 0)
      value = strtoull(line + strlen(key), NULL, base);
  if (f)
    fclose(f);
  return value;
}

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

/* ---- io_uring ---- */

/* Who refused: the sysctl, a seccomp filter, or a kernel without it. */
static void explain_refusal(struct pen_doctor *d, int code)
{
  char sysctl[32] = "";
  read_line("/proc/sys/kernel/io_uring_disabled", sysctl, sizeof sysctl);
  bool filtered = status_of("Seccomp:", 10, 0) == 2;
  const char *name = code == ENOSYS  ? "ENOSYS"
                     : code == EPERM ? "EPERM"
                                     : strerror(code);
  if (code == EPERM && (strcmp(sysctl, "2") == 0 || strcmp(sysctl, "1") == 0))
    pen_doctor_add(d, "io_uring", PEN_DOCTOR_DEGRADED,
                   "sysctl kernel.io_uring_disabled=0, or, where it is 1, join "
                   "the group of kernel.io_uring_group",
                   "refused (EPERM) by sysctl kernel.io_uring_disabled=%s; "
                   "drives are used through threads",
                   sysctl);
  else if (filtered)
    pen_doctor_add(d, "io_uring", PEN_DOCTOR_DEGRADED,
                   "run the container with a seccomp profile that allows "
                   "io_uring_setup, io_uring_enter and io_uring_register",
                   "refused (%s) by a seccomp filter; drives are used through "
                   "threads",
                   name);
  else
    pen_doctor_add(d, "io_uring", PEN_DOCTOR_DEGRADED,
                   code == ENOSYS ? "use a kernel built with CONFIG_IO_URING"
                                  : "see whether a security module forbids it",
                   "not to be had (%s)%s; drives are used through threads",
                   name, code == ENOSYS ? ": this kernel has none" : "");
}

static void see_uring(struct pen_doctor *d)
{
  struct io_uring_params params;
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
    explain_refusal(d, errno);
    return;
  }
  close((int)fd);
  pen_doctor_add(d, "io_uring", PEN_DOCTOR_OK, NULL,
                 "permitted, features %#x", params.features);
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
  bool capable = status_of("CapEff:", 16, 0) >> CAP_IPC_LOCK & 1;
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
  bool known = read_line("/sys/kernel/mm/transparent_hugepage/enabled", line,
                         sizeof line);
  bool good = strstr(line, "[always]") || strstr(line, "[madvise]");
  pen_doctor_add(d, "huge pages", good ? PEN_DOCTOR_OK : PEN_DOCTOR_DEGRADED,
                 "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
                 "transparent huge pages: %s",
                 known ? line : "none in this kernel");
}

static int kernel_nodes(void)
{
  char path[64];
  int n = 0;
  for (int node = 0; node < 1024; node++) {
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d", node);
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
  bool missed = kernel_nodes() > 1 && !topology.knows_nodes;
  pen_doctor_add(d, "NUMA", missed ? PEN_DOCTOR_DEGRADED : PEN_DOCTOR_OK,
                 "install hwloc's headers and build again",
                 "%d node%s in the kernel, %zu in use", kernel_nodes(),
                 kernel_nodes() > 1 ? "s" : "", topology.n_nodes);
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

static void see_gpu(struct pen_doctor *d)
{
  char line[256] = "";
  struct pen_backend *backend = NULL;
  bool driver = read_line("/proc/driver/nvidia/version", line, sizeof line);
  if (pen_backend_open("cuda", 0, &backend) == 0)
    pen_doctor_add(d, "GPU", PEN_DOCTOR_OK, NULL, "%s", backend->about);
  else
    pen_doctor_add(d, "GPU", driver ? PEN_DOCTOR_DEGRADED : PEN_DOCTOR_OK,
                   "until then the CPU computes", "%s%s", pen_error_text(),
                   driver ? "" : ": the CPU computes");
  pen_error_clear();
  pen_backend_close(&backend);
}

void pen_doctor_system(struct pen_doctor *doctor, uint64_t host_bytes)
{
  see_kernel(doctor);
  see_uring(doctor);
  see_memlock(doctor, host_bytes);
  see_ram(doctor, host_bytes);
  see_huge_pages(doctor);
  see_cpus(doctor);
  see_gpu(doctor);
}
