/* bench_tiers.c: the levels of memory on a scale that people know: if one cycle
 * were one second.  Main thread. */
#include <stdio.h>

#include "base/size.h"
#include "io/json_write.h"
#include "src/cli/bench.h"

/* "4 s", "3.5 min", "2.1 days". */
static void print_span(double seconds)
{
  static const struct {
    double seconds;
    const char *name;
  } units[] = {{365.25 * 86400, "years"}, {86400, "days"}, {3600, "hours"},
               {60, "min"}, {0, "s"}};
  size_t i = 0;
  while (seconds < units[i].seconds)
    i++;
  double scale = units[i].seconds > 0 ? units[i].seconds : 1;
  char text[32];
  snprintf(text, sizeof text, "%.2g %s", seconds / scale, units[i].name);
  printf("%14s", text);
}

static void print_time(double seconds)
{
  if (seconds < 1e-6)
    printf("%9.3g ns", seconds * 1e9);
  else
    printf("%9.3g us", seconds * 1e6);
}

static void print_text(const struct pen_bench_tiers *t)
{
  char size[PEN_SIZE_TEXT_BYTES];
  printf("one cycle is %.3g ns (%.3g GHz)\n", t->cycle_s * 1e9,
         1e-9 / t->cycle_s);
  printf("%-24s %10s %12s %14s  %s\n", "", "size", "latency",
         "cycle = 1 s", "read by one thread");
  for (size_t i = 0; i < t->n_rows; i++) {
    const struct pen_bench_tier *r = &t->rows[i];
    size[0] = '\0';
    if (r->bytes)
      pen_size_format(r->bytes, size);
    printf("%-24s %10s ", r->name, size);
    print_time(r->latency_s);
    putchar(' ');
    print_span(r->latency_s / t->cycle_s);
    printf("  ");
    pen_bench_print_rate(r->read);
    puts(" bytes/s");
  }
}

static int print_json(const struct pen_bench_tiers *t)
{
  struct pen_json_writer w;
  const char *text;
  size_t bytes;
  pen_json_writer_init(&w, NULL, 0, true);
  pen_json_begin_object(&w, NULL);
  pen_json_put_double(&w, "cycle_seconds", t->cycle_s);
  pen_json_begin_array(&w, "tiers");
  for (size_t i = 0; i < t->n_rows; i++) {
    const struct pen_bench_tier *r = &t->rows[i];
    pen_json_begin_object(&w, NULL);
    pen_json_put_string(&w, "name", r->name);
    if (r->bytes)
      pen_json_put_u64(&w, "bytes", r->bytes);
    pen_json_put_double(&w, "latency_seconds", r->latency_s);
    pen_json_put_double(&w, "least_seconds", r->least_s);
    pen_json_put_double(&w, "most_seconds", r->most_s);
    pen_json_put_double(&w, "cycles", r->latency_s / t->cycle_s);
    pen_json_put_double(&w, "read_bytes_per_s", r->read);
    pen_json_end_object(&w);
  }
  pen_json_end_array(&w);
  pen_json_end_object(&w);
  int rc = pen_json_finish(&w, &text, &bytes);
  if (rc == 0)
    puts(text);
  pen_json_writer_done(&w);
  return rc;
}

int pen_bench_show_tiers(int format, const struct pen_bench_options *options,
                         const struct pen_machine *machine)
{
  struct pen_bench_tiers t;
  int rc = pen_bench_tiers(options, machine, &t);
  if (rc < 0)
    return rc;
  if (format == PEN_CONFIG_OUTPUT_JSON)
    return print_json(&t);
  print_text(&t);
  return 0;
}
