/* plan_sweep.c: the same plan with one option at several values, as a table and
 * a figure.
 *
 * Main thread.  Disadvantage: every value plans from the beginning, the data
 * opened again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/size.h"
#include "io/files.h"
#include "io/json_write.h"
#include "src/cli/options.h"
#include "src/cli/plan.h"
#include "src/cli/verb.h"

#define VALUES_MAX 64

struct point {
  const char *value; /* as it was written */
  bool fits, simulated;
  uint64_t bytes[PEN_TIERS];
  double seconds, tokens_per_second;
  char binds[PEN_RESOURCE_TEXT_BYTES];
};

struct sweep {
  char *text; /* NAME=V,V..., cut into the pieces below */
  const char *name;
  struct point points[VALUES_MAX];
  size_t n_points;
};

static int cut(const char *wish, struct sweep *s)
{
  s->text = strdup(wish);
  if (!s->text)
    return pen_error_set(PEN_ENOFIT, "no memory for --sweep");
  char *value = strchr(s->text, '=');
  s->name = s->text;
  if (value)
    *value++ = '\0';
  for (char *v; value && (v = strsep(&value, ","));) {
    if (!*v || s->n_points == VALUES_MAX)
      return pen_error_set(PEN_EUSAGE, "--sweep %s: between one and %d values, "
                           "none empty", wish, VALUES_MAX);
    s->points[s->n_points++].value = v;
  }
  if (!s->n_points || !*s->name)
    return pen_error_set(PEN_EUSAGE, "--sweep %s is not NAME=VALUE[,VALUE...], "
                         "such as ram=32GiB,64GiB", wish);
  return 0;
}

static void fill(struct point *p, const struct pen_plan *plan, bool fits)
{
  p->fits = fits;
  p->simulated = plan->simulated;
  for (int tier = 0; tier < PEN_TIERS; tier++)
    p->bytes[tier] = plan->trainer.session.memory.total[tier];
  if (!plan->simulated)
    return;
  p->seconds = plan->step.seconds;
  p->tokens_per_second = plan->tokens_per_step / plan->step.seconds;
  pen_resource_name(plan->step.binds, p->binds);
}

static int plan_with(const struct pen_config *config, const struct sweep *s,
                     struct point *p, const char *model, const char *data,
                     const char *eval_data)
{
  struct pen_config changed;
  struct pen_options options;
  struct pen_plan_case question;
  struct pen_plan plan;
  const struct pen_option *option = pen_option_find(config->options, s->name);
  if (!option || !(option->verbs & PEN_VERB_PLAN) || !option->group)
    return pen_error_set(PEN_EUSAGE, "--sweep %s=...: plan has no option --%s",
                         s->name, s->name);
  int rc = pen_option_copy(&options, config->options, &changed, sizeof changed);
  if (rc < 0)
    return rc;
  changed.options = &options;
  rc = pen_option_set(&options, option, s->name, p->value,
                      PEN_OPTION_COMMAND_LINE);
  if (rc == 0)
    rc = pen_options_check(&changed, PEN_VERB_PLAN);
  if (rc == 0)
    rc = pen_plan_case_init(&question, &changed, model, data, eval_data);
  if (rc == 0) {
    question.settings.what_if = true;
    rc = pen_plan_case_open(&question, NULL, &plan);
    if (rc == 0 || rc == -PEN_ENOFIT)
      fill(p, &plan, rc == 0);
    if (rc == 0 && *plan.why_no_time && p == s->points) /* as of all others */
      pen_log_warn("time is not known: %s", plan.why_no_time);
    pen_plan_close(&plan);
  }
  if (rc == -PEN_ENOFIT) {
    pen_error_clear();
    rc = 0;
  }
  pen_option_done(&options);
  return rc;
}

/* ---- text and JSON ---- */

static void print_table(const struct sweep *s)
{
  char size[PEN_TIERS][PEN_SIZE_TEXT_BYTES];
  printf("%-16s %10s %10s %10s %12s %12s  %s\n", s->name, "device", "host",
         "nvme", "s/step", "tokens/s", "binds");
  for (size_t i = 0; i < s->n_points; i++) {
    const struct point *p = &s->points[i];
    for (int tier = 0; tier < PEN_TIERS; tier++)
      pen_size_format(p->bytes[tier], size[tier]);
    printf("%-16s %10s %10s %10s ", p->value, size[PEN_TIER_DEVICE],
           size[PEN_TIER_HOST], size[PEN_TIER_NVME]);
    if (p->simulated)
      printf("%12.4g %12.4g  %s\n", p->seconds, p->tokens_per_second, p->binds);
    else
      printf("%12s %12s  %s\n", "", "", p->fits ? "no profile" : "does not fit");
  }
}

