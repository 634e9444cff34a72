/* traffic.c: the traffic of `penstock bench nvme` in slices, on a file that others
 * may use in between.
 *
 * Prints a path that leads to the file as long as this runs: it has no name of
 * its own.  Then each line WAY DEPTH RAMP SECONDS of standard input (way: 0
 * reads, 1 writes, 2 both; ramp: seconds before those that count) is answered
 * with bytes a second; the end of input ends it, and the file.  Disadvantage:
 * what is read is not compared, since others write. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/error.h"
#include "bench/arguments.h"
#include "bench/report.h"
#include "src/bench/traffic.h"

/* As bench nvme does: in its stride before it counts, and made durable in the
 * end. */
static int run_slice(struct pen_bench_file *file,
                     const struct pen_bench_traffic_options *o, double ramp,
                     double seconds, double *ret_rate)
{
  struct pen_bench_traffic *t = NULL;
  uint64_t bytes = 0;
  double passed = 0, synced;
  int rc = pen_bench_traffic_open(file, o, &t);
  if (rc == 0)
    rc = pen_bench_traffic_move(t, 0, ramp, &bytes, &passed);
  if (rc == 0)
    rc = pen_bench_traffic_move(t, 0, seconds, &bytes, &passed);
  if (rc == 0)
    rc = pen_bench_traffic_sync(t, &synced);
  if (rc == 0)
    *ret_rate = (double)bytes / passed;
  pen_bench_traffic_close(&t);
  return rc;
}

static int serve(struct pen_bench_file *file, size_t request)
{
  char line[128];
  int rc = 0;
  while (rc == 0 && fgets(line, sizeof line, stdin)) {
    struct pen_bench_traffic_options o = {.request = request, .blind = true};
    unsigned way;
    double ramp, seconds, rate = 0;
    if (sscanf(line, "%u %zu %lf %lf", &way, &o.depth, &ramp, &seconds) != 4 ||
        way >= PEN_BENCH_WAYS || !o.depth || !(ramp >= 0 && ramp < 600) ||
        !(seconds > 0 && seconds < 600))
      return pen_error_set(PEN_EUSAGE, "%.60s is not WAY DEPTH RAMP SECONDS", line);
    o.way = (enum pen_bench_way)way;
    rc = run_slice(file, &o, ramp, seconds, &rate);
    printf("%.0f\n", rate);
    fflush(stdout);
  }
  return rc;
}

int main(int argc, char **argv)
{
  struct pen_arguments a;
  struct pen_bench_file file = {.fd = -1};
  pen_arguments_parse(PEN_TRAFFIC, argc, argv, &a);
  const struct pen_engine *engine = NULL;
  int rc = pen_engine_parse("auto", &engine);
  if (rc == 0)
    rc = pen_bench_file_open(engine, a.directory, a.size, &file);
  if (rc == 0)
    rc = pen_bench_traffic_fill(&file, NULL);
  if (rc == 0)
    rc = pen_bench_file_look(&file);
  if (rc == 0) {
    printf("/proc/%ld/fd/%d\n", (long)getpid(), file.fd);
    fflush(stdout);
    rc = serve(&file, a.request);
  }
  if (rc == 0)
    rc = pen_bench_file_look(&file);
  pen_bench_file_close(&file);
  pen_engine_release(&engine);
  pen_arguments_done(&a);
  if (rc < 0)
    pen_report_fail();
  return 0;
}
