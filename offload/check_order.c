/* check_order.c: the part of the proof that is about when tasks can run: runs all
 * lanes on paper, and notes for each task what is certainly done when it starts.
 *
 * Main thread.  Disadvantage: of a cycle, one task is named. */
#include <string.h>

#include "offload/check_part.h"

/* Tickets of each lane must count 1, 2, 3 ... in the order of the tasks. */
static int index_tickets(struct pen_check *c, const struct pen_schedule *s)
{
  uint32_t n[PEN_LANES] = {0};
  for (size_t i = 0; i < s->n_tasks; i++) {
    const struct pen_task *t = &s->tasks[i];
    if (t->ticket != n[t->lane] + 1)
      return pen_check_bad_task(s, (uint32_t)i, "its ticket is out of order");
    c->by_ticket[t->lane][n[t->lane]++] = (uint32_t)i;
  }
  for (size_t i = 0; i < s->n_tasks; i++)
    for (int lane = 0; lane < PEN_LANES; lane++)
      if (s->tasks[i].wait[lane] > n[lane])
        return pen_check_bad_task(s, (uint32_t)i,
                                  "waits for a ticket nobody has");
  return 0;
}

/* What is certainly retired when task `id` starts, and when it is. */
static void know(struct pen_check *c, const struct pen_schedule *s,
                 uint32_t id)
{
  const struct pen_task *t = &s->tasks[id];
  uint32_t *known = c->known[id], *after = c->after[id];
  memset(known, 0, sizeof c->known[id]);
  uint32_t previous =
      t->ticket > 1 ? c->by_ticket[t->lane][t->ticket - 2] : PEN_NONE;
  if (previous != PEN_NONE)
    pen_check_merge(known, pen_lane_is_wide(t->lane) ? c->known[previous]
                                                     : c->after[previous]);
  for (int lane = 0; lane < PEN_LANES; lane++)
    if (t->wait[lane])
      pen_check_merge(known, c->after[c->by_ticket[lane][t->wait[lane] - 1]]);
  memcpy(after, known, sizeof c->after[id]);
  if (previous != PEN_NONE)
    pen_check_merge(after, c->after[previous]);
  if (after[t->lane] < t->ticket)
    after[t->lane] = t->ticket;
}

static bool can_start(const struct pen_task *t, const uint32_t done[PEN_LANES])
{
  for (int lane = 0; lane < PEN_LANES; lane++)
    if (t->wait[lane] > done[lane])
      return false;
  return true;
}

/* Runs all lanes on paper; stuck lanes are a cycle. */
static int find_order(struct pen_check *c, const struct pen_schedule *s)
{
  uint32_t done[PEN_LANES] = {0};
  size_t n = 0;
  for (bool moved = true; moved && n < s->n_tasks;) {
    moved = false;
    for (int lane = 0; lane < PEN_LANES; lane++)
      while (done[lane] < s->n_tickets[lane]) {
        uint32_t id = c->by_ticket[lane][done[lane]];
        if (!can_start(&s->tasks[id], done))
          break;
        know(c, s, id);
        c->order[n++] = id;
        done[lane]++;
        moved = true;
      }
  }
  if (n == s->n_tasks)
    return 0;
  for (int lane = 0; lane < PEN_LANES; lane++)
    if (done[lane] < s->n_tickets[lane])
      return pen_check_bad_task(s, c->by_ticket[lane][done[lane]],
                                "can never start (its waits form a cycle)");
  return pen_check_bad_task(s, 0, "can never start");
}

int pen_check_order(struct pen_check *check, const struct pen_schedule *schedule)
{
  int rc = index_tickets(check, schedule);
  return rc < 0 ? rc : find_order(check, schedule);
}
