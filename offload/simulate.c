/* simulate.c: lanes on a virtual clock.
 *
 * Two passes over the same lanes.  In the first every task runs as if alone:
 * the critical path.  In the second, from event to event, running tasks share
 * the machine (offload/clock.h).  A lane starts its next task as run does: in
 * order, once every lane it waits for has retired that far; on a wide lane
 * while it has room in flight.  Pure and deterministic; one thread.
 * Disadvantage: what cannot be in time any more is known of resources, not of
 * waits. */
#include "offload/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "offload/clock.h"
#include "offload/demands.h"

_Static_assert(PEN_LANES + 2 * PEN_SIMULATE_DEPTH_MAX <= PEN_CLOCK_RUNNING_MAX,
               "tasks in flight");

struct lane {
  uint32_t issued, retired; /* tickets */
  size_t in_flight;
  bool blocked; /* a commit or a save runs on a wide lane */
};

struct pen_simulate {
  size_t max_tasks;
  uint32_t *by_ticket[PEN_LANES]; /* [max_tasks] */
  uint32_t *demand_of;            /* [max_tasks] its number among demands */
  bool *complete;                 /* [max_tasks] */
  double *retired_s;              /* [max_tasks] in the first pass */
  struct pen_demands demands;
  struct pen_clock clock;
  struct lane lanes[PEN_LANES];
  const struct pen_schedule *schedule;
  struct pen_simulate_options options;
  struct pen_machine merged; /* where options say so */
  size_t depth;
  struct pen_trace *trace;
  uint64_t begin_ns;
  struct pen_simulate_result result;
};

int pen_simulate_create(size_t max_tasks, struct pen_simulate **ret_simulate)
{
  struct pen_simulate *s = calloc(1, sizeof *s);
  bool good = s != NULL;
  if (good) {
    size_t n = max_tasks ? max_tasks : 1;
    s->max_tasks = max_tasks;
    s->demand_of = malloc(n * sizeof *s->demand_of);
    s->complete = malloc(n * sizeof *s->complete);
    s->retired_s = malloc(n * sizeof *s->retired_s);
    good = s->demand_of && s->complete && s->retired_s &&
           pen_demands_init(&s->demands, n) == 0 &&
           pen_clock_init(&s->clock, n) == 0;
    for (int lane = 0; lane < PEN_LANES; lane++) {
      s->by_ticket[lane] = malloc(n * sizeof **s->by_ticket);
      good = good && s->by_ticket[lane];
    }
  }
  if (!good) {
    pen_simulate_free(&s);
    return pen_error_set(PEN_ENOFIT, "no memory to simulate %zu tasks",
                         max_tasks);
  }
  *ret_simulate = s;
  return 0;
}

void pen_simulate_free(struct pen_simulate **simulate)
{
  struct pen_simulate *s = *simulate;
  if (!s)
    return;
  for (int lane = 0; lane < PEN_LANES; lane++)
    free(s->by_ticket[lane]);
  pen_clock_done(&s->clock);
  pen_demands_done(&s->demands);
  free(s->demand_of);
  free(s->complete);
  free(s->retired_s);
  free(s);
  *simulate = NULL;
}

/* Every expert is taken to be routed to: the worst case. */
static bool is_on(const struct pen_simulate *s, const struct pen_task *t)
{
  if (t->guard == PEN_GUARD_REDO)
    return s->options.apply && s->options.redo;
  return t->guard == PEN_GUARD_ALWAYS || t->guard == PEN_GUARD_ROUTED ||
         t->guard == (s->options.apply ? PEN_GUARD_APPLY : PEN_GUARD_SKIP);
}

static int find_demand(struct pen_simulate *s, uint32_t task)
{
  const struct pen_task *t = &s->schedule->tasks[task];
  s->demand_of[task] = PEN_DEMANDS_NONE;
  return is_on(s, t) ? pen_demands_find(&s->demands, &s->options.demand, t,
                                        &s->demand_of[task])
                     : 0;
}

/* ---- every task alone ---- */

/* When the n-th ticket of a lane is retired; 0 is from the start. */
static double retired_at(const struct pen_simulate *s, enum pen_lane lane,
                         uint32_t ticket)
{
  return ticket ? s->retired_s[s->by_ticket[lane][ticket - 1]] : 0;
}

/* Tasks stand in an order in which they could run one by one, so what a task
 * waits for was seen before it. */
