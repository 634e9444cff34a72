/* simulate.c: lanes on a virtual clock.
 *
 * Two passes over the same lanes.  In the first every task runs as if alone:
 * the critical path.  In the second, from event to event, running tasks share
 * the machine (offload/share.h).  A lane starts its next task as run does: in
 * order, once every lane it waits for has retired that far; on a wide lane
 * while it has room in flight.  Pure and deterministic; one thread.
 * Disadvantage: each event looks at every running task and resource, which for
 * deep queues on many drives is a few microseconds. */
#include "offload/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define RUNNING_MAX (PEN_LANES + 2 * PEN_SIMULATE_DEPTH_MAX)
#define SAME 1e-12 /* what is left of a task that is over */

struct running {
  uint32_t task;
  double begin_s;
  double delay_s; /* still to wait */
  double left;    /* of its work, 1 .. 0 */
  struct pen_demand demand;
};

struct lane {
  uint32_t issued, retired; /* tickets */
  size_t in_flight;
  bool blocked; /* a commit or a save runs on a wide lane */
};

struct pen_simulate {
  size_t max_tasks;
  uint32_t *by_ticket[PEN_LANES]; /* [max_tasks] */
  bool *complete;                 /* [max_tasks] */
  double *retired_s;              /* [max_tasks] in the first pass */
  struct running running[RUNNING_MAX];
  size_t n_running;
  struct lane lanes[PEN_LANES];
  const struct pen_schedule *schedule;
  struct pen_simulate_options options;
  struct pen_machine merged; /* where options say so */
  size_t depth;
  struct pen_trace *trace;
  uint64_t begin_ns;
  double now_s;
  struct pen_simulate_result result;
};

int pen_simulate_create(size_t max_tasks, struct pen_simulate **ret_simulate)
{
  struct pen_simulate *s = calloc(1, sizeof *s);
  bool good = s != NULL;
  if (good) {
    size_t n = max_tasks ? max_tasks : 1;
    s->max_tasks = max_tasks;
    s->complete = malloc(n * sizeof *s->complete);
    s->retired_s = malloc(n * sizeof *s->retired_s);
    good = s->complete && s->retired_s;
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

static int demand_of(struct pen_simulate *s, const struct pen_task *t,
                     struct pen_demand *ret_demand)
{
  *ret_demand = (struct pen_demand){0};
  return is_on(s, t) ? pen_demand_of(&s->options.demand, t, ret_demand) : 0;
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
    struct pen_demand d;
    int rc = demand_of(s, t, &d);
    if (rc < 0)
      return rc;
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
    double end = start + d.delay_s + d.seconds;
    issued_s[t->lane] = wide && pen_task_is_transfer(t) ? start : end;
    s->retired_s[i] = fmax(end, retired_at(s, t->lane, t->ticket - 1));
    s->result.critical_seconds =
        fmax(s->result.critical_seconds, s->retired_s[i]);
    for (size_t r = 0; r < s->result.n_resources; r++)
      s->result.least_seconds[r] += d.seconds * d.share.part[r];
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

static void record(struct pen_simulate *s, const struct running *r)
{
  const struct pen_task *t = &s->schedule->tasks[r->task];
  struct pen_trace_event event = {
      .begin_ns = s->begin_ns + (uint64_t)llround(r->begin_s * 1e9),
      .end_ns = s->begin_ns + (uint64_t)llround(s->now_s * 1e9),
      .name = pen_task_name(t->kind),
      .block = (int32_t)t->block,
      .micro = (int32_t)t->micro,
      .tile = (int32_t)t->tile};
  if (is_on(s, t))
    pen_trace_record(s->trace, t->lane, &event);
}

static void end_task(struct pen_simulate *s, size_t index)
{
  struct running *r = &s->running[index];
  const struct pen_task *t = &s->schedule->tasks[r->task];
  record(s, r);
  s->complete[r->task] = true;
  s->lanes[t->lane].in_flight--;
  if (!pen_task_is_transfer(t))
    s->lanes[t->lane].blocked = false;
  retire(s, t->lane);
  *r = s->running[--s->n_running];
}

static int start_task(struct pen_simulate *s, uint32_t task)
{
  const struct pen_task *t = &s->schedule->tasks[task];
  struct running *r = &s->running[s->n_running];
  *r = (struct running){.task = task, .begin_s = s->now_s, .left = 1};
  int rc = demand_of(s, t, &r->demand);
  if (rc < 0)
    return rc;
  r->delay_s = r->demand.delay_s;
  s->n_running++;
  s->lanes[t->lane].issued = t->ticket;
  s->lanes[t->lane].in_flight++;
  s->lanes[t->lane].blocked = !pen_task_is_transfer(t);
  if (r->delay_s == 0 && r->demand.seconds == 0)
    end_task(s, s->n_running - 1);
  return 0;
}

/* Starts all that can start, until nothing more can. */
static int start_tasks(struct pen_simulate *s)
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
        int rc = start_task(s, next);
        if (rc < 0)
          return rc;
        any = true;
      }
    }
  }
  return 0;
}

