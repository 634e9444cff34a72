/* plan.c: the start of a training run without the run, and one step of it on a
 * virtual clock.
 *
 * The trainer is opened by the same functions as for training, so what is
 * promised here is what train would do.  Main thread.  Disadvantage: one
 * placement is planned, the one train would take; others are not searched. */
#include "src/train/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/size.h"

#define TRACE_EVENTS_PER_LANE 200000
#define STEPS_TO_FULL_FLIGHT 3 /* the first has no update to apply */

/* ---- opening ---- */

/* Each directory gets an equal part of the stores. */
static int check_room(const struct pen_trainer *t)
{
  const struct pen_machine_settings *m = &t->set.machine;
  uint64_t need = t->session.memory.total[PEN_TIER_NVME];
  char need_text[PEN_SIZE_TEXT_BYTES], room_text[PEN_SIZE_TEXT_BYTES];
  for (size_t d = 0; d < m->n_nvme_dirs; d++) {
    uint64_t part = need / m->n_nvme_dirs, room;
    int rc = pen_trainer_free_bytes(m->nvme_dirs[d], &room);
    if (rc < 0)
      return rc;
    pen_size_format(part, need_text);
    pen_size_format(room, room_text);
    if (part > room)
      return pen_error_set(PEN_ENOFIT,
                           "does not fit: state needs %s under %s, which has "
                           "%s free: %" PRIu64 " bytes too few; add a "
                           "directory on another drive to --nvme-path",
                           need_text, m->nvme_dirs[d], room_text, part - room);
  }
  return 0;
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
    rc = pen_trainer_open_session(t);
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
  plan->written_per_step = t->session.plan.nvme_written_bytes;
  return 0;
}

void pen_plan_close(struct pen_plan *plan)
{
  pen_trainer_close(&plan->trainer);
}

/* ---- the machine ---- */

static bool same_drive(const char *a, const char *b)
{
  struct stat x, y;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev;
}

/* The profile's drive for the n-th directory: measured on the same file system,
 * or, in a described machine, the n-th. */
static const struct pen_machine_drive *
find_drive(const struct pen_machine *m, const char *dir, size_t n)
{
  for (size_t i = 0; i < m->n_drives; i++)
    if (m->drives[i].path[0] && same_drive(m->drives[i].path, dir))
      return &m->drives[i];
  return n < m->n_drives && !m->drives[n].path[0] ? &m->drives[n] : NULL;
}

static void divide(struct pen_machine_drive *drive, size_t parts)
{
  drive->read /= (double)parts;
  drive->write /= (double)parts;
  drive->mixed /= (double)parts;
}

/* One drive per directory; directories on one drive share it. */
static int choose_drives(const struct pen_machine_settings *set,
                         struct pen_machine *m)
{
  const struct pen_machine all = *m;
  if (set->n_nvme_dirs > PEN_MACHINE_DRIVES_MAX)
    return pen_error_set(PEN_EUSAGE, "--nvme-path names %zu directories; %d "
                         "can be simulated",
                         set->n_nvme_dirs, PEN_MACHINE_DRIVES_MAX);
  m->n_drives = set->n_nvme_dirs;
  for (size_t d = 0; d < set->n_nvme_dirs; d++) {
    const struct pen_machine_drive *drive =
        find_drive(&all, set->nvme_dirs[d], d);
    if (!drive)
      return pen_error_set(PEN_EUSAGE,
                           "the machine profile says nothing of the drive of "
                           "%s; run penstock bench nvme --nvme-path %s",
                           set->nvme_dirs[d], set->nvme_dirs[d]);
    size_t sharers = 0;
    for (size_t i = 0; i < set->n_nvme_dirs; i++)
      sharers += i == d || same_drive(set->nvme_dirs[i], set->nvme_dirs[d]);
    m->drives[d] = *drive;
    divide(&m->drives[d], sharers);
  }
  return 0;
}

/* ---- the step ---- */

struct rehearsal {
  struct pen_carry carry;
  struct pen_schedule schedule;
  struct pen_simulate *simulate;
  struct pen_simulate_options options;
  struct pen_trace *trace;
};

/* The schedule of a step that applies the update of the one before it, with the
 * rings as they are after a few. */
static int build_step(const struct pen_plan *plan, struct rehearsal *r)
{
  const struct pen_session *s = &plan->trainer.session;
  const struct pen_workload *w = pen_model_workload(s->model);
  bool commits = plan->trainer.set.durable && s->layout.n_store_tiles > 0 &&
                 s->layout.n_store_tiles == s->layout.n_tiles &&
                 plan->trainer.set.commit_interval == 1;
  struct pen_shape shape = {.kind = PEN_STEP_TRAIN,
                            .n_micros = plan->micros_per_step,
                            .n_tokens = plan->tokens_per_step};
  int rc = pen_carry_init(&r->carry, &s->layout);
  if (rc == 0)
    rc = pen_schedule_init(&r->schedule, w, &s->layout, s->plan.n_tasks,
                           s->plan.n_accesses, true);
  for (int step = 0; rc == 0 && step < STEPS_TO_FULL_FLIGHT; step++)
    rc = pen_schedule_build(w, &s->layout, &shape, commits, &r->carry,
                            &r->schedule);
  return rc < 0 ? rc : pen_simulate_create(r->schedule.n_tasks, &r->simulate);
}

static int run_on(struct rehearsal *r, const struct pen_machine *machine,
                  struct pen_trace *trace, struct pen_simulate_result *result)
{
  r->options.demand.machine = machine;
  return pen_simulate_run(r->simulate, &r->schedule, &r->options, trace, 0,
                          result);
}

static int save_timeline(struct pen_plan *plan, struct rehearsal *r,
                         const char *path)
{
  int rc = pen_trace_create(PEN_LANES, TRACE_EVENTS_PER_LANE, &r->trace);
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
    m->cores *= 2;
    m->fp32_all *= 2;
    m->bf16_all *= 2;
  } else if (strcmp(what, "memory") == 0) {
    m->dram_read *= 2;
    m->dram_write *= 2;
    m->dram_update *= 2;
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
  static const char *const whats[] = {"cores", "memory", "link", "drives"};
  const struct pen_session *s = &plan->trainer.session;
  const struct pen_machine_settings *set = &plan->trainer.set.machine;
  size_t threads = set->threads ? set->threads : plan->machine.cores;
  r->options = (struct pen_simulate_options){
      .demand = {.elem_bytes = pen_elem_bytes(s->elem),
                 .threads = threads,
                 .update_threads =
                     set->update_threads ? set->update_threads : threads},
      .io_depth = s->io_depth,
      .apply = true};
  int rc = run_on(r, &plan->machine, NULL, &plan->step);
  for (size_t i = 0; rc == 0 && i < sizeof whats / sizeof *whats; i++)
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
  int rc = choose_drives(&plan->trainer.set.machine, &plan->machine);
  if (rc == 0)
    rc = build_step(plan, &r);
  if (rc == 0)
    rc = simulate(plan, &r, trace);
  pen_trace_free(&r.trace);
  pen_simulate_free(&r.simulate);
  pen_schedule_done(&r.schedule);
  pen_carry_done(&r.carry);
  plan->simulated = rc == 0;
  return rc;
}