static int run_alone(struct pen_simulate *s)
{
  double issued_s[PEN_LANES] = {0};
  uint32_t seen[PEN_LANES] = {0};
  for (uint32_t i = 0; i < s->schedule->n_tasks; i++) {
    const struct pen_task *t = &s->schedule->tasks[i];
    bool wide = pen_lane_is_wide(t->lane);
    double start = issued_s[t->lane];
    int rc = find_demand(s, i);
    if (rc < 0)
      return rc;
    const struct pen_demand *d = &s->demands.all[s->demand_of[i]];
    s->by_ticket[t->lane][t->ticket - 1] = i;
    for (int lane = 0; lane < PEN_LANES; lane++) {
      if (t->wait[lane] > seen[lane])
        return pen_error_set(PEN_ESCHEDULE,
                             "task %u waits for ticket %u of lane %s, which "
                             "comes after it",
                             i, t->wait[lane],
                             pen_lane_name((enum pen_lane)lane));
      start = fmax(start, retired_at(s, (enum pen_lane)lane, t->wait[lane]));
    }
    seen[t->lane] = t->ticket;
    double end = start + d->delay_s + d->seconds;
    issued_s[t->lane] = wide && pen_task_is_transfer(t) ? start : end;
    s->retired_s[i] = fmax(end, retired_at(s, t->lane, t->ticket - 1));
    s->result.critical_seconds =
        fmax(s->result.critical_seconds, s->retired_s[i]);
    for (size_t r = 0; r < s->result.n_resources; r++)
      s->result.least_seconds[r] += d->seconds * d->share.part[r];
  }
  return 0;
}

/* ---- all together ---- */

static bool may_start(const struct pen_simulate *s, const struct pen_task *t)
{
  const struct lane *own = &s->lanes[t->lane];
  bool room = pen_lane_is_wide(t->lane)
                  ? own->in_flight < s->depth && !own->blocked
                  : own->in_flight == 0;
  for (int lane = 0; room && lane < PEN_LANES; lane++)
    room = s->lanes[lane].retired >= t->wait[lane];
  return room;
}

static void retire(struct pen_simulate *s, enum pen_lane lane)
{
  struct lane *l = &s->lanes[lane];
  while (l->retired < l->issued &&
         s->complete[s->by_ticket[lane][l->retired]])
    l->retired++;
}

static void record(struct pen_simulate *s, uint32_t task, double begin_s)
{
  const struct pen_task *t = &s->schedule->tasks[task];
  struct pen_trace_event event = {
      .begin_ns = s->begin_ns + (uint64_t)llround(begin_s * 1e9),
      .end_ns = s->begin_ns + (uint64_t)llround(s->clock.now_s * 1e9),
      .name = pen_task_name(t->kind),
      .block = (int32_t)t->block,
      .micro = (int32_t)t->micro,
      .tile = (int32_t)t->tile};
  if (is_on(s, t))
    pen_trace_record(s->trace, t->lane, &event);
}

static void end_task(struct pen_simulate *s, uint32_t task, double begin_s)
{
  const struct pen_task *t = &s->schedule->tasks[task];
  if (s->trace)
    record(s, task, begin_s);
  s->complete[task] = true;
  s->lanes[t->lane].in_flight--;
  if (!pen_task_is_transfer(t))
    s->lanes[t->lane].blocked = false;
  retire(s, t->lane);
}

static void start_task(struct pen_simulate *s, uint32_t task)
{
  const struct pen_task *t = &s->schedule->tasks[task];
  const struct pen_demand *d = &s->demands.all[s->demand_of[task]];
  s->lanes[t->lane].issued = t->ticket;
  s->lanes[t->lane].in_flight++;
  s->lanes[t->lane].blocked = !pen_task_is_transfer(t);
  if (d->delay_s == 0 && d->seconds == 0)
    end_task(s, task, s->clock.now_s);
  else
    pen_clock_begin(&s->clock, task, s->demand_of[task]);
}

/* Starts all that can start, until nothing more can. */
static void start_tasks(struct pen_simulate *s)
{
  bool any = true;
  while (any) {
    any = false;
    for (int lane = 0; lane < PEN_LANES; lane++) {
      struct lane *l = &s->lanes[lane];
      while (l->issued < s->schedule->n_tickets[lane]) {
        uint32_t next = s->by_ticket[lane][l->issued];
        if (!may_start(s, &s->schedule->tasks[next]))
          break;
        start_task(s, next);
        any = true;
      }
    }
  }
}

static void advance(struct pen_simulate *s)
{
  const uint32_t *ended;
  bool busy[PEN_LANES];
  double before_s = s->clock.now_s;
  for (int lane = 0; lane < PEN_LANES; lane++)
    busy[lane] = s->lanes[lane].in_flight > 0;
  size_t n = pen_clock_advance(&s->clock, &ended);
  for (int lane = 0; lane < PEN_LANES; lane++)
    if (busy[lane])
      s->result.busy_seconds[lane] += s->clock.now_s - before_s;
  for (size_t i = 0; i < n; i++)
    end_task(s, ended[i], pen_clock_began(&s->clock, ended[i]));
}

/* What no sharing can make shorter. */
static double least_seconds(const struct pen_simulate *s)
{
  double least = s->result.critical_seconds;
  for (size_t r = 0; r < s->result.n_resources; r++)
    least = fmax(least, s->result.least_seconds[r]);
  return least;
}

