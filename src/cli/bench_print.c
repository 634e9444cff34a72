/* bench_print.c: results of `penstock bench` as text, Markdown, CSV, JSON or
 * lines of JSON, all from the same rows.  In CSV and lines of JSON, which are
 * rows and no more, each has the command, and what else there is to say goes to
 * standard error.  Main thread. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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
      printf(", %.0f %% of %s", 100 * r->of_ceiling, r->ceiling);
    putchar('\n');
  }
}

void pen_bench_command(char ret_text[PEN_BENCH_COMMAND_BYTES])
{
  size_t bytes = PEN_BENCH_COMMAND_BYTES;
  char raw[2048];
  FILE *f = fopen("/proc/self/cmdline", "re");
  size_t n = f ? fread(raw, 1, sizeof raw - 1, f) : 0, at = 0;
  if (f)
    fclose(f);
  raw[n] = '\0';
  *ret_text = '\0';
  for (size_t i = 0; i < n && at < bytes; i += strlen(raw + i) + 1) {
    const char *word = i ? raw + i : "penstock";
    bool plain = *word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyz"
                                             "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                             "0123456789-_=./,+:@%")];
    bool quotable = !strchr(word, '\'');
    at += (size_t)snprintf(ret_text + at, bytes - at, "%s%s%s%s", i ? " " : "",
                           plain || !quotable ? "" : "'", word,
                           plain || !quotable ? "" : "'");
  }
}

static void print_notes(FILE *f, const struct pen_bench_table *table,
                        const char *before)
{
  for (size_t i = 0; i < table->n_notes; i++)
    fprintf(f, "%s%s\n", before, table->notes[i]);
}

/* command: NULL where it stands elsewhere. */
static void put_row(struct pen_json_writer *w, const struct pen_bench_row *r,
                    const char *command)
{
  pen_json_begin_object(w, NULL);
  pen_json_put_string(w, "name", r->name);
  pen_json_put_string(w, "unit", r->unit);
  pen_json_put_double(w, "median", r->median);
  pen_json_put_double(w, "least", r->least);
  pen_json_put_double(w, "most", r->most);
  pen_json_put_u64(w, "runs", r->n_runs);
  if (r->of_ceiling > 0) {
    pen_json_put_double(w, "of_ceiling", r->of_ceiling);
    pen_json_put_string(w, "ceiling", r->ceiling);
  }
  if (command)
    pen_json_put_string(w, "command", command);
  pen_json_end_object(w);
}

static int print_json(const struct pen_bench_table *table,
                      const struct pen_bench_advice *advice,
                      const struct pen_machine *machine)
{
  struct pen_json_writer w;
  const char *text;
  size_t bytes;
  char command[PEN_BENCH_COMMAND_BYTES];
  pen_bench_command(command);
  pen_json_writer_init(&w, NULL, 0, true);
  pen_json_begin_object(&w, NULL);
  pen_json_put_string(&w, "command", command);
  pen_json_begin_array(&w, "results");
  for (size_t i = 0; i < table->n_rows; i++)
    put_row(&w, &table->rows[i], NULL);
  pen_json_end_array(&w);
  pen_json_begin_array(&w, "notes");
  for (size_t i = 0; i < table->n_notes; i++)
    pen_json_put_string(&w, NULL, table->notes[i]);
  pen_json_end_array(&w);
  pen_bench_advice_put(&w, advice);
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
  char command[PEN_BENCH_COMMAND_BYTES];
  int rc = 0;
  pen_bench_command(command);
  for (size_t i = 0; rc == 0 && i < table->n_rows; i++) {
    struct pen_json_writer w;
    const char *text;
    size_t bytes;
    pen_json_writer_init(&w, NULL, 0, false);
    put_row(&w, &table->rows[i], command);
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
  char command[PEN_BENCH_COMMAND_BYTES];
  pen_bench_command(command);
  printf("    %s\n\n", command);
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
      printf("%.0f %% of %s", 100 * r->of_ceiling, r->ceiling);
    puts(" |");
  }
  print_notes(stdout, table, "\n");
}

static void put_quoted(const char *text)
{
  putchar('"');
  for (; *text; text++)
    printf(*text == '"' ? "\"\"" : "%c", *text);
  putchar('"');
}

static void print_csv(const struct pen_bench_table *table)
{
  char command[PEN_BENCH_COMMAND_BYTES];
  pen_bench_command(command);
  puts("what,unit,median,least,most,runs,of_ceiling,ceiling,command");
  for (size_t i = 0; i < table->n_rows; i++) {
    const struct pen_bench_row *r = &table->rows[i];
    put_quoted(r->name);
    printf(",%s,%.17g,%.17g,%.17g,%zu,", r->unit, r->median, r->least, r->most,
           r->n_runs);
    if (r->of_ceiling > 0)
      printf("%.17g", r->of_ceiling);
    putchar(',');
    put_quoted(r->ceiling);
    putchar(',');
    put_quoted(command);
    putchar('\n');
  }
}

int pen_bench_print(int format, const struct pen_bench_table *table,
                    const struct pen_bench_advice *advice,
                    const struct pen_machine *machine)
{
  char command[PEN_BENCH_COMMAND_BYTES];
  FILE *f = stdout; /* of what is no row */
  int rc = 0;
  switch (format) {
  case PEN_CONFIG_OUTPUT_JSON:
    return print_json(table, advice, machine);
  case PEN_CONFIG_OUTPUT_MD:
    print_markdown(table);
    fputs(advice->asked ? "\n```\n" : "", f);
    pen_bench_advice_print(f, advice);
    fputs(advice->asked ? "```\n" : "", f);
    return 0;
  case PEN_CONFIG_OUTPUT_JSONL:
    f = stderr;
    rc = print_json_lines(table);
    print_notes(f, table, "");
    break;
  case PEN_CONFIG_OUTPUT_CSV:
    f = stderr;
    print_csv(table);
    print_notes(f, table, "");
    break;
  default:
    pen_bench_command(command);
    puts(command);
    print_text_rows(table);
    print_notes(f, table, "");
  }
  pen_bench_advice_print(f, advice);
  return rc;
}
