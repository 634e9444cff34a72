/* bench_tiers.c: the levels of memory on a scale that people know: if one cycle
 * were one second.  Main thread. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/size.h"
#include "io/json_write.h"
#include "src/cli/bench.h"

/* "4 s", "3.5 min", "2.1 days". */
#define SPAN_BYTES 32
static const char *span(double seconds, char ret_text[SPAN_BYTES])
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
  snprintf(ret_text, SPAN_BYTES, "%.2g %s", seconds / scale, units[i].name);
  return ret_text;
}

/* "1.2 ns (1.1 to 1.4)" */
static void print_time(const struct pen_bench_tier *r)
{
  bool small = r->latency_s < 1e-6;
  double unit = small ? 1e9 : 1e6;
  char spread[64];
  snprintf(spread, sizeof spread, "(%.3g to %.3g)", r->least_s * unit,
           r->most_s * unit);
  printf("%9.3g %s %-18s", r->latency_s * unit, small ? "ns" : "us", spread);
}

static void print_text(const struct pen_bench_tiers *t)
{
  char size[PEN_SIZE_TEXT_BYTES], text[SPAN_BYTES];
  char command[PEN_BENCH_COMMAND_BYTES];
  pen_bench_command(command);
  puts(command);
  printf("one cycle is %.3g ns (%.3g GHz)\n", t->cycle_s * 1e9,
         1e-9 / t->cycle_s);
  printf("%-24s %10s %12s %-18s %14s  %s\n", "", "size", "latency", "",
         "cycle = 1 s", "read by one thread");
  for (size_t i = 0; i < t->n_rows; i++) {
    const struct pen_bench_tier *r = &t->rows[i];
    size[0] = '\0';
    if (r->bytes)
      pen_size_format(r->bytes, size);
    printf("%-24s %10s ", r->name, size);
    print_time(r);
    printf(" %14s  ", span(r->latency_s / t->cycle_s, text));
    pen_bench_print_rate(r->read);
    puts(" bytes/s");
  }
}

static int print_json(const struct pen_bench_tiers *t)
{
  struct pen_json_writer w;
  const char *text;
  size_t bytes;
  char command[PEN_BENCH_COMMAND_BYTES];
  pen_bench_command(command);
  pen_json_writer_init(&w, NULL, 0, true);
  pen_json_begin_object(&w, NULL);
  pen_json_put_string(&w, "command", command);
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

/* As rows of rates, what bench's other parts have. */
static int print_rows(int format, const struct pen_bench_tiers *t, size_t n_runs,
                      const struct pen_machine *machine)
{
  const struct pen_bench_advice none = {.asked = false};
  struct pen_bench_table *table = calloc(1, sizeof *table);
  char text[SPAN_BYTES];
  if (!table)
    return pen_error_set(PEN_ENOFIT, "no memory for results");
  for (size_t i = 0; i < t->n_rows; i++) {
    const struct pen_bench_tier *r = &t->rows[i];
    struct pen_bench_row *row = &table->rows[table->n_rows++];
    *row = (struct pen_bench_row){
        .unit = "loads/s", .median = 1 / r->latency_s, .least = 1 / r->most_s,
        .most = 1 / r->least_s, .n_runs = n_runs};
    snprintf(row->name, sizeof row->name, "%.300s, one load after the other",
             r->name);
    pen_bench_note(table, "if one cycle were one second, a load from %s would "
                   "take %s; one thread reads %.3g GB/s from it", r->name,
                   span(r->latency_s / t->cycle_s, text), r->read * 1e-9);
  }
  int rc = pen_bench_print(format, table, &none, machine);
  free(table);
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
  if (format != PEN_CONFIG_OUTPUT_TEXT)
    return print_rows(format, &t, options->n_runs, machine);
  print_text(&t);
  return 0;
}
