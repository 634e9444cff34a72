/* verb_plan.c: `penstock plan`: what train would take, how long it would last,
 * what binds, and what drives would suffer, as text or JSON.
 *
 * Both forms are made from the same numbers.  Nothing is written but what
 * --trace names; text data are prepared into a temporary folder. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "base/size.h"
#include "io/json_write.h"
#include "kernels/gemm.h"
#include "src/cli/profile.h"
#include "src/cli/settings.h"
#include "src/cli/verb.h"
#include "src/model/model_dir.h"
#include "src/train/plan.h"

/* A drive's rated life is given for one drive; stores are spread evenly. */
static double written_per_drive(const struct pen_plan *plan)
{
  size_t n = plan->trainer.set.machine.n_nvme_dirs;
  return n ? (double)plan->written_per_step / (double)n : 0;
}

static const char *size_text(double bytes, char text[PEN_SIZE_TEXT_BYTES])
{
  pen_size_format((uint64_t)bytes, text);
  return text;
}

/* ---- text ---- */

static void print_what(const struct pen_plan *plan)
{
  const struct pen_session *s = &plan->trainer.session;
  const struct pen_placement *p = &s->layout.placement;
  printf("model      %" PRIu64 " parameters in %zu blocks, %s by %s, %s "
         "kernels\n",
         s->params->n_elems, s->params->n_blocks, pen_elem_name(s->elem),
         pen_model_gemm(s->model)->name, pen_isa_name(s->isa));
  printf("step       %.0f tokens in %zu micro-batches%s\n",
         plan->tokens_per_step, plan->micros_per_step,
         plan->trainer.train.set.sequences ? ""
                                           : ", every sequence full: no --data");
  printf("placement  %s memory, groups of %zu micro-batches, %zu of %zu blocks "
         "recompute, %zu of %zu tiles of state on drives\n",
         p->unified ? "one" : "discrete", p->group_size, p->recompute_blocks,
         s->params->body_end - s->params->body_begin, s->layout.n_store_tiles,
         s->layout.n_tiles);
}

static void print_drives(const struct pen_plan *plan, uint64_t tbw)
{
  char a[PEN_SIZE_TEXT_BYTES], b[PEN_SIZE_TEXT_BYTES], c[PEN_SIZE_TEXT_BYTES];
  double one = written_per_drive(plan);
  uint64_t steps = plan->trainer.n_steps;
  printf("output     %s of model at the end, %s for each checkpoint\n",
         size_text((double)plan->model_bytes, a),
         size_text((double)plan->checkpoint_bytes, b));
  if (!plan->trainer.set.machine.n_nvme_dirs)
    return;
  printf("drives     %s written per step, %s per 1000 steps, to %zu drive%s\n",
         size_text((double)plan->written_per_step, a),
         size_text((double)plan->written_per_step * 1000, b),
         plan->trainer.set.machine.n_nvme_dirs,
         plan->trainer.set.machine.n_nvme_dirs > 1 ? "s" : "");
  if (!tbw || one == 0)
    return;
  printf("wear       1000 steps are %.3g %% of each drive's %s; they last "
         "%.0f steps\n",
         100 * 1000 * one / (double)tbw, size_text((double)tbw, c),
         (double)tbw / one);
  if (steps)
    printf("           this run of %" PRIu64 " steps: %.3g %%\n", steps,
           100 * one * (double)steps / (double)tbw);
}

