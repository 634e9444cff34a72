/* plan_change.c: plans the run again with one thing changed at a time: what would
 * make its steps shorter.
 *
 * Each change is a whole plan: placed, laid out, simulated; but the step stays
 * cut as it is, as it would in a run that goes on.  Main thread.
 * Disadvantage: changes are tried alone; two that help only together are not
 * found. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/size.h"
#include "src/cli/plan.h"
#include "src/train/drives.h"

#define GAIN_WORTH_A_LINE 1.02

struct finder {
  const struct pen_plan_case *question;
  const struct pen_plan *plan;
  struct pen_plan_change *changes;
  size_t n;
};

/* Plans the changed case, and takes it down where it helps. */
static int try_case(struct finder *f, struct pen_plan_case *changed,
                    const char *what)
{
  const struct pen_train_settings *cut = &f->plan->trainer.set;
  struct pen_plan plan;
  double speedup = 0;
  changed->settings.what_if = changed->settings.gave_batch = true;
  changed->settings.accumulation *=
      changed->settings.batch_sequences / cut->batch_sequences;
  changed->settings.batch_sequences = cut->batch_sequences;
  int rc = pen_plan_case_open(changed, NULL, &plan);
  if (rc == 0)
    speedup = plan.tokens_per_step / plan.step.seconds /
              (f->plan->tokens_per_step / f->plan->step.seconds);
  if (speedup >= GAIN_WORTH_A_LINE && f->n < PEN_PLAN_CHANGES_MAX) {
    struct pen_plan_change *c = &f->changes[f->n++];
    snprintf(c->what, sizeof c->what, "%s", what);
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

uint64_t pen_plan_host_limit(const struct pen_plan_case *question)
{
  uint64_t asked = question->settings.machine.host_bytes;
  return asked ? asked : pen_memory_available();
}

static int more_ram(struct finder *f)
{
  char what[96], size[PEN_SIZE_TEXT_BYTES];
  struct pen_plan_case changed = *f->question;
  uint64_t limit = pen_plan_host_limit(f->question);
  changed.settings.machine.host_bytes = limit + limit / 2;
  pen_size_format(limit / 2, size);
  snprintf(what, sizeof what, "%s more RAM", size);
  return try_case(f, &changed, what);
}

/* What fits without a drive is no faster with one. */
static int one_more_drive(struct finder *f)
{
  struct pen_plan_case changed = *f->question;
  struct pen_machine_settings *m = &changed.settings.machine;
  size_t n = m->n_nvme_dirs;
  if (!n || n == PEN_MACHINE_DRIVES_MAX)
    return 0;
  changed.machine = f->plan->machine; /* one drive per directory */
  changed.machine.drives[n] = changed.machine.drives[0];
  changed.machine.drives[n].path[0] = '\0';
  changed.machine.n_drives = n + 1;
  m->nvme_dirs = pen_drives_names();
  m->n_nvme_dirs = n + 1;
  m->described_drives = true;
  return try_case(f, &changed, "a drive more");
}

static int more_tokens(struct finder *f)
{
  struct pen_plan_case changed = *f->question;
  char what[96];
  changed.settings.accumulation *= 2;
  snprintf(what, sizeof what, "--gradient-accumulation-steps %" PRIu64,
           changed.settings.accumulation);
  return try_case(f, &changed, what);
}

static int early_updates(struct finder *f)
{
  struct pen_plan_case changed = *f->question;
  struct pen_machine_settings *m = &changed.settings.machine;
  if (m->searches_speculative || m->wish.speculative_blocks ||
      m->updates_after_backward)
    return 0; /* somebody has thought of it */
  m->searches_speculative = true;
  return try_case(f, &changed, "--speculative-updates auto");
}

static int by_speedup(const void *a, const void *b)
{
  double x = ((const struct pen_plan_change *)a)->speedup;
  double y = ((const struct pen_plan_change *)b)->speedup;
  return (x < y) - (x > y);
}

int pen_plan_find_changes(const struct pen_plan_case *question,
                          const struct pen_plan *plan,
                          struct pen_plan_change changes[PEN_PLAN_CHANGES_MAX],
                          size_t *ret_n)
{
  struct finder f = {question, plan, changes, 0};
  int rc = 0;
  if (plan->simulated) {
    rc = one_more_drive(&f);
    if (rc == 0)
      rc = more_ram(&f);
    if (rc == 0)
      rc = more_tokens(&f);
    if (rc == 0)
      rc = early_updates(&f);
  }
  qsort(changes, f.n, sizeof *changes, by_speedup);
  *ret_n = f.n;
  return rc;
}
