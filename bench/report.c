/* report.c: medians and spreads, and the lines that carry them.
 *
 * Disadvantage: one line holds the whole fingerprint of the machine again; in
 * exchange lines of several files can be put together with cat. */
#include "bench/report.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct spread {
  double min, median, max;
};

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static struct spread spread_of(const double *values, size_t n)
{
  double sorted[PEN_REPORT_RUNS_MAX];
  assert(n > 0 && n <= PEN_REPORT_RUNS_MAX);
  memcpy(sorted, values, n * sizeof *values);
  qsort(sorted, n, sizeof *sorted, by_value);
  double median = n % 2 ? sorted[n / 2]
                        : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
  return (struct spread){sorted[0], median, sorted[n - 1]};
}

double pen_report_median(const double *values, size_t n)
{
  return spread_of(values, n).median;
}

_Noreturn void pen_report_fail(void)
{
  fprintf(stderr, "%s\n", pen_error_text());
  exit(pen_error_exit_code(pen_error_standing()));
}

/* Words that a shell would cut are quoted. */
static void append_word(char *to, size_t bytes, const char *word)
{
  size_t used = strlen(to);
  bool plain = *word && !strpbrk(word, " \t\"'$&|;<>()*?[]#~`\\");
  snprintf(to + used, bytes - used, "%s%s%s%s", used ? " " : "",
           plain ? "" : "'", word, plain ? "" : "'");
}

void pen_report_init(struct pen_report *report, int argc, char *const *argv)
{
  const char *slash = strrchr(argv[0], '/');
  *report = (struct pen_report){.command = ""};
  pen_report_machine_init(&report->machine);
  append_word(report->command, sizeof report->command,
              slash ? slash + 1 : argv[0]);
  for (int i = 1; i < argc; i++)
    append_word(report->command, sizeof report->command, argv[i]);
}

void pen_report_begin(struct pen_report *report, const char *name)
{
  pen_json_writer_init(&report->writer, NULL, 0, false);
  pen_json_begin_object(&report->writer, NULL);
  pen_json_put_string(&report->writer, "name", name);
  pen_json_begin_object(&report->writer, "parameters");
  fprintf(stderr, "%s", name);
}

static void put_spread(struct pen_json_writer *w, struct spread s, size_t n)
{
  pen_json_begin_object(w, "spread");
  pen_json_put_double(w, "min", s.min);
  pen_json_put_double(w, "median", s.median);
  pen_json_put_double(w, "max", s.max);
  pen_json_put_u64(w, "n", n);
  pen_json_end_object(w);
}

static bool more_is_better(const char *unit)
{
  size_t n = strlen(unit);
  return n >= 2 && strcmp(unit + n - 2, "/s") == 0;
}

static struct spread percents(const struct pen_report_series *series,
                              const struct pen_report_series *ceiling)
{
  double ratio[PEN_REPORT_RUNS_MAX];
  assert(ceiling->n == series->n && series->n <= PEN_REPORT_RUNS_MAX);
  for (size_t i = 0; i < series->n; i++)
    ratio[i] = 100 * (more_is_better(series->unit)
                          ? series->values[i] / ceiling->values[i]
                          : ceiling->values[i] / series->values[i]);
  return spread_of(ratio, series->n);
}

static void put_ceiling(struct pen_json_writer *w,
                        const struct pen_report_series *series,
                        const struct pen_report_series *ceiling)
{
  struct spread s = spread_of(ceiling->values, ceiling->n);
  struct spread p = percents(series, ceiling);
  pen_json_begin_object(w, "ceiling");
  pen_json_put_string(w, "name", ceiling->name);
  pen_json_put_double(w, "value", s.median);
  put_spread(w, s, ceiling->n);
  pen_json_end_object(w);
  pen_json_put_double(w, "percent", p.median);
  pen_json_begin_object(w, "percent_spread");
  pen_json_put_double(w, "min", p.min);
  pen_json_put_double(w, "max", p.max);
  pen_json_end_object(w);
  fprintf(stderr, ", %.1f %% of %s %.4g (%.4g to %.4g)", p.median,
          ceiling->name, s.median, s.min, s.max);
}

/* For people: the parameters as the line has them so far. */
static void print_parameters(const struct pen_json_writer *w)
{
  const char *at = strstr(w->text, "\"parameters\":");
  if (at)
    for (at += strlen("\"parameters\":"); *at; at++)
      if (*at != '"' && *at != '{')
        fputc(*at == ',' || *at == '}' ? ' ' : *at, stderr);
}

void pen_report_end(struct pen_report *report,
                    const struct pen_report_series *series,
                    const struct pen_report_series *ceiling)
{
  struct pen_json_writer *w = &report->writer;
  struct spread s = spread_of(series->values, series->n);
  const char *text;
  size_t bytes;
  pen_json_end_object(w);
  fputc(' ', stderr);
  print_parameters(w);
  fprintf(stderr, ": %.4g %s (%.4g to %.4g in %zu)", s.median, series->unit,
          s.min, s.max, series->n);
  pen_json_put_string(w, "unit", series->unit);
  pen_json_put_double(w, "value", s.median);
  put_spread(w, s, series->n);
  if (ceiling)
    put_ceiling(w, series, ceiling);
  pen_json_put_string(w, "command", report->command);
  pen_report_machine_put(&report->machine, w, "machine");
  pen_json_end_object(w);
  fputc('\n', stderr);
  if (pen_json_finish(w, &text, &bytes) < 0 || puts(text) < 0 ||
      fflush(stdout)) {
    pen_error_set(-PEN_ESTOPPED, "cannot write the result");
    pen_report_fail();
  }
  pen_json_writer_done(w);
}