/* Drives on which bytes go both ways now are dearer, or cheaper. */
static void mix_drives(struct pen_simulate *s)
{
  const struct pen_machine *m = s->options.demand.machine;
  for (size_t d = 0; d < m->n_drives; d++) {
    size_t first = PEN_RESOURCE_DRIVES + d * PEN_DRIVE_RESOURCES;
    bool reads = false, writes = false;
    for (size_t i = 0; i < s->n_running; i++) {
      const struct running *r = &s->running[i];
      reads |= r->delay_s <= 0 && r->demand.share.part[first + PEN_DRIVE_READ] > 0;
      writes |= r->delay_s <= 0 && r->demand.share.part[first + PEN_DRIVE_WRITE] > 0;
    }
    double factor = reads && writes ? pen_demand_mixing(&m->drives[d]) : 1;
    for (size_t i = 0; i < s->n_running; i++) {
      double *part = s->running[i].demand.share.part + first;
      part[PEN_DRIVE_BOTH] =
          factor * (part[PEN_DRIVE_READ] + part[PEN_DRIVE_WRITE]);
    }
  }
}

/* Speeds of the running tasks; those still in their latency take nothing. */
static void set_speeds(struct pen_simulate *s, double *speeds)
{
  const struct pen_share_demand *demands[RUNNING_MAX];
  double shared[RUNNING_MAX];
  size_t n = 0;
  mix_drives(s);
  for (size_t i = 0; i < s->n_running; i++)
    if (s->running[i].delay_s <= 0)
      demands[n++] = &s->running[i].demand.share;
  pen_share_speeds(demands, n, s->result.n_resources, shared);
  n = 0;
  for (size_t i = 0; i < s->n_running; i++)
    speeds[i] = s->running[i].delay_s <= 0 ? shared[n++] : 0;
}

static double seconds_left(const struct running *r, double speed)
{
  return r->delay_s > 0 ? r->delay_s : r->left * r->demand.seconds / speed;
}

/* Counts what is used during dt at these speeds. */
static void count(struct pen_simulate *s, const double *speeds, double dt)
{
  bool busy[PEN_LANES] = {false};
  for (size_t i = 0; i < s->n_running; i++) {
    const struct running *r = &s->running[i];
    busy[s->schedule->tasks[r->task].lane] = true;
    for (size_t n = 0; n < s->result.n_resources; n++)
      s->result.load[n] += dt * speeds[i] * r->demand.share.part[n];
  }
  for (int lane = 0; lane < PEN_LANES; lane++)
    if (busy[lane])
      s->result.busy_seconds[lane] += dt;
}

/* Moves the clock to the next end of a task or of a latency. */
static void advance(struct pen_simulate *s)
{
  double speeds[RUNNING_MAX], dt = INFINITY;
  set_speeds(s, speeds);
  for (size_t i = 0; i < s->n_running; i++)
    dt = fmin(dt, seconds_left(&s->running[i], speeds[i]));
  count(s, speeds, dt);
  s->now_s += dt;
  for (size_t i = s->n_running; i-- > 0;) {
    struct running *r = &s->running[i];
    bool waits = r->delay_s > 0;
    bool over = seconds_left(r, speeds[i]) <= dt * (1 + SAME);
    if (waits)
      r->delay_s = over ? 0 : r->delay_s - dt;
    else
      r->left -= dt * speeds[i] / r->demand.seconds;
    if (over && (!waits || r->demand.seconds == 0))
      end_task(s, i);
  }
}

/* What no sharing can make shorter. */
static double least_seconds(const struct pen_simulate *s)
{
  double least = s->result.critical_seconds;
  for (size_t r = 0; r < s->result.n_resources; r++)
    least = fmax(least, s->result.least_seconds[r]);
  return least;
}

static int run_together(struct pen_simulate *s, double enough_s)
{
  int rc = start_tasks(s);
  while (rc == 0 && s->n_running && s->now_s < enough_s) {
    advance(s);
    rc = start_tasks(s);
  }
  if (s->now_s >= enough_s)
    return rc;
  for (int lane = 0; rc == 0 && lane < PEN_LANES; lane++)
    if (s->lanes[lane].retired < s->schedule->n_tickets[lane])
      rc = pen_error_set(PEN_ESCHEDULE, "lane %s stands at ticket %u of %u",
                         pen_lane_name((enum pen_lane)lane),
                         s->lanes[lane].retired,
                         s->schedule->n_tickets[lane]);
  return rc;
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
  split_drives(s, n_resources);
  r->seconds = s->now_s;
  for (size_t n = 0; n < r->n_resources; n++) {
    r->load[n] = r->seconds > 0 ? r->load[n] / r->seconds : 0;
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
  s->now_s = 0;
  s->n_running = 0;
  s->result = (struct pen_simulate_result){
      .n_resources = pen_demand_n_resources(s->options.demand.machine)};
  memset(s->lanes, 0, sizeof s->lanes);
  memset(s->complete, 0, schedule->n_tasks * sizeof *s->complete);
  int rc = run_alone(s);
  if (rc == 0 && least_seconds(s) >= enough)
    s->now_s = least_seconds(s);
  else if (rc == 0)
    rc = run_together(s, enough);
  if (rc < 0)
    return rc;
  finish(s, n_resources);
  *ret_result = s->result;
  return 0;
}