static int print_json(const struct sweep *s)
{
  struct pen_json_writer w;
  const char *text;
  size_t bytes;
  pen_json_writer_init(&w, NULL, 0, true);
  pen_json_begin_object(&w, NULL);
  pen_json_put_string(&w, "option", s->name);
  pen_json_begin_array(&w, "points");
  for (size_t i = 0; i < s->n_points; i++) {
    const struct point *p = &s->points[i];
    pen_json_begin_object(&w, NULL);
    pen_json_put_string(&w, "value", p->value);
    pen_json_put_bool(&w, "fits", p->fits);
    for (int tier = 0; tier < PEN_TIERS; tier++)
      pen_json_put_u64(&w, pen_tier_name((enum pen_tier)tier), p->bytes[tier]);
    if (p->simulated) {
      pen_json_put_double(&w, "seconds_per_step", p->seconds);
      pen_json_put_double(&w, "tokens_per_second", p->tokens_per_second);
      pen_json_put_string(&w, "binds", p->binds);
    }
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

/* ---- the figure ---- */

enum { BAR = 56, GAP = 24, LEFT = 70, TOP = 30, HEIGHT = 240, BOTTOM = 70 };

/* "1e+04"-free numbers of three digits. */
static void put_number(FILE *f, double x)
{
  if (x >= 1e6)
    fprintf(f, "%.3gM", x / 1e6);
  else if (x >= 1e4)
    fprintf(f, "%.3gk", x / 1e3);
  else
    fprintf(f, "%.4g", x);
}

/* Characters that XML gives a meaning to are left out. */
static void put_text(FILE *f, const char *text)
{
  for (; *text; text++)
    if (!strchr("<>&\"'", *text))
      fputc(*text, f);
}

static void draw_bar(FILE *f, const struct point *p, size_t i, double most)
{
  double x = LEFT + GAP + (double)i * (BAR + GAP);
  double h = p->simulated ? HEIGHT * p->tokens_per_second / most : 0;
  double base = TOP + HEIGHT;
  fprintf(f, "<rect x='%.0f' y='%.1f' width='%d' height='%.1f' "
             "fill='#3b6ea5'/>\n", x, base - h, BAR, h);
  fprintf(f, "<text x='%.0f' y='%.1f'>", x + BAR / 2.0, base - h - 5);
  if (p->simulated)
    put_number(f, p->tokens_per_second);
  else
    fputs("does not fit", f);
  fprintf(f, "</text>\n<text x='%.0f' y='%.0f'>", x + BAR / 2.0, base + 16);
  put_text(f, p->value);
  fprintf(f, "</text>\n<text x='%.0f' y='%.0f' fill='#777'>", x + BAR / 2.0,
          base + 32);
  put_text(f, p->binds);
  fputs("</text>\n", f);
}

static void draw(FILE *f, const struct sweep *s)
{
  size_t width = LEFT + GAP + s->n_points * (BAR + GAP);
  double most = 1e-300;
  for (size_t i = 0; i < s->n_points; i++)
    if (s->points[i].tokens_per_second > most)
      most = s->points[i].tokens_per_second;
  fprintf(f, "<svg xmlns='http://www.w3.org/2000/svg' width='%zu' height='%d' "
             "font-family='sans-serif' font-size='11' text-anchor='middle'>\n"
             "<rect width='100%%' height='100%%' fill='white'/>\n",
          width, TOP + HEIGHT + BOTTOM);
  fprintf(f, "<line x1='%d' y1='%d' x2='%zu' y2='%d' stroke='#333'/>\n", LEFT,
          TOP + HEIGHT, width, TOP + HEIGHT);
  fprintf(f, "<text x='16' y='%d' transform='rotate(-90 16 %d)'>tokens/s"
             "</text>\n", TOP + HEIGHT / 2, TOP + HEIGHT / 2);
  for (size_t i = 0; i < s->n_points; i++)
    draw_bar(f, &s->points[i], i, most);
  fprintf(f, "<text x='%zu' y='%d'>--", LEFT + (width - LEFT) / 2,
          TOP + HEIGHT + 52);
  put_text(f, s->name);
  fputs(", and what binds</text>\n</svg>\n", f);
}

static bool ends_with(const char *path, const char *end)
{
  size_t n = strlen(path), k = strlen(end);
  return n > k && strcmp(path + n - k, end) == 0;
}

/* A page where the name says so, else the figure alone. */
static int save_figure(const struct sweep *s, const char *path)
{
  char *text = NULL;
  size_t bytes = 0;
  FILE *f = open_memstream(&text, &bytes);
  if (!f)
    return pen_error_set(PEN_ENOFIT, "no memory for a figure");
  if (ends_with(path, ".html"))
    fputs("<!DOCTYPE html>\n<meta charset='utf-8'>\n<title>penstock plan"
          "</title>\n", f);
  draw(f, s);
  fclose(f);
  int rc = pen_files_write_whole(path, text, bytes);
  free(text);
  return rc;
}

/* Before a minute of planning, not after. */
static int check_output(const struct pen_config *config)
{
  const char *plot = config->plot;
  if (config->output_format == PEN_CONFIG_OUTPUT_YAML)
    return pen_error_set(PEN_EUSAGE, "-o yaml writes one plan, --sweep makes "
                         "several; give text or json");
  if (plot && !ends_with(plot, ".svg") && !ends_with(plot, ".html"))
    return pen_error_set(PEN_EUSAGE, "--plot %s: figures are .svg or .html",
                         plot);
  return 0;
}

int pen_plan_sweep(const struct pen_config *config, const char *model,
                   const char *data, const char *eval_data)
{
  struct sweep s = {.n_points = 0};
  int rc = check_output(config);
  if (rc == 0)
    rc = cut(config->sweep, &s);
  for (size_t i = 0; rc == 0 && i < s.n_points; i++)
    rc = plan_with(config, &s, &s.points[i], model, data, eval_data);
  if (rc == 0 && config->output_format == PEN_CONFIG_OUTPUT_JSON)
    rc = print_json(&s);
  else if (rc == 0)
    print_table(&s);
  if (rc == 0 && config->plot)
    rc = save_figure(&s, config->plot);
  free(s.text);
  return rc;
}