static void print_time(const struct pen_plan *plan)
{
  const struct pen_simulate_result *r = &plan->step;
  char name[PEN_RESOURCE_TEXT_BYTES];
  printf("time       %.3g s a step, %.4g tokens/s, by profile%s%s\n",
         r->seconds, plan->tokens_per_step / r->seconds,
         plan->machine.name[0] ? " " : "", plan->machine.name);
  pen_resource_name(r->binds, name);
  printf("binds      %s, %.0f %% of the step; without any sharing a step takes "
         "%.3g s\n",
         name, 100 * r->load[r->binds], r->critical_seconds);
  printf("lanes     ");
  for (int lane = 0; lane < PEN_LANES; lane++)
    if (r->busy_seconds[lane] > 0)
      printf(" %s %.0f %%", pen_lane_name((enum pen_lane)lane),
             100 * r->busy_seconds[lane] / r->seconds);
  printf("\nresources ");
  for (size_t i = 0; i < r->n_resources; i++)
    if (r->load[i] > 0) {
      pen_resource_name(i, name);
      printf(" %s %.0f %%", name, 100 * r->load[i]);
    }
  printf("\ntwice as  ");
  for (size_t i = 0; i < plan->n_better; i++)
    printf("%s %s: %.2fx", i ? "," : "", plan->better[i].what,
           plan->better[i].speedup);
  putchar('\n');
}

static void print_text(const struct pen_plan *plan, uint64_t tbw)
{
  print_what(plan);
  pen_memory_print(&plan->trainer.session.memory, stdout);
  print_drives(plan, tbw);
  if (plan->simulated)
    print_time(plan);
  else
    puts("time       not known: there is no profile of this machine; make one "
         "with penstock bench all, or give one with --profile FILE");
}

/* ---- JSON ---- */

static void put_time(struct pen_json_writer *w, const struct pen_plan *plan)
{
  const struct pen_simulate_result *r = &plan->step;
  char name[PEN_RESOURCE_TEXT_BYTES];
  pen_json_begin_object(w, "time");
  pen_json_put_double(w, "seconds_per_step", r->seconds);
  pen_json_put_double(w, "tokens_per_second",
                      plan->tokens_per_step / r->seconds);
  pen_json_put_double(w, "critical_seconds", r->critical_seconds);
  pen_resource_name(r->binds, name);
  pen_json_put_string(w, "binds", name);
  pen_json_begin_object(w, "lane_busy_seconds");
  for (int lane = 0; lane < PEN_LANES; lane++)
    pen_json_put_double(w, pen_lane_name((enum pen_lane)lane),
                        r->busy_seconds[lane]);
  pen_json_end_object(w);
  pen_json_begin_array(w, "resources");
  for (size_t i = 0; i < r->n_resources; i++) {
    pen_resource_name(i, name);
    pen_json_begin_object(w, NULL);
    pen_json_put_string(w, "name", name);
    pen_json_put_double(w, "load", r->load[i]);
    pen_json_put_double(w, "least_seconds", r->least_seconds[i]);
    pen_json_end_object(w);
  }
  pen_json_end_array(w);
  pen_json_begin_object(w, "speedup_if_twice");
  for (size_t i = 0; i < plan->n_better; i++)
    pen_json_put_double(w, plan->better[i].what, plan->better[i].speedup);
  pen_json_end_object(w);
  pen_json_end_object(w);
}

static void put_drives(struct pen_json_writer *w, const struct pen_plan *plan,
                       uint64_t tbw)
{
  double one = written_per_drive(plan);
  pen_json_begin_object(w, "drives");
  pen_json_put_u64(w, "count", plan->trainer.set.machine.n_nvme_dirs);
  pen_json_put_u64(w, "written_bytes_per_step", plan->written_per_step);
  pen_json_put_u64(w, "written_bytes_per_1000_steps",
                   plan->written_per_step * 1000);
  if (tbw) {
    pen_json_put_u64(w, "tbw_bytes", tbw);
    pen_json_put_double(w, "tbw_share_per_1000_steps",
                        1000 * one / (double)tbw);
    pen_json_put_double(w, "steps_to_tbw",
                        one > 0 ? (double)tbw / one : (double)INFINITY);
  }
  pen_json_end_object(w);
}

