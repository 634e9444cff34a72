/* fingerprint.c: prints this machine and this build as JSON, for the scripts
 * that write results. */
#include <stdio.h>

#include "bench/report.h"

int main(void)
{
  struct pen_report_machine machine;
  struct pen_json_writer writer;
  const char *text;
  size_t bytes;
  pen_report_machine_init(&machine);
  pen_json_writer_init(&writer, NULL, 0, false);
  pen_report_machine_put(&machine, &writer, NULL);
  if (pen_json_finish(&writer, &text, &bytes) < 0)
    pen_report_fail();
  puts(text);
  pen_json_writer_done(&writer);
  return 0;
}
