/* machine.c: what this machine is, for the lines of results.
 *
 * Disadvantage: a virtual machine's neighbours, clock rates and mitigations are
 * not in it; two machines that look alike here may still differ. */
#include <gnu/libc-version.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include "base/error.h"
#include "base/thread.h"
#include "bench/report.h"
#include "kernels/gemm.h"

#define GIB ((uint64_t)1 << 30)

/* As /proc/cpuinfo calls the first one. */
static void read_cpu(char *ret_name, size_t bytes)
{
  char line[256];
  FILE *f = fopen("/proc/cpuinfo", "re");
  snprintf(ret_name, bytes, "unknown");
  while (f && fgets(line, sizeof line, f)) {
    const char *colon = strchr(line, ':');
    if (strncmp(line, "model name", strlen("model name")) || !colon)
      continue;
    snprintf(ret_name, bytes, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    break;
  }
  if (f)
    fclose(f);
}

static void read_version(const struct pen_gemm_library *library, char *ret_text,
                         size_t bytes)
{
  bool found = library->open(PEN_ELEM_F32) == 0;
  snprintf(ret_text, bytes, "%s", found ? library->variant() : "");
  pen_error_clear();
}

void pen_report_machine_init(struct pen_report_machine *ret_machine)
{
  struct pen_report_machine *m = ret_machine;
  struct utsname system;
  struct sysinfo info;
  *m = (struct pen_report_machine){.cores = pen_thread_usable_cpus()};
  read_cpu(m->cpu, sizeof m->cpu);
  if (sysinfo(&info) == 0)
    m->ram_bytes =
        ((uint64_t)info.totalram * info.mem_unit + GIB - 1) / GIB * GIB;
  if (uname(&system) == 0)
    snprintf(m->kernel, sizeof m->kernel, "%s", system.release);
  snprintf(m->libc, sizeof m->libc, "glibc %s", gnu_get_libc_version());
  read_version(&pen_gemm_onednn, m->onednn, sizeof m->onednn);
  read_version(&pen_gemm_openblas, m->openblas, sizeof m->openblas);
}

void pen_report_machine_put(const struct pen_report_machine *machine,
                            struct pen_json_writer *writer, const char *key)
{
  pen_json_begin_object(writer, key);
  pen_json_put_string(writer, "cpu", machine->cpu);
  pen_json_put_u64(writer, "cores", machine->cores);
  pen_json_put_u64(writer, "ram_bytes", machine->ram_bytes);
  pen_json_put_string(writer, "kernel", machine->kernel);
  pen_json_begin_object(writer, "libraries");
  pen_json_put_string(writer, "libc", machine->libc);
  if (*machine->onednn)
    pen_json_put_string(writer, "onednn", machine->onednn);
  if (*machine->openblas)
    pen_json_put_string(writer, "openblas", machine->openblas);
  pen_json_end_object(writer);
  pen_json_put_string(writer, "commit", pen_report_commit);
  pen_json_end_object(writer);
}
