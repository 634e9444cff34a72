/* report.h: results of benches as JSON lines, one object each, in the form that
 * bench/README.md gives.
 *
 * JSON goes to standard output, the same for people to standard error.  Main
 * thread.  Failures to write end the program: a bench has nothing else to do. */
#ifndef PEN_BENCH_REPORT_H
#define PEN_BENCH_REPORT_H

#include <stddef.h>

#include "io/json_write.h"

#define PEN_REPORT_RUNS_MAX 256

/* What two results must share to be compared, and what else may differ. */
struct pen_report_machine {
  char cpu[128];
  size_t cores;       /* that this process may use */
  uint64_t ram_bytes; /* whole GiB, rounded up: kernels keep a little back */
  char kernel[128];
  char libc[32], onednn[96], openblas[96]; /* versions; "" where there is none */
};

struct pen_report {
  struct pen_json_writer writer; /* of the line that is begun */
  struct pen_report_machine machine;
  char command[2048];
};

/* One quantity, measured again and again.  A unit that ends in "/s" is better
 * when it is more, any other when it is less. */
struct pen_report_series {
  const char *name; /* of the ceiling; not read otherwise */
  const char *unit;
  const double *values; /* [n], in the order of measuring */
  size_t n;             /* 1 .. PEN_REPORT_RUNS_MAX */
};

/* Keeps the command and looks at the machine, which each line repeats.  Before
 * threads are started: it opens the product libraries. */
void pen_report_init(struct pen_report *report, int argc, char *const *argv);

/* Begins a line.  Parameters follow: pen_json_put_...(&report->writer, ...). */
void pen_report_begin(struct pen_report *report, const char *name);

/* Ends the parameters and the line.  ceiling: NULL, or measured in turn with
 * the series: as many values, value i beside value i; the percent is the median
 * of the pairs' ratios. */
void pen_report_end(struct pen_report *report,
                    const struct pen_report_series *series,
                    const struct pen_report_series *ceiling);

/* Median of values [n]. */
double pen_report_median(const double *values, size_t n);

void pen_report_machine_init(struct pen_report_machine *ret_machine);
/* It and this build's commit, as a member of the object that is open. */
void pen_report_machine_put(const struct pen_report_machine *machine,
                            struct pen_json_writer *writer, const char *key);

/* The commit this was built from, "-dirty" added where files differed. */
extern const char pen_report_commit[];

/* Ends the program with what failed last, and its exit code. */
_Noreturn void pen_report_fail(void);

#endif
