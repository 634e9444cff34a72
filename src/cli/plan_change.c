/* plan_change.c: plans the run again with one thing changed at a time.
 *
 * Each change is a whole plan: placed, laid out, simulated.  Main thread.
 * Disadvantage: for speed changes are tried alone; two that help only together
 * are not found. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/size.h"
#include "src/cli/plan.h"
#include "src/train/drives.h"

#define GAIN_WORTH_A_LINE 1.02
#define HALVINGS_MAX 20

struct finder {
  const struct pen_plan_case *question;
  const struct pen_plan *plan;
  bool fits;
  const char *with; /* what the question has been given already, or "" */
  struct pen_plan_change *changes;
  size_t n;
};

/* Plans the changed case.  Takes it down where it helps; *ret_fits where it is
 * wanted. */
static int try_case(struct finder *f, struct pen_plan_case *changed,
                    const char *what, bool *ret_fits)
{
  struct pen_plan plan;
  changed->has_machine &= f->fits; /* else only bytes are asked for */
  int rc = pen_plan_case_open(changed, NULL, &plan);
  double speedup = 0;
  if (rc == 0 && f->fits && plan.simulated)
    speedup = plan.tokens_per_step / plan.step.seconds /
              (f->plan->tokens_per_step / f->plan->step.seconds);
  if (ret_fits)
    *ret_fits = rc == 0;
  if (rc == 0 && (!f->fits || speedup >= GAIN_WORTH_A_LINE) &&
      f->n < PEN_PLAN_CHANGES_MAX) {
    struct pen_plan_change *c = &f->changes[f->n++];
    snprintf(c->what, sizeof c->what, "%s%s", f->with, what);
    c->speedup = speedup;
  }
  pen_plan_close(&plan);
  /* What is too small, or cannot be at all, does not help. */
  if (rc == -PEN_ENOFIT || rc == -PEN_EUSAGE) {
    pen_error_clear();
    rc = 0;
  }
  return rc;
}

static uint64_t host_limit(const struct pen_plan_case *q)
{
  return q->settings.machine.host_bytes ? q->settings.machine.host_bytes
                                        : pen_memory_available();
}

/* By steps of the limit's half, until it fits; or once, for speed. */
static int more_ram(struct finder *f)
{
  char what[96], size[PEN_SIZE_TEXT_BYTES];
  uint64_t limit = host_limit(f->question);
  bool fits = false;
  int rc = 0;
  for (uint64_t i = 1; rc == 0 && !fits && i <= HALVINGS_MAX; i++) {
    struct pen_plan_case changed = *f->question;
    uint64_t more = limit / 2 * i;
    changed.settings.machine.host_bytes = limit + more;
    pen_size_format(more, size);
    snprintf(what, sizeof what, "%s more RAM", size);
    rc = try_case(f, &changed, what, &fits);
    if (f->fits)
      return rc;
  }
  return rc;
}

/* For plans that do not fit: any drive. */
static const struct pen_machine_drive some_drive = {
    .read = 3e9, .write = 2e9, .latency_s = 1e-4, .sync_s = 1e-3};

/* False: there are as many as there can be. */
static bool add_drive(const struct finder *f, struct pen_plan_case *changed)
{
  struct pen_machine_settings *m = &changed->settings.machine;
  size_t n = m->n_nvme_dirs;
  if (n == PEN_MACHINE_DRIVES_MAX)
    return false;
  if (f->plan->simulated)
    changed->machine = f->plan->machine; /* one drive per directory */
  changed->machine.drives[n] =
      n && changed->machine.n_drives ? changed->machine.drives[0] : some_drive;
  changed->machine.drives[n].path[0] = '\0';
  changed->machine.n_drives = n + 1;
  m->nvme_dirs = pen_drives_names();
  m->n_nvme_dirs = n + 1;
  m->described_drives = true;
  return true;
}

static int one_more_drive(struct finder *f)
{
  struct pen_plan_case changed = *f->question;
  size_t n = changed.settings.machine.n_nvme_dirs;
  if ((f->fits && !n) || !add_drive(f, &changed))
    return 0; /* what fits without a drive is no faster with one */
  return try_case(f, &changed,
                  n ? "a drive more" : "a drive for state (--nvme-path DIR)",
                  NULL);
}

static int smaller_batch(struct finder *f)
{
  struct pen_plan_case changed = *f->question;
  struct pen_train_settings *s = &changed.settings;
  char what[96];
  bool fits = false;
  int rc = 0;
  while (rc == 0 && !fits && s->gave_batch && s->batch_sequences > 1) {
    s->batch_sequences = (s->batch_sequences + 1) / 2;
    s->accumulation *= 2;
    snprintf(what, sizeof what,
             "--per-device-train-batch-size %" PRIu64
             " --gradient-accumulation-steps %" PRIu64,
             s->batch_sequences, s->accumulation);
    rc = try_case(f, &changed, what, &fits);
  }
  return rc;
}

static int shorter_sequences(struct finder *f)
{
  struct pen_plan_case changed = *f->question;
  struct pen_train_settings *s = &changed.settings;
  char what[96];
  bool fits = false;
  int rc = 0;
  s->max_length = f->plan->trainer.set.max_length;
  while (rc == 0 && !fits && s->max_length > 1) {
    s->max_length = (s->max_length + 1) / 2;
    snprintf(what, sizeof what, "--max-length %" PRIu32, s->max_length);
    rc = try_case(f, &changed, what, &fits);
  }
  return rc;
}

static int more_tokens(struct finder *f)
{
  struct pen_plan_case changed = *f->question;
  char what[96];
  changed.settings.accumulation *= 2;
  snprintf(what, sizeof what, "--gradient-accumulation-steps %" PRIu64,
           changed.settings.accumulation);
  return try_case(f, &changed, what, NULL);
}

static int by_speedup(const void *a, const void *b)
{
  double x = ((const struct pen_plan_change *)a)->speedup;
  double y = ((const struct pen_plan_change *)b)->speedup;
  return (x < y) - (x > y);
}

/* Where nothing helps alone: with a drive. */
static int with_a_drive(struct finder *f)
{
  struct pen_plan_case base = *f->question;
  if (f->n || base.settings.machine.n_nvme_dirs || !add_drive(f, &base))
    return 0;
  struct finder g = *f;
  g.question = &base;
  g.with = "a drive for state (--nvme-path DIR) and ";
  int rc = smaller_batch(&g);
  if (rc == 0)
    rc = shorter_sequences(&g);
  if (rc == 0)
    rc = more_ram(&g);
  f->n = g.n;
  return rc;
}

int pen_plan_find_changes(const struct pen_plan_case *question,
                          const struct pen_plan *plan, bool fits,
                          struct pen_plan_change changes[PEN_PLAN_CHANGES_MAX],
                          size_t *ret_n)
{
  struct finder f = {question, plan, fits, "", changes, 0};
  int rc = 0;
  if (!fits || plan->simulated) {
    rc = one_more_drive(&f);
    if (rc == 0)
      rc = more_ram(&f);
    if (rc == 0)
      rc = fits ? more_tokens(&f) : smaller_batch(&f);
    if (rc == 0 && !fits)
      rc = shorter_sequences(&f);
    if (rc == 0 && !fits)
      rc = with_a_drive(&f);
  }
  if (fits)
    qsort(changes, f.n, sizeof *changes, by_speedup);
  *ret_n = f.n;
  return rc;
}
