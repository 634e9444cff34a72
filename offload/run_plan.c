/* run_plan.c: sizes a run by building every kind of step it can come to.
 *
 * The steps follow one another as in training (with and without a pending
 * update, before and after an evaluation), each is checked, and the largest
 * sets the room that a run's schedule gets.  Main thread, at start. */
#include "offload/check.h"
#include "offload/run.h"

struct rehearsal {
  const struct pen_workload *w;
  const struct pen_layout *l;
  bool proves;
  struct pen_schedule schedule;
  struct pen_carry carry, before;
  struct pen_run_plan plan;
};

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

static int prove(struct rehearsal *r)
{
  struct pen_check check;
  int rc = pen_check_init(&check, r->l, r->schedule.n_tasks,
                          r->schedule.n_accesses);
  if (rc == 0)
    rc = pen_check_schedule(&check, r->l, &r->schedule, &r->before);
  pen_check_done(&check);
  return rc;
}

/* A kind of step that a run can come to. */
struct act {
  enum pen_step_kind kind;
  bool save;
  bool commits; /* else state waits for a later step's */
};

/* What a training step in full flight costs. */
static void note_costs(struct rehearsal *r, bool commits)
{
  uint64_t written = pen_schedule_nvme_written(&r->schedule, false);
  if (!commits) {
    r->plan.nvme_between_bytes = written;
    return;
  }
  r->plan.step_cost = pen_schedule_cost(&r->schedule);
  r->plan.nvme_written_bytes = written;
  r->plan.nvme_redone_bytes = pen_schedule_nvme_written(&r->schedule, true);
}

static int rehearse(struct rehearsal *r, struct act act, bool speculates)
{
  struct pen_shape shape = {
      .kind = act.kind,
      .n_micros = act.kind == PEN_STEP_DRAIN ? 0 : r->w->n_micros_max,
      .n_tokens = 1,
      .save = act.save,
      .speculates = speculates};
  pen_carry_copy(&r->before, &r->carry);
  int rc = pen_schedule_build(r->w, r->l, &shape, act.commits, &r->carry,
                              &r->schedule);
  if (rc < 0)
    return rc;
  if (r->proves)
    rc = prove(r);
  r->plan.n_tasks = max_size(r->plan.n_tasks, r->schedule.n_tasks);
  r->plan.n_accesses = max_size(r->plan.n_accesses, r->schedule.n_accesses);
  if (act.kind == PEN_STEP_TRAIN && r->before.pending &&
      r->before.speculated == r->carry.speculated)
    note_costs(r, act.commits);
  return rc;
}

int pen_run_plan(const struct pen_workload *workload,
                 const struct pen_layout *layout, bool proves,
                 struct pen_run_plan *ret_plan)
{
  static const struct act acts[] = {
      {PEN_STEP_TRAIN, false, true},   {PEN_STEP_TRAIN, false, true},
      {PEN_STEP_EVAL, false, true},    {PEN_STEP_EVAL, false, true},
      {PEN_STEP_TRAIN, false, false},  {PEN_STEP_TRAIN, false, false},
      {PEN_STEP_DRAIN, true, true},    {PEN_STEP_DRAIN, true, true},
      {PEN_STEP_TRAIN, false, false},  {PEN_STEP_EVAL, false, false},
      {PEN_STEP_DRAIN, true, true},    {PEN_STEP_TRAIN, false, false},
      {PEN_STEP_TRAIN, false, false},  {PEN_STEP_TRAIN, false, true},
      {PEN_STEP_TRAIN, false, true},   {PEN_STEP_DRAIN, false, true},
      {PEN_STEP_EVAL, false, true}};
  bool early = layout->n_speculative > 0;
  struct rehearsal r = {.w = workload, .l = layout, .proves = proves};
  int rc = pen_carry_init(&r.carry, layout);
  if (rc == 0)
    rc = pen_carry_init(&r.before, layout);
  if (rc == 0)
    rc = pen_schedule_init(&r.schedule, workload, layout, 0, 0, true);
  bool trains = !layout->placement.inference;
  for (size_t i = 0; rc == 0 && i < sizeof acts / sizeof *acts; i++)
    if (trains || acts[i].kind == PEN_STEP_EVAL)
      rc = rehearse(&r, acts[i], early);
  for (int i = 0; rc == 0 && early && i < 3; i++) /* it may be left out */
    rc = rehearse(&r, (struct act){PEN_STEP_TRAIN, false, true}, i == 1);
  if (rc == 0 && workload->logits_bytes)
    rc = rehearse(&r, (struct act){PEN_STEP_LOGITS, false, true}, false);
  pen_schedule_done(&r.schedule);
  pen_carry_done(&r.carry);
  pen_carry_done(&r.before);
  if (rc < 0)
    return rc;
  r.plan.table_bytes =
      r.plan.n_tasks * (sizeof(struct pen_task) +
                        2 * PEN_LANES * sizeof(uint32_t) +
                        (PEN_LANES + 1) * sizeof(uint32_t)) +
      r.plan.n_accesses * (sizeof(struct pen_access) + 2 * sizeof(uint32_t)) +
      layout->n_slots * (sizeof(struct pen_slot_use) + 10 * sizeof(uint32_t)) +
      (layout->n_tiles + 1) * (3 * sizeof(bool) + 2 * sizeof(uint32_t));
  *ret_plan = r.plan;
  return 0;
}