static int print_json(const struct pen_plan *plan, uint64_t tbw, bool fits)
{
  const struct pen_session *s = &plan->trainer.session;
  struct pen_json_writer w;
  const char *text;
  size_t bytes;
  pen_json_writer_init(&w, NULL, 0, true);
  pen_json_begin_object(&w, NULL);
  pen_json_put_bool(&w, "fits", fits);
  pen_json_begin_object(&w, "bytes");
  for (int tier = 0; tier < PEN_TIERS; tier++)
    pen_json_put_u64(&w, pen_tier_name((enum pen_tier)tier),
                     s->memory.total[tier]);
  pen_json_end_object(&w);
  pen_memory_write(&s->memory, &w, "allocations");
  if (fits) {
    pen_json_put_u64(&w, "parameters", s->params->n_elems);
    pen_json_put_double(&w, "tokens_per_step", plan->tokens_per_step);
    pen_json_put_u64(&w, "micro_batches", plan->micros_per_step);
    pen_json_put_u64(&w, "group_size", s->layout.placement.group_size);
    pen_json_put_u64(&w, "recompute_blocks",
                     s->layout.placement.recompute_blocks);
    pen_json_put_u64(&w, "tiles", s->layout.n_tiles);
    pen_json_put_u64(&w, "tiles_on_drives", s->layout.n_store_tiles);
    pen_json_put_u64(&w, "model_bytes", plan->model_bytes);
    pen_json_put_u64(&w, "checkpoint_bytes", plan->checkpoint_bytes);
    put_drives(&w, plan, tbw);
  }
  if (plan->simulated)
    put_time(&w, plan);
  pen_json_end_object(&w);
  int rc = pen_json_finish(&w, &text, &bytes);
  if (rc == 0)
    puts(text);
  pen_json_writer_done(&w);
  return rc;
}

/* ---- the verb ---- */

static int simulate(const struct pen_config *config, struct pen_plan *plan)
{
  struct pen_machine machine;
  bool found;
  int rc = pen_profile_load(config->profile, &found, &machine);
  if (rc == 0 && !found && config->trace)
    rc = pen_error_set(PEN_EUSAGE, "--trace needs a machine profile; make one "
                       "with penstock bench all, or give --profile FILE");
  return rc < 0 || !found ? rc
                          : pen_plan_simulate(plan, &machine, config->trace);
}

/* The numbers of a plan that does not fit are wanted most. */
static int print_unfit(const struct pen_config *config,
                       const struct pen_plan *plan, int rc)
{
  struct pen_error kept;
  pen_error_take(&kept);
  if (config->output_format == PEN_CONFIG_OUTPUT_JSON)
    print_json(plan, config->tbw, false);
  else
    pen_memory_print(&plan->trainer.session.memory, stdout);
  pen_error_put(&kept);
  return rc;
}

static int make_plan(const struct pen_config *config,
                     const struct pen_train_settings *settings)
{
  struct pen_plan plan;
  int rc = pen_plan_open(settings, &plan);
  if (rc == -PEN_ENOFIT)
    print_unfit(config, &plan, rc);
  if (rc == 0)
    rc = simulate(config, &plan);
  if (rc == 0 && config->output_format == PEN_CONFIG_OUTPUT_JSON)
    rc = print_json(&plan, config->tbw, true);
  else if (rc == 0)
    print_text(&plan, config->tbw);
  pen_plan_close(&plan);
  return rc;
}

int pen_verb_plan(const struct pen_config *config)
{
  struct pen_train_settings s = {0};
  char *model = NULL, *data = NULL, *eval_data = NULL;
  char cache[] = "/tmp/penstock-plan-XXXXXX";
  bool has_cache = false;
  pen_settings_train(config, &s);
  s.plan_only = true;
  int rc = pen_model_dir_find(config->model, &model);
  s.model.dir = model;
  if (rc == 0 && config->data) {
    has_cache = mkdtemp(cache) != NULL;
    if (!has_cache)
      rc = pen_error_set(PEN_ESTOPPED, "cannot make a folder %s", cache);
  }
  if (rc == 0 && config->data)
    rc = pen_settings_tokens(config, config->data, false, model, cache, &data);
  if (rc == 0 && config->eval_data)
    rc = pen_settings_tokens(config, config->eval_data, true, model, cache,
                             &eval_data);
  s.data = data;
  s.eval_data = eval_data;
  if (rc == 0)
    rc = make_plan(config, &s);
  if (has_cache)
    pen_settings_drop_cache(cache);
  free(eval_data);
  free(data);
  free(model);
  return rc;
}
