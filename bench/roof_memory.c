/* roof_memory.c: what memory gives to the streams of AdamW and to plain ones.
 *
 * The kinds take turns, so that a slow spell of the machine falls on all.
 * Disadvantage: pages lie where the main thread first touched them. */
#include "bench/arguments.h"
#include "bench/report.h"
#include "bench/streams.h"

static double rates[PEN_STREAMS_KINDS][PEN_REPORT_RUNS_MAX];

static void measure(const struct pen_streams *s, const struct pen_arguments *a)
{
  for (int k = 0; k < PEN_STREAMS_KINDS; k++)
    pen_streams_run(s, pen_streams_row(k), a->threads);
  for (size_t i = 0; i < a->repeats; i++)
    for (int k = 0; k < PEN_STREAMS_KINDS; k++) {
      const struct pen_streams_row *row = pen_streams_row(k);
      rates[k][i] = (double)(s->n * row->bytes_per_elem) /
                    pen_streams_run(s, row, a->threads);
    }
}

int main(int argc, char **argv)
{
  struct pen_arguments a;
  struct pen_report report;
  struct pen_streams streams;
  pen_arguments_parse(PEN_ROOF_MEMORY, argc, argv, &a);
  pen_report_init(&report, argc, argv);
  pen_streams_init(&streams, a.elements);
  measure(&streams, &a);
  for (int k = 0; k < PEN_STREAMS_KINDS; k++) {
    char name[64];
    snprintf(name, sizeof name, "roof_memory.%s", pen_streams_row(k)->name);
    pen_report_begin(&report, name);
    pen_json_put_u64(&report.writer, "elements", streams.n);
    pen_json_put_u64(&report.writer, "threads", a.threads);
    pen_report_end(&report,
                   &(struct pen_report_series){"", "bytes/s", rates[k],
                                               a.repeats},
                   NULL);
  }
  pen_streams_done(&streams);
  pen_arguments_done(&a);
  return 0;
}
