/* doctor_compute.c: which kernels and libraries will compute, and what in the
 * environment steers them.
 *
 * Main thread.  Disadvantage: libraries are loaded to be asked, which takes a
 * moment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/gemm.h"
#include "src/cli/doctor.h"

static void see_isa(struct pen_doctor *d)
{
  enum pen_isa best = pen_isa_detect(), used;
  if (pen_isa_choose(NULL, &used) < 0) {
    pen_doctor_add(d, "instructions", PEN_DOCTOR_MISSING, "unset PEN_ISA",
                   "%s", pen_error_text());
    pen_error_clear();
    return;
  }
  bool good = used == best && best != PEN_ISA_SCALAR;
  pen_doctor_add(d, "instructions",
                 good ? PEN_DOCTOR_OK : PEN_DOCTOR_DEGRADED,
                 used != best ? "unset PEN_ISA"
                              : "a CPU with AVX2 or NEON is several times as "
                                "fast",
                 "%s kernels are used%s%s", pen_isa_name(used),
                 used != best ? ", though this machine runs " : "",
                 used != best ? pen_isa_name(best) : "");
}

/* What "auto" takes for this precision. */
static void see_products(struct pen_doctor *d, enum pen_elem elem,
                         const char *name, const char *advice)
{
  const struct pen_gemm_library *library;
  if (pen_gemm_find("auto", elem, &library) < 0) {
    pen_doctor_add(d, name, PEN_DOCTOR_MISSING, advice, "%s",
                   pen_error_text());
    pen_error_clear();
    return;
  }
  bool slow = library == &pen_gemm_reference;
  pen_doctor_add(d, name, slow ? PEN_DOCTOR_DEGRADED : PEN_DOCTOR_OK, advice,
                 "%s (%s)%s", library->name, library->variant(),
                 slow ? ": no library is faster here" : "");
}

/* What others read and penstock does not; and what steers its libraries. */
static void see_environment(struct pen_doctor *d)
{
  static const struct {
    const char *name;
    bool steers;
  } variables[] = {
      {"OMP_NUM_THREADS", false},      {"OPENBLAS_NUM_THREADS", false},
      {"MKL_NUM_THREADS", false},      {"GOMP_CPU_AFFINITY", false},
      {"KMP_AFFINITY", false},         {"OPENBLAS_CORETYPE", true},
      {"ONEDNN_MAX_CPU_ISA", true},    {"DNNL_MAX_CPU_ISA", true},
  };
  size_t n = 0;
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    const char *value = getenv(variables[i].name);
    if (!value)
      continue;
    n++;
    if (variables[i].steers)
      pen_doctor_add(d, "environment", PEN_DOCTOR_DEGRADED,
                     "unset it, unless a run was started with it",
                     "%s=%.64s chooses a library's kernels: speed and bits "
                     "change with it",
                     variables[i].name, value);
    else
      pen_doctor_add(d, "environment", PEN_DOCTOR_OK, NULL,
                     "%s=%.64s is not read here (--threads is); it would "
                     "mislead other programs",
                     variables[i].name, value);
  }
  if (!n)
    pen_doctor_add(d, "environment", PEN_DOCTOR_OK, NULL,
                   "no variable steers threads or kernels");
}

void pen_doctor_compute(struct pen_doctor *doctor)
{
  see_isa(doctor);
  see_products(doctor, PEN_ELEM_BF16, "bf16 products",
               "install oneDNN's headers and library and build again");
  see_products(doctor, PEN_ELEM_F32, "fp32 products",
               "install OpenBLAS (libopenblas0)");
  see_environment(doctor);
}
