/* bench_print.c: results of `penstock bench` as text, Markdown, CSV, JSON or
 * lines of JSON, all from the same rows.  Main thread. */
#include <inttypes.h>
#include <stdio.h>

#include "base/size.h"
#include "io/json_write.h"
#include "src/cli/bench.h"

void pen_bench_print_rate(double rate)
{
  static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t i = 0;
  for (; rate >= 1000 && i + 1 < sizeof prefixes / sizeof *prefixes; i++)
    rate /= 1000;
  printf("%.4g%s%s", rate, *prefixes[i] ? " " : "", prefixes[i]);
}

static void print_text_rows(const struct pen_bench_table *table)
{
  for (size_t i = 0; i < table->n_rows; i++) {
    const struct pen_bench_row *r = &table->rows[i];
    printf("%-46s  ", r->name);
    pen_bench_print_rate(r->median);
    printf(" %s (", r->unit);
    pen_bench_print_rate(r->least);
    printf(" to ");
    pen_bench_print_rate(r->most);
    printf(" in %zu runs)", r->n_runs);
    if (r->of_ceiling > 0)
      printf(", %.0f %% of the ceiling", 100 * r->of_ceiling);
    putchar('\n');
  }
}

/* What drives add to a step of models whose state is all on them: p, m and v
 * are read and written once, 12 bytes each way a parameter, while nothing else
 * is slower.  Stores are striped evenly, so the slowest drive counts. */
static double state_rate(const struct pen_machine *m)
{
  double slowest = m->drives[0].mixed;
  for (size_t d = 1; d < m->n_drives; d++)
    if (m->drives[d].mixed < slowest)
      slowest = m->drives[d].mixed;
  return slowest * (double)m->n_drives;
}

static const double sizes[] = {1.5e9, 3e9, 7e9, 14e9, 32e9, 70e9};
#define STATE_BYTES_EACH_WAY 12

static void print_models(const struct pen_machine *m)
{
  char text[PEN_SIZE_TEXT_BYTES];
  if (!m->n_drives || state_rate(m) <= 0)
    return;
  printf("with all state on the profile's %zu drive%s a step takes at least\n",
         m->n_drives, m->n_drives > 1 ? "s" : "");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    double bytes = STATE_BYTES_EACH_WAY * sizes[i];
    pen_size_format((uint64_t)bytes, text);
    printf("  %4g B parameters: %6.4g s, writing %s\n", sizes[i] / 1e9,
           2 * bytes / state_rate(m), text);
  }
}

static void put_models(struct pen_json_writer *w, const struct pen_machine *m)
{
  pen_json_begin_array(w, "steps_with_state_on_drives");
  for (size_t i = 0; m->n_drives && state_rate(m) > 0 &&
                     i < sizeof sizes / sizeof *sizes; i++) {
    double bytes = STATE_BYTES_EACH_WAY * sizes[i];
    pen_json_begin_object(w, NULL);
    pen_json_put_double(w, "parameters", sizes[i]);
    pen_json_put_double(w, "least_seconds", 2 * bytes / state_rate(m));
    pen_json_put_double(w, "written_bytes", bytes);
    pen_json_end_object(w);
  }
  pen_json_end_array(w);
}

static void put_row(struct pen_json_writer *w, const struct pen_bench_row *r)
{
  pen_json_begin_object(w, NULL);
  pen_json_put_string(w, "name", r->name);
  pen_json_put_string(w, "unit", r->unit);
  pen_json_put_double(w, "median", r->median);
  pen_json_put_double(w, "least", r->least);
  pen_json_put_double(w, "most", r->most);
  pen_json_put_u64(w, "runs", r->n_runs);
  if (r->of_ceiling > 0)
    pen_json_put_double(w, "of_ceiling", r->of_ceiling);
  pen_json_end_object(w);
}

static int print_json(const struct pen_bench_table *table,
                      const struct pen_machine *machine)
{
  struct pen_json_writer w;
  const char *text;
  size_t bytes;
  pen_json_writer_init(&w, NULL, 0, true);
  pen_json_begin_object(&w, NULL);
  pen_json_begin_array(&w, "results");
  for (size_t i = 0; i < table->n_rows; i++)
    put_row(&w, &table->rows[i]);
  pen_json_end_array(&w);
  put_models(&w, machine);
  pen_machine_write(machine, &w, "profile");
  pen_json_end_object(&w);
  int rc = pen_json_finish(&w, &text, &bytes);
  if (rc == 0)
    puts(text);
  pen_json_writer_done(&w);
  return rc;
}

static int print_json_lines(const struct pen_bench_table *table)
{
  int rc = 0;
  for (size_t i = 0; rc == 0 && i < table->n_rows; i++) {
    struct pen_json_writer w;
    const char *text;
    size_t bytes;
    pen_json_writer_init(&w, NULL, 0, false);
    put_row(&w, &table->rows[i]);
    rc = pen_json_finish(&w, &text, &bytes);
    if (rc == 0)
      puts(text);
    pen_json_writer_done(&w);
  }
  return rc;
}

/* ---- Markdown and CSV ---- */

static void print_markdown(const struct pen_bench_table *table)
{
  puts("| what | unit | median | least | most | runs | of ceiling |\n"
       "| --- | --- | ---: | ---: | ---: | ---: | ---: |");
  for (size_t i = 0; i < table->n_rows; i++) {
    const struct pen_bench_row *r = &table->rows[i];
    printf("| %s | %s | ", r->name, r->unit);
    pen_bench_print_rate(r->median);
    printf(" | ");
    pen_bench_print_rate(r->least);
    printf(" | ");
    pen_bench_print_rate(r->most);
    printf(" | %zu | ", r->n_runs);
    if (r->of_ceiling > 0)
      printf("%.0f %%", 100 * r->of_ceiling);
    puts(" |");
  }
}

static void print_csv(const struct pen_bench_table *table)
{
  puts("what,unit,median,least,most,runs,of_ceiling");
  for (size_t i = 0; i < table->n_rows; i++) {
    const struct pen_bench_row *r = &table->rows[i];
    putchar('"');
    for (const char *c = r->name; *c; c++)
      printf(*c == '"' ? "\"\"" : "%c", *c);
    printf("\",%s,%.17g,%.17g,%.17g,%zu,", r->unit, r->median, r->least, r->most,
           r->n_runs);
    if (r->of_ceiling > 0)
      printf("%.17g", r->of_ceiling);
    putchar('\n');
  }
}

int pen_bench_print(int format, const struct pen_bench_table *table,
                    const struct pen_machine *machine)
{
  switch (format) {
  case PEN_CONFIG_OUTPUT_JSON:
    return print_json(table, machine);
  case PEN_CONFIG_OUTPUT_JSONL:
    return print_json_lines(table);
  case PEN_CONFIG_OUTPUT_MD:
    print_markdown(table);
    return 0;
  case PEN_CONFIG_OUTPUT_CSV:
    print_csv(table);
    return 0;
  default:
    print_text_rows(table);
    print_models(machine);
    return 0;
  }
}
