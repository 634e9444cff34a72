/* clock.c: from event to event, the tasks in flight share the machine.
 *
 * Of each demand that runs there are two queues: tasks in their latency, which
 * take nothing yet, and tasks at work, of which each does the same share of its
 * work in the same time.  Pure and deterministic; one thread.  Disadvantage: a
 * machine on which every task's demand is another one is no faster for it. */
#include "offload/clock.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"

#define SAME 1e-12 /* of a moment: it is that one */

struct pen_clock_task {
  uint32_t next; /* of its queue */
  double begin_s;
  double until; /* in its latency: seconds; at work: its work's `done` */
};

struct queue {
  uint32_t first, last;
  size_t n;
};

struct pen_clock_work {
  const struct pen_demand *demand;
  struct pen_share_demand share; /* as the drives mix now */
  struct queue waiting, active;
  double done; /* of its work each active task would have by now, since there is
                  one */
  double per_s; /* of that, now */
};

int pen_clock_init(struct pen_clock *clock, size_t max_tasks)
{
  *clock = (struct pen_clock){
      .tasks = malloc((max_tasks ? max_tasks : 1) * sizeof *clock->tasks)};
  return clock->tasks ? 0
                      : pen_error_set(PEN_ENOFIT,
                                      "no memory for a clock of %zu tasks",
                                      max_tasks);
}

void pen_clock_done(struct pen_clock *clock)
{
  free(clock->works);
  free(clock->tasks);
  *clock = (struct pen_clock){.works = NULL};
}

int pen_clock_start(struct pen_clock *clock, const struct pen_demand *demands,
                    size_t n_demands, const struct pen_machine *machine)
{
  if (n_demands > clock->max_works) {
    free(clock->works);
    clock->works = malloc(n_demands * sizeof *clock->works);
    clock->max_works = clock->works ? n_demands : 0;
  }
  if (!clock->works)
    return pen_error_set(PEN_ENOFIT, "no memory for a clock of %zu demands",
                         n_demands);
  clock->machine = machine;
  clock->n_resources = pen_demand_n_resources(machine);
  clock->now_s = 0;
  clock->n_running = clock->n_live = 0;
  for (size_t r = 0; r < clock->n_resources; r++)
    clock->used_s[r] = 0;
  for (size_t i = 0; i < n_demands; i++)
    clock->works[i] = (struct pen_clock_work){.demand = &demands[i],
                                              .share = demands[i].share};
  return 0;
}

double pen_clock_began(const struct pen_clock *clock, uint32_t task)
{
  return clock->tasks[task].begin_s;
}

/* ---- queues ---- */

static void append(struct pen_clock *c, struct queue *q, uint32_t task,
                   double until)
{
  if (q->n++)
    c->tasks[q->last].next = task;
  else
    q->first = task;
  q->last = task;
  c->tasks[task].until = until;
}

static uint32_t take_first(struct pen_clock *c, struct queue *q)
{
  uint32_t task = q->first;
  q->first = c->tasks[task].next;
  q->n--;
  return task;
}

static bool is_over(const struct pen_clock *c, const struct queue *q, double now)
{
  return q->n && c->tasks[q->first].until <= now * (1 + SAME);
}

static void go_to_work(struct pen_clock *c, struct pen_clock_work *w,
                       uint32_t task)
{
  if (!w->active.n)
    w->done = 0;
  append(c, &w->active, task, w->done + 1);
}

void pen_clock_begin(struct pen_clock *clock, uint32_t task, uint32_t demand)
{
  struct pen_clock_work *w = &clock->works[demand];
  clock->tasks[task].begin_s = clock->now_s;
  clock->n_running++;
  if (!w->waiting.n && !w->active.n)
    clock->live[clock->n_live++] = demand;
  if (w->demand->delay_s > 0)
    append(clock, &w->waiting, task, clock->now_s + w->demand->delay_s);
  else
    go_to_work(clock, w, task);
}

/* ---- speeds ---- */

