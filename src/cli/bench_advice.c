/* bench_advice.c: numbers for people who choose drives: what the measured ones
 * add to a step of models of several sizes, and how long they live with it.
 *
 * Main thread.  Disadvantage: all measured drives hold the state together; what
 * one of them alone would do takes a run with that one. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/size.h"
#include "io/files.h"
#include "io/json_write.h"
#include "src/cli/bench.h"

#define CHECKPOINTS 2 /* as many as train keeps */
#define STATE_BYTES 24.0 /* a parameter, read and written */

static bool is_asked_for(const struct pen_config *config, const char *path)
{
  char real[PATH_MAX];
  for (size_t i = 0; i < config->nvme_path.n_items; i++)
    if (realpath(config->nvme_path.items[i], real) && strcmp(real, path) == 0)
      return true;
  return false;
}

/* The machine with the drives that were measured now alone. */
static void keep_measured(const struct pen_config *config,
                          struct pen_machine *machine)
{
  size_t n = 0;
  for (size_t i = 0; i < machine->n_drives; i++)
    if (is_asked_for(config, machine->drives[i].path))
      machine->drives[n++] = machine->drives[i];
  machine->n_drives = n;
}

/* Of each file system once. */
static uint64_t free_bytes(const struct pen_machine *m)
{
  struct stat st[PEN_MACHINE_DRIVES_MAX] = {{0}};
  uint64_t total = 0;
  for (size_t i = 0; i < m->n_drives; i++) {
    uint64_t bytes = 0;
    bool seen = false;
    if (stat(m->drives[i].path, &st[i]))
      continue;
    if (pen_files_free_bytes(m->drives[i].path, &bytes))
      pen_error_clear(); /* it has none, then */
    for (size_t k = 0; k < i; k++)
      seen |= st[k].st_dev == st[i].st_dev;
    total += seen ? 0 : bytes;
  }
  return total;
}

static double state_rate(const struct pen_machine *m)
{
  double slowest = m->n_drives ? m->drives[0].mixed : 0;
  for (size_t d = 1; d < m->n_drives; d++)
    slowest = m->drives[d].mixed < slowest ? m->drives[d].mixed : slowest;
  return slowest * (double)m->n_drives;
}

static int ask(const struct pen_config *config,
               const struct pen_drive_advice_question *q,
               struct pen_bench_advice *a)
{
  int rc = 0;
  for (size_t i = 0; rc == 0 && i < PEN_DRIVE_ADVICE_SIZES; i++) {
    rc = pen_drive_advice_size(q, i, &a->models[i]);
    a->n_models += rc == 0;
  }
  if (rc == 0 && config->model) {
    rc = pen_drive_advice_model(q, config->model, &a->models[a->n_models]);
    a->n_models += rc == 0;
  }
  /* A profile of drives alone is no reason to fail. */
  if (rc == -PEN_EUSAGE && !config->model) {
    snprintf(a->missing, sizeof a->missing, "%.255s", pen_error_text());
    pen_error_clear();
    a->n_models = 0;
    return 0;
  }
  a->simulated = rc == 0;
  return rc;
}

int pen_bench_advice_make(const struct pen_config *config,
                          const struct pen_machine *machine,
                          struct pen_bench_advice *ret_advice)
{
  struct pen_machine measured = *machine;
  struct pen_bench_advice a = {.tbw = config->tbw};
  keep_measured(config, &measured);
  if (!measured.n_drives) {
    *ret_advice = a;
    return 0;
  }
  const struct pen_drive_advice_question q = {
      .machine = &measured, .tokens_per_step = config->tokens_per_step,
      .free_bytes = free_bytes(&measured), .tbw = config->tbw,
      .n_checkpoints = CHECKPOINTS, .durable = true};
  a.asked = true;
  a.n_drives = measured.n_drives;
  a.mixed = state_rate(&measured);
  a.free_bytes = q.free_bytes;
  a.largest = pen_drive_advice_largest(&q);
  int rc = ask(config, &q, &a);
  if (rc == 0)
    *ret_advice = a;
  return rc;
}

/* ---- printing ---- */

/* Three digits, or all of a large number: "0.0123", "18210". */
#define NUMBER_BYTES 32
static const char *number(double value, char ret_text[NUMBER_BYTES])
{
  snprintf(ret_text, NUMBER_BYTES, value < 1000 ? "%.3g" : "%.0f", value);
  return ret_text;
}