/* How soon the step can end now: what is left for each resource takes its
 * time. */
static double soonest_end(const struct pen_simulate *s)
{
  double left = 0;
  for (size_t r = 0; r < s->result.n_resources; r++)
    left = fmax(left, s->result.least_seconds[r] - s->clock.used_s[r]);
  return s->clock.now_s + left;
}

/* *ret_seconds: of the step; or enough_s or more, which it is no shorter than. */
static int run_together(struct pen_simulate *s, double enough_s,
                        double *ret_seconds)
{
  *ret_seconds = least_seconds(s);
  start_tasks(s);
  while (s->clock.n_running && *ret_seconds < enough_s) {
    advance(s);
    start_tasks(s);
    *ret_seconds = soonest_end(s);
  }
  if (*ret_seconds >= enough_s)
    return 0;
  *ret_seconds = s->clock.now_s;
  for (int lane = 0; lane < PEN_LANES; lane++)
    if (s->lanes[lane].retired < s->schedule->n_tickets[lane])
      return pen_error_set(PEN_ESCHEDULE, "lane %s stands at ticket %u of %u",
                           pen_lane_name((enum pen_lane)lane),
                           s->lanes[lane].retired,
                           s->schedule->n_tickets[lane]);
  return 0;
}

/* Drives that are all alike, each with an equal part of every transfer, are one
 * drive that is as fast as all of them. */
static void merge_drives(struct pen_simulate *s,
                         const struct pen_simulate_options *options)
{
  const struct pen_machine *m = options->demand.machine;
  const struct pen_machine_drive *first = &m->drives[0];
  s->options = *options;
  for (size_t d = 1; d < m->n_drives; d++) {
    const struct pen_machine_drive *next = &m->drives[d];
    if (next->read != first->read || next->write != first->write ||
        next->mixed != first->mixed || next->latency_s != first->latency_s ||
        next->sync_s != first->sync_s)
      return;
  }
  if (m->n_drives < 2)
    return;
  s->merged = *m;
  s->merged.n_drives = 1;
  s->merged.drives[0].read *= (double)m->n_drives;
  s->merged.drives[0].write *= (double)m->n_drives;
  s->merged.drives[0].mixed *= (double)m->n_drives;
  s->options.demand.machine = &s->merged;
}

static void split_drives(struct pen_simulate *s, size_t n_resources)
{
  struct pen_simulate_result *r = &s->result;
  for (size_t n = r->n_resources; n < n_resources; n++) {
    r->load[n] = r->load[n - PEN_DRIVE_RESOURCES];
    r->least_seconds[n] = r->least_seconds[n - PEN_DRIVE_RESOURCES];
  }
  r->n_resources = n_resources;
}

static void finish(struct pen_simulate *s, size_t n_resources)
{
  struct pen_simulate_result *r = &s->result;
  for (size_t n = 0; n < r->n_resources; n++)
    r->load[n] = r->seconds > 0 ? s->clock.used_s[n] / r->seconds : 0;
  split_drives(s, n_resources);
  for (size_t n = 0; n < r->n_resources; n++) {
    if (r->load[n] > r->load[r->binds])
      r->binds = n;
  }
}

int pen_simulate_run(struct pen_simulate *simulate,
                     const struct pen_schedule *schedule,
                     const struct pen_simulate_options *options,
                     struct pen_trace *trace, uint64_t begin_ns,
                     struct pen_simulate_result *ret_result)
{
  struct pen_simulate *s = simulate;
  if (schedule->n_tasks > s->max_tasks)
    return pen_error_set(PEN_ESCHEDULE, "%zu tasks to simulate, room for %zu",
                         schedule->n_tasks, s->max_tasks);
  size_t n_resources = pen_demand_n_resources(options->demand.machine);
  double enough = options->enough_s > 0 ? options->enough_s : INFINITY;
  merge_drives(s, options);
  s->schedule = schedule;
  s->depth = options->io_depth < PEN_SIMULATE_DEPTH_MAX ? options->io_depth
                                                        : PEN_SIMULATE_DEPTH_MAX;
  s->trace = trace;
  s->begin_ns = begin_ns;
  s->result = (struct pen_simulate_result){
      .n_resources = pen_demand_n_resources(s->options.demand.machine)};
  memset(s->lanes, 0, sizeof s->lanes);
  memset(s->complete, 0, schedule->n_tasks * sizeof *s->complete);
  pen_demands_clear(&s->demands);
  int rc = run_alone(s);
  if (rc == 0)
    rc = pen_clock_start(&s->clock, s->demands.all, s->demands.n,
                         s->options.demand.machine);
  if (rc == 0)
    rc = run_together(s, enough, &s->result.seconds);
  if (rc < 0)
    return rc;
  finish(s, n_resources);
  *ret_result = s->result;
  return 0;
}