/* Drives on which bytes go both ways now are dearer, or cheaper. */
static void mix_drives(struct pen_clock *c, struct pen_clock_work *const *active,
                       size_t n)
{
  for (size_t d = 0; d < c->machine->n_drives; d++) {
    size_t first = PEN_RESOURCE_DRIVES + d * PEN_DRIVE_RESOURCES;
    bool reads = false, writes = false;
    for (size_t i = 0; i < n; i++) {
      reads |= active[i]->share.part[first + PEN_DRIVE_READ] > 0;
      writes |= active[i]->share.part[first + PEN_DRIVE_WRITE] > 0;
    }
    double factor =
        reads && writes ? pen_demand_mixing(&c->machine->drives[d]) : 1;
    for (size_t i = 0; i < n; i++) {
      double *part = active[i]->share.part + first;
      part[PEN_DRIVE_BOTH] =
          factor * (part[PEN_DRIVE_READ] + part[PEN_DRIVE_WRITE]);
    }
  }
}

/* Of all that are at work, which are so many. */
static size_t set_speeds(struct pen_clock *c,
                         struct pen_clock_work *active[PEN_CLOCK_RUNNING_MAX])
{
  struct pen_share_group groups[PEN_CLOCK_RUNNING_MAX];
  size_t n = 0;
  for (size_t i = 0; i < c->n_live; i++)
    if (c->works[c->live[i]].active.n)
      active[n++] = &c->works[c->live[i]];
  mix_drives(c, active, n);
  for (size_t i = 0; i < n; i++)
    groups[i] = (struct pen_share_group){&active[i]->share, active[i]->active.n,
                                         0};
  pen_share_speeds(groups, n, c->n_resources);
  for (size_t i = 0; i < n; i++)
    active[i]->per_s = groups[i].speed / active[i]->demand->seconds;
  return n;
}

/* ---- time ---- */

static double next_event(const struct pen_clock *c)
{
  double dt = INFINITY;
  for (size_t i = 0; i < c->n_live; i++) {
    const struct pen_clock_work *w = &c->works[c->live[i]];
    if (w->waiting.n)
      dt = fmin(dt, c->tasks[w->waiting.first].until - c->now_s);
    if (w->active.n)
      dt = fmin(dt, (c->tasks[w->active.first].until - w->done) / w->per_s);
  }
  return fmax(dt, 0);
}

static void pass(struct pen_clock *c, struct pen_clock_work *const *active,
                 size_t n, double dt)
{
  c->now_s += dt;
  for (size_t i = 0; i < n; i++) {
    struct pen_clock_work *w = active[i];
    double full_s = dt * w->per_s * w->demand->seconds * (double)w->active.n;
    for (size_t r = 0; r < c->n_resources; r++)
      c->used_s[r] += full_s * w->share.part[r];
    w->done += dt * w->per_s;
  }
}

/* Moves on what is over; the ended tasks are so many. */
static size_t settle(struct pen_clock *c)
{
  size_t n_ended = 0;
  for (size_t i = c->n_live; i-- > 0;) {
    struct pen_clock_work *w = &c->works[c->live[i]];
    while (is_over(c, &w->active, w->done))
      c->ended[n_ended++] = take_first(c, &w->active);
    while (is_over(c, &w->waiting, c->now_s)) {
      uint32_t task = take_first(c, &w->waiting);
      if (w->demand->seconds > 0)
        go_to_work(c, w, task);
      else
        c->ended[n_ended++] = task;
    }
    if (!w->waiting.n && !w->active.n)
      c->live[i] = c->live[--c->n_live];
  }
  return n_ended;
}

size_t pen_clock_advance(struct pen_clock *clock, const uint32_t **ret_ended)
{
  struct pen_clock_work *active[PEN_CLOCK_RUNNING_MAX];
  size_t n = set_speeds(clock, active);
  pass(clock, active, n, next_event(clock));
  size_t n_ended = settle(clock);
  clock->n_running -= n_ended;
  *ret_ended = clock->ended;
  return n_ended;
}