static void print_life(FILE *f, const struct pen_drive_advice *m)
{
  if (m->steps_to_tbw > 0)
    fprintf(f, "  %9s steps, %s days to the rating",
            number(m->steps_to_tbw, (char[NUMBER_BYTES]){0}),
            number(m->days_to_tbw, (char[NUMBER_BYTES]){0}));
}

static void print_model(FILE *f, const struct pen_drive_advice *m)
{
  char needed[PEN_SIZE_TEXT_BYTES], written[PEN_SIZE_TEXT_BYTES];
  pen_size_format(m->drive_bytes, needed);
  pen_size_format(m->written_bytes, written);
  fprintf(f, "  %-10s %8s on drives%s", m->model, needed,
          m->has_room ? "" : " (more than is free)");
  if (!m->fits) {
    fputs("; does not fit in this machine's memory\n", f);
    return;
  }
  fprintf(f, ", %8s written a step; a step %s s, of them %s s for the drives "
          "(their own work %s s)",
          written, number(m->step_seconds, (char[NUMBER_BYTES]){0}),
          number(m->added_seconds, (char[NUMBER_BYTES]){0}),
          number(m->alone_seconds, (char[NUMBER_BYTES]){0}));
  print_life(f, m);
  fputc('\n', f);
}

void pen_bench_advice_print(FILE *f, const struct pen_bench_advice *advice)
{
  const struct pen_bench_advice *a = advice;
  char room[PEN_SIZE_TEXT_BYTES];
  if (!a->asked)
    return;
  pen_size_format(a->free_bytes, room);
  fprintf(f, "state, %d checkpoints and the model of %.3g B parameters have room in "
          "the %s free on %zu drive%s\n", CHECKPOINTS, (double)a->largest / 1e9,
          room, a->n_drives, a->n_drives == 1 ? "" : "s");
  if (!a->simulated) {
    fprintf(f, "each billion parameters with their state there: %.3g s of the drives' "
            "work a step, 12 GB written; what it adds to a step is not known: %s\n",
            STATE_BYTES * 1e9 / a->mixed, a->missing);
    return;
  }
  fprintf(f, "with optimizer state there, at %llu tokens a step:\n",
          (unsigned long long)a->models[0].tokens_per_step);
  for (size_t i = 0; i < a->n_models; i++)
    print_model(f, &a->models[i]);
}

static void put_model(struct pen_json_writer *w,
                      const struct pen_drive_advice *m)
{
  pen_json_begin_object(w, NULL);
  pen_json_put_string(w, "model", m->model);
  pen_json_put_u64(w, "parameters", m->parameters);
  pen_json_put_u64(w, "tokens_per_step", m->tokens_per_step);
  pen_json_put_u64(w, "drive_bytes", m->drive_bytes);
  pen_json_put_bool(w, "has_room", m->has_room);
  pen_json_put_bool(w, "fits", m->fits);
  if (m->fits) {
    pen_json_put_double(w, "step_seconds", m->step_seconds);
    pen_json_put_double(w, "added_seconds", m->added_seconds);
    pen_json_put_double(w, "alone_seconds", m->alone_seconds);
    pen_json_put_u64(w, "written_bytes", m->written_bytes);
  }
  if (m->steps_to_tbw > 0) {
    pen_json_put_double(w, "steps_to_tbw", m->steps_to_tbw);
    pen_json_put_double(w, "days_to_tbw", m->days_to_tbw);
  }
  pen_json_end_object(w);
}

void pen_bench_advice_put(struct pen_json_writer *writer,
                          const struct pen_bench_advice *advice)
{
  struct pen_json_writer *w = writer;
  const struct pen_bench_advice *a = advice;
  if (!a->asked)
    return;
  pen_json_begin_object(w, "drives");
  pen_json_put_double(w, "mixed_bytes_per_s", a->mixed);
  pen_json_put_u64(w, "free_bytes", a->free_bytes);
  pen_json_put_u64(w, "largest_parameters", a->largest);
  if (!a->simulated)
    pen_json_put_string(w, "not_simulated", a->missing);
  pen_json_begin_array(w, "models");
  for (size_t i = 0; i < a->n_models; i++)
    put_model(w, &a->models[i]);
  pen_json_end_array(w);
  pen_json_end_object(w);
}
