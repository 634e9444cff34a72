/* plan.c: the start of a training run without the run, and one step of it on a
 * virtual clock.
 *
 * The trainer is opened by the same functions as for training, so what is
 * promised here is what train would do.  Main thread.  Disadvantage: one
 * placement is planned, the one train would take; others are not searched. */
#include "src/train/plan.h"

#include <stdlib.h>
#include <string.h>

#include "io/files.h"
#include "offload/rehearse.h"
#include "src/train/drives.h"

/* ---- opening ---- */

/* Each directory gets an equal part of the stores. */
static int check_room(const struct pen_trainer *t)
{
  const struct pen_machine_settings *m = &t->set.machine;
  uint64_t need = t->session.memory.total[PEN_TIER_NVME];
  int rc = 0;
  for (size_t d = 0; !m->described_drives && d < m->n_nvme_dirs && rc == 0; d++)
    rc = pen_files_check_room(
        m->nvme_dirs[d], need / m->n_nvme_dirs, "the state",
        "add a directory on another drive to --nvme-path");
  return rc;
}

static void count_tokens(struct pen_plan *plan)
{
  const struct pen_trainer *t = &plan->trainer;
  const struct pen_order *order = &t->train.order;
  double per_sequence = t->set.max_length;
  if (t->train.set.sequences) {
    const struct pen_sequences_counts *c =
        pen_sequences_counts(t->train.set.sequences);
    per_sequence = (double)c->n_inputs / (double)order->n_sequences;
  }
  uint64_t full = order->batch_sequences * order->accumulation;
  plan->tokens_per_step =
      per_sequence * (double)(full < order->n_sequences ? full
                                                        : order->n_sequences);
  plan->micros_per_step =
      pen_model_workload(t->session.model)->n_micros_max;
}

int pen_plan_open(const struct pen_train_settings *settings,
                  struct pen_plan *ret_plan)
{
  struct pen_plan *plan = ret_plan;
  *plan = (struct pen_plan){
      .trainer = {.set = *settings, .rundir = {.lock_fd = -1}}};
  struct pen_trainer *t = &plan->trainer;
  int rc = settings->data ? pen_trainer_open_data(t)
                          : pen_trainer_assume_data(t);
  if (rc == 0)
    rc = pen_trainer_open_cut(t);
  if (rc == 0 && (settings->data || settings->max_steps))
    rc = pen_trainer_plan_steps(t); /* else how many is not known */
  if (rc == 0)
    rc = pen_trainer_check_stores(t);
  if (rc == 0)
    rc = check_room(t);
  if (rc < 0)
    return rc;
  count_tokens(plan);
  plan->model_bytes = pen_trainer_model_bytes(t);
  plan->checkpoint_bytes = pen_trainer_checkpoint_bytes(t);
  plan->written_per_step = pen_trainer_written_per_step(t);
  return 0;
}

void pen_plan_close(struct pen_plan *plan)
{
  pen_trainer_close(&plan->trainer);
}

/* ---- the step ---- */

struct rehearsal {
  struct pen_rehearsal step;
  struct pen_simulate_options options;
  struct pen_trace *trace;
};

static int build_step(const struct pen_plan *plan,
                      enum pen_rehearsal_updates updates, struct rehearsal *r)
{
  const struct pen_session *s = &plan->trainer.session;
  bool commits = plan->trainer.set.durable && s->layout.n_store_tiles > 0 &&
                 s->layout.n_store_tiles == s->layout.n_tiles &&
                 plan->trainer.set.commit_interval == 1;
  struct pen_shape shape = {.kind = PEN_STEP_TRAIN,
                            .n_micros = plan->micros_per_step,
                            .n_tokens = plan->tokens_per_step,
                            .speculates = updates != PEN_REHEARSAL_NONE};
  return pen_rehearsal_open(&r->step, pen_model_workload(s->model), &s->layout,
                            &shape, commits, updates);
}

static enum pen_rehearsal_updates updates_of(const struct pen_plan *plan)
{
  return plan->trainer.set.machine.updates_after_backward
             ? PEN_REHEARSAL_DRAINED
             : PEN_REHEARSAL_CARRIED;
}

static int run_on(struct rehearsal *r, const struct pen_machine *machine,
                  struct pen_trace *trace, struct pen_simulate_result *result)
{
  r->options.demand.machine = machine;
  return pen_rehearsal_run(&r->step, &r->options, trace, result);
}

/* The same placement with nothing to apply. */
static int measure_exposed(struct pen_plan *plan)
{
  struct rehearsal r = {.options = pen_session_simulate_options(
                            &plan->trainer.session, &plan->machine)};
  struct pen_simulate_result without;
  int rc = build_step(plan, PEN_REHEARSAL_NONE, &r);
  if (rc == 0)
    rc = run_on(&r, &plan->machine, NULL, &without);
  pen_rehearsal_close(&r.step);
  if (rc == 0)
    plan->exposed_seconds = plan->step.seconds - without.seconds;
  return rc;
}

