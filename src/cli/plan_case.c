/* plan_case.c: from options to one question for the planner.  Main thread. */
#include <stdio.h>

#include "base/error.h"
#include "src/cli/plan.h"
#include "src/cli/profile.h"
#include "src/cli/settings.h"

int pen_plan_case_init(struct pen_plan_case *ret_case,
                       const struct pen_config *config, const char *model,
                       const char *data, const char *eval_data)
{
  struct pen_plan_case *q = ret_case;
  *q = (struct pen_plan_case){.config = config};
  pen_settings_train(config, &q->settings);
  q->settings.plan_only = true;
  q->settings.model.dir = model;
  q->settings.data = data;
  q->settings.eval_data = eval_data;
  int rc = pen_profile_described(config, &q->has_machine, &q->machine);
  if (rc == 0 && q->has_machine)
    pen_profile_settings(config, &q->machine, &q->settings.machine);
  return rc;
}

int pen_plan_case_open(struct pen_plan_case *question, const char *trace,
                       struct pen_plan *ret_plan)
{
  struct pen_plan_case *q = question;
  q->settings.machine.profile = q->has_machine ? &q->machine : NULL;
  int rc = pen_plan_open(&q->settings, ret_plan);
  if (rc < 0 || !q->has_machine)
    return rc;
  rc = pen_plan_simulate(ret_plan, &q->machine, trace);
  if (rc != -PEN_EUSAGE || trace)
    return rc;
  q->has_machine = false; /* it lacks a rate or a drive */
  snprintf(ret_plan->why_no_time, sizeof ret_plan->why_no_time, "%s",
           pen_error_text());
  pen_error_clear();
  return 0;
}
