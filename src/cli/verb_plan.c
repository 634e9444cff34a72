/* verb_plan.c: `penstock plan`: what train would take, how long it would last,
 * what binds, what drives would suffer, and what would help.
 *
 * Nothing is written but what --trace and --plot name; text data are prepared
 * into a temporary folder. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "src/cli/options.h"
#include "src/cli/plan.h"
#include "src/cli/settings.h"
#include "src/cli/stop.h"
#include "src/cli/verb.h"
#include "src/model/model_dir.h"

/* The numbers of a plan that does not fit are wanted most. */
static int print_unfit(const struct pen_plan_case *question,
                       const struct pen_plan *plan, int why)
{
  const struct pen_config *config = question->config;
  struct pen_plan_change changes[PEN_PLAN_CHANGES_MAX];
  struct pen_error kept;
  size_t n;
  pen_error_take(&kept);
  int rc = pen_plan_find_ways(question, plan, changes, &n);
  if (rc == 0 && config->output_format == PEN_CONFIG_OUTPUT_JSON)
    rc = pen_plan_print_json(plan, config->tbw, false, changes, n);
  else if (rc == 0)
    pen_plan_print_unfit(plan, changes, n);
  if (rc < 0)
    return rc;
  pen_error_put(&kept);
  return why;
}

static int print_fitting(const struct pen_plan_case *question,
                         const struct pen_plan *plan)
{
  const struct pen_config *config = question->config;
  struct pen_plan_change changes[PEN_PLAN_CHANGES_MAX];
  size_t n;
  if (config->output_format == PEN_CONFIG_OUTPUT_YAML)
    return pen_plan_print_yaml(config, plan);
  int rc = pen_plan_find_changes(question, plan, changes, &n);
  if (rc == 0 && config->output_format == PEN_CONFIG_OUTPUT_JSON)
    rc = pen_plan_print_json(plan, config->tbw, true, changes, n);
  else if (rc == 0)
    pen_plan_print(plan, config->tbw, changes, n);
  return rc;
}

static int make_plan(const struct pen_config *config, const char *model,
                     const char *data, const char *eval_data)
{
  struct pen_plan_case question;
  struct pen_plan plan;
  int rc = pen_plan_case_init(&question, config, model, data, eval_data);
  if (rc == 0 && !question.has_machine && config->trace)
    rc = pen_error_set(PEN_EUSAGE, "--trace needs a machine profile; make one "
                       "with penstock bench all, or give --profile FILE");
  if (rc < 0)
    return rc;
  rc = pen_plan_case_open(&question, config->trace, &plan);
  if (rc == -PEN_ENOFIT)
    rc = print_unfit(&question, &plan, rc);
  else if (rc == 0)
    rc = print_fitting(&question, &plan);
  pen_plan_close(&plan);
  return rc;
}

int pen_verb_plan(const struct pen_config *config)
{
  char *model = NULL, *data = NULL, *eval_data = NULL;
  char cache[4096];
  const volatile sig_atomic_t *stop = pen_stop_on_signals();
  pen_settings_temporary("plan", cache, sizeof cache);
  int rc = pen_settings_outputs(config);
  if (rc == 0)
    rc = pen_model_dir_find(config->model, &model);
  if (rc == 0 && config->data)
    rc = pen_settings_tokens(config, config->data, false, model, cache, stop,
                             &data);
  if (rc == 0 && config->eval_data)
    rc = pen_settings_tokens(config, config->eval_data, true, model, cache,
                             stop, &eval_data);
  pen_stop_ends(cache); /* nobody looks whether to stop */
  if (rc == 0 && *stop)
    rc = pen_error_set(PEN_ESTOPPED, "stopped before it was planned");
  if (rc == 0)
    rc = config->sweep ? pen_plan_sweep(config, model, data, eval_data)
                       : make_plan(config, model, data, eval_data);
  pen_settings_drop_cache(cache);
  free(eval_data);
  free(data);
  free(model);
  return rc;
}