static int save_timeline(struct pen_plan *plan, struct rehearsal *r,
                         const char *path)
{
  int rc = pen_trace_create(PEN_LANES, PEN_TRAINER_TRACE_EVENTS, &r->trace);
  for (int lane = 0; rc == 0 && lane < PEN_LANES; lane++)
    pen_trace_name_lane(r->trace, (size_t)lane,
                        pen_lane_name((enum pen_lane)lane));
  if (rc == 0)
    rc = run_on(r, &plan->machine, r->trace, &plan->step);
  return rc < 0 ? rc : pen_trace_save(r->trace, path);
}

static void twice(struct pen_machine *m, const char *what)
{
  if (strcmp(what, "cores") == 0) {
    pen_machine_multiply_cores(m, 2 * m->cores);
  } else if (strcmp(what, "memory") == 0) {
    m->dram_read *= 2;
    m->dram_write *= 2;
    m->dram_update *= 2;
  } else if (strcmp(what, "device") == 0) {
    m->device_bf16 *= 2;
    m->device_fp32 *= 2;
    m->device_memory *= 2;
  } else if (strcmp(what, "link") == 0) {
    m->upload *= 2;
    m->download *= 2;
  }
  for (size_t d = 0; strcmp(what, "drives") == 0 && d < m->n_drives; d++) {
    m->drives[d].read *= 2;
    m->drives[d].write *= 2;
    m->drives[d].mixed *= 2;
  }
}

static bool has_part(const struct pen_plan *plan, const char *what)
{
  return strcmp(what, "device") == 0
             ? pen_machine_has_device(&plan->machine)
         : strcmp(what, "link") == 0
             ? !plan->trainer.session.layout.placement.unified
         : strcmp(what, "drives") == 0 ? plan->machine.n_drives > 0
                                       : true;
}

/* More cores are more threads, where they were left to the machine. */
static int try_better(struct pen_plan *plan, struct rehearsal *r,
                      const char *what)
{
  struct pen_machine m = plan->machine;
  struct pen_simulate_result result;
  struct pen_demand_options kept = r->options.demand;
  const struct pen_machine_settings *set = &plan->trainer.set.machine;
  bool cores = strcmp(what, "cores") == 0;
  twice(&m, what);
  if (cores && !set->threads)
    r->options.demand.threads *= 2;
  if (cores && !set->threads && !set->update_threads)
    r->options.demand.update_threads *= 2;
  int rc = run_on(r, &m, NULL, &result);
  r->options.demand = kept;
  if (rc == 0)
    plan->better[plan->n_better++] =
        (struct pen_plan_better){what, plan->step.seconds / result.seconds};
  return rc;
}

static int simulate(struct pen_plan *plan, struct rehearsal *r,
                    const char *trace)
{
  static const char *const whats[] = {"cores", "memory", "device", "link",
                                      "drives"};
  const struct pen_session *s = &plan->trainer.session;
  r->options = pen_session_simulate_options(s, &plan->machine);
  int rc = run_on(r, &plan->machine, NULL, &plan->step);
  if (rc < 0 || plan->trainer.set.what_if) /* only how long it takes is asked */
    return rc;
  rc = measure_exposed(plan);
  for (size_t i = 0; rc == 0 && i < sizeof whats / sizeof *whats; i++)
    if (has_part(plan, whats[i]))
      rc = try_better(plan, r, whats[i]);
  if (rc == 0 && trace)
    rc = save_timeline(plan, r, trace);
  return rc;
}

int pen_plan_simulate(struct pen_plan *plan, const struct pen_machine *machine,
                      const char *trace)
{
  struct rehearsal r = {0};
  plan->machine = *machine;
  plan->n_better = 0;
  int rc = pen_drives_choose(&plan->trainer.set.machine, &plan->machine);
  if (rc == 0)
    rc = build_step(plan, updates_of(plan), &r);
  if (rc == 0)
    rc = simulate(plan, &r, trace);
  pen_trace_free(&r.trace);
  pen_rehearsal_close(&r.step);
  plan->simulated = rc == 0;
  return rc;
}

int pen_plan_time(const struct pen_plan *plan, const struct pen_machine *machine,
                  struct pen_simulate_result *ret_result)
{
  struct rehearsal r = {
      .options = pen_session_simulate_options(&plan->trainer.session, machine)};
  int rc = build_step(plan, updates_of(plan), &r);
  if (rc == 0)
    rc = run_on(&r, machine, NULL, ret_result);
  pen_rehearsal_close(&r.step);
  return rc;
}
