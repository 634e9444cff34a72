/* roof_disk.c: a drive's rates at the size of a tile, reading, writing, and both
 * at once as an optimizer does.
 *
 * The kinds take turns.  Disadvantage: a file smaller than a drive's own cache
 * measures the cache. */
#include "bench/arguments.h"
#include "bench/drive.h"
#include "bench/report.h"

static double rates[PEN_DRIVE_KINDS][PEN_REPORT_RUNS_MAX];

int main(int argc, char **argv)
{
  struct pen_arguments a;
  struct pen_report report;
  struct pen_drive drive;
  pen_arguments_parse(PEN_ROOF_DISK, argc, argv, &a);
  pen_report_init(&report, argc, argv);
  pen_drive_init(&drive, a.directory, a.request, a.size, a.depth);
  for (size_t i = 0; i <= a.repeats; i++) /* the first does not count */
    for (int k = 0; k < PEN_DRIVE_KINDS; k++)
      rates[k][i ? i - 1 : 0] = pen_drive_run(&drive, k);
  for (int k = 0; k < PEN_DRIVE_KINDS; k++) {
    struct pen_report_series series = {"", "bytes/s", rates[k], a.repeats};
    char name[64];
    snprintf(name, sizeof name, "roof_disk.%s", pen_drive_kind_name(k));
    pen_report_begin(&report, name);
    pen_json_put_u64(&report.writer, "request_bytes", drive.request);
    pen_json_put_u64(&report.writer, "file_bytes", drive.n * drive.request);
    pen_json_put_u64(&report.writer, "depth", drive.n_threads);
    pen_report_end(&report, &series, NULL);
  }
  pen_drive_done(&drive);
  pen_arguments_done(&a);
  return 0;
}
