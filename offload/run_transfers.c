/* run_transfers.c: the read and write lanes, with several transfers in flight.
 *
 * Tasks are issued in order as soon as what they wait for is retired, and
 * retired in order however the drive finishes them; a commit and a save are
 * done here too, when nothing is in flight before them.  Its lane's thread.
 * Disadvantage: a task whose wait is over is only noticed when a transfer in
 * flight completes. */
#include <errno.h>

#include "base/clock.h"
#include "offload/run_lanes.h"

#define IN_FLIGHT_MAX 64

/* The window of issued, not yet retired tasks: tickets (retired, issued]. */
struct window {
  uint32_t issued, retired;
  bool complete[IN_FLIGHT_MAX]; /* by ticket modulo IN_FLIGHT_MAX */
  uint64_t begin_ns[IN_FLIGHT_MAX];
  size_t in_flight;
  uint64_t busy_from_ns; /* since when any is */
};

static int submit(struct pen_run_lane *lane, const struct pen_task *t)
{
  struct pen_run *run = lane->run;
  const struct pen_access *a = &run->schedule.accesses[t->first_access];
  void *at[PEN_TASK_ACCESSES_MAX];
  pen_run_addresses(run, t, at);
  const struct pen_tile *tile =
      t->tile == PEN_NONE ? NULL : &run->o.layout->tiles[t->tile];
  const uint64_t *offset = run->offset;
  switch (t->kind) {
  case PEN_TASK_READ:
    return pen_store_read_scratch(lane->queue, offset[a[0].slot] + a[0].offset,
                                  at[1], a[0].bytes, t->ticket);
  case PEN_TASK_WRITE:
    return pen_store_write_scratch(lane->queue, offset[a[1].slot] + a[1].offset,
                                   at[0], a[1].bytes, t->ticket);
  case PEN_TASK_READ_TILE:
    return pen_store_read_tile(lane->queue, tile->store_tile, at[0],
                               a[0].bytes, t->ticket);
  case PEN_TASK_WRITE_HALVES:
    return pen_store_write_rest(lane->queue, tile->store_tile, at[0],
                                a[0].bytes,
                                pen_layout_half_offset(run->o.layout, tile),
                                t->ticket);
  default:
    return (t->kind == PEN_TASK_WRITE_ASIDE ? pen_store_write_aside
                                            : pen_store_write_tile)(
        lane->queue, tile->store_tile, at[0], a[0].bytes,
        pen_layout_half_offset(run->o.layout, tile), t->ticket);
  }
}

static void retire(struct pen_run_lane *lane, struct window *w)
{
  bool any = false;
  while (w->retired < w->issued && w->complete[(w->retired + 1) % IN_FLIGHT_MAX]) {
    w->retired++;
    any = true;
  }
  if (any)
    pen_ticket_retire(&lane->progress, w->retired);
}

static void complete(struct pen_run_lane *lane, struct window *w,
                     uint32_t ticket)
{
  struct pen_run *run = lane->run;
  const struct pen_task *t = pen_run_nth(run, lane->lane, ticket - 1);
  pen_poison_release(&run->poison, &run->schedule, t);
  pen_run_record(lane, t, w->begin_ns[ticket % IN_FLIGHT_MAX]);
  w->complete[ticket % IN_FLIGHT_MAX] = true;
  if (--w->in_flight == 0)
    lane->busy_ns += pen_clock_ns() - w->busy_from_ns;
}

static int reap(struct pen_run_lane *lane, struct window *w)
{
  uint64_t tags[IN_FLIGHT_MAX];
  int n = pen_store_reap(lane->queue, 1, IN_FLIGHT_MAX, tags);
  for (int i = 0; i < n; i++)
    complete(lane, w, (uint32_t)tags[i]);
  retire(lane, w);
  return n < 0 ? n : 0;
}

/* Issues the next task: hands a transfer to the engine, does the rest here. */
static int issue(struct pen_run_lane *lane, struct window *w,
                 const struct pen_task *t)
{
  struct pen_run *run = lane->run;
  uint32_t at = t->ticket % IN_FLIGHT_MAX;
  w->begin_ns[at] = pen_clock_ns();
  w->complete[at] = false;
  if (pen_task_is_transfer(t) && pen_run_is_on(run, t)) {
    pen_poison_acquire(&run->poison, &run->schedule, t);
    int rc = submit(lane, t);
    if (rc < 0) {
      pen_poison_release(&run->poison, &run->schedule, t);
      return rc;
    }
    w->issued = t->ticket;
    if (w->in_flight++ == 0)
      w->busy_from_ns = w->begin_ns[at];
    return 0;
  }
  int rc = pen_task_is_transfer(t) ? 0 : pen_run_task(run, t);
  if (rc < 0)
    return rc;
  w->issued = t->ticket;
  w->complete[at] = true;
  if (pen_run_is_on(run, t)) {
    pen_run_record(lane, t, w->begin_ns[at]);
    if (w->in_flight == 0)
      lane->busy_ns += pen_clock_ns() - w->begin_ns[at];
  }
  retire(lane, w);
  return 0;
}

static bool may_start(struct pen_run *run, const struct pen_task *t)
{
  for (int lane = 0; lane < PEN_LANES; lane++)
    if (t->wait[lane] &&
        !pen_ticket_reached(&run->lanes[lane].progress, t->wait[lane]))
      return false;
  return true;
}

int pen_run_transfers(struct pen_run_lane *lane)
{
  struct pen_run *run = lane->run;
  struct window w = {0};
  uint32_t n = run->schedule.n_tickets[lane->lane];
  size_t depth = run->o.io_depth < IN_FLIGHT_MAX ? run->o.io_depth : IN_FLIGHT_MAX;
  int rc = 0;
  while (rc == 0 && w.retired < n) {
    const struct pen_task *next =
        w.issued < n ? pen_run_nth(run, lane->lane, w.issued) : NULL;
    bool room = w.in_flight < depth && w.issued - w.retired < IN_FLIGHT_MAX;
    if (next && room && may_start(run, next))
      rc = issue(lane, &w, next);
    else if (w.in_flight)
      rc = reap(lane, &w);
    else if (!pen_run_wait(run, next))
      rc = -PEN_ESTOPPED;
  }
  /* A failed reap does not say whose transfers it took back; and nothing may be
   * written into slots after we return. */
  if (rc < 0)
    pen_store_queue_drain(lane->queue);
  return rc;
}
