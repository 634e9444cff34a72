/* check.c: the proof that a schedule's waits are enough.
 *
 * Each task gets a vector: per lane, the last ticket certainly retired when it
 * starts.  "Done before" is then one comparison, and a slot's uses need one walk
 * in the order of the schedule.  Lanes retire in order, also the wide ones, so
 * the vector says all there is to say.  Main thread; allocates only in init.
 * Disadvantage: a hazard is told for the first pair found, not for all. */
#include "offload/check_part.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

int pen_check_init(struct pen_check *check, const struct pen_layout *layout,
                   size_t max_tasks, size_t max_accesses)
{
  struct pen_check c = {.max_tasks = max_tasks,
                        .max_accesses = max_accesses,
                        .n_slots = layout->n_slots};
  size_t t = max_tasks ? max_tasks : 1, a = max_accesses ? max_accesses : 1;
  c.known = calloc(t, sizeof *c.known);
  c.after = calloc(t, sizeof *c.after);
  c.order = calloc(t, sizeof *c.order);
  c.owner = calloc(a, sizeof *c.owner);
  c.next = calloc(a, sizeof *c.next);
  c.first_use = calloc(c.n_slots, sizeof *c.first_use);
  c.last_use = calloc(c.n_slots, sizeof *c.last_use);
  c.is_updated = calloc(layout->n_tiles + 1, sizeof *c.is_updated);
  c.written = calloc(layout->n_tiles + 1, sizeof *c.written);
  c.is_whole = calloc(layout->n_tiles + 1, sizeof *c.is_whole);
  c.is_open = calloc(layout->n_tiles + 1, sizeof *c.is_open);
  bool whole = c.known && c.after && c.order && c.owner && c.next &&
               c.first_use && c.last_use && c.is_updated && c.written &&
               c.is_whole && c.is_open;
  for (int lane = 0; lane < PEN_LANES; lane++)
    whole &= (c.by_ticket[lane] = calloc(t, sizeof(uint32_t))) != NULL;
  *check = c;
  if (whole)
    return 0;
  pen_check_done(check);
  return pen_error_set(PEN_ENOFIT, "no memory to check %zu tasks", max_tasks);
}

void pen_check_done(struct pen_check *check)
{
  if (!check)
    return;
  free(check->known);
  free(check->after);
  free(check->order);
  free(check->owner);
  free(check->next);
  free(check->first_use);
  free(check->last_use);
  free(check->is_updated);
  free(check->written);
  free(check->is_whole);
  free(check->is_open);
  for (int lane = 0; lane < PEN_LANES; lane++)
    free(check->by_ticket[lane]);
  *check = (struct pen_check){0};
}

int pen_check_bad_task(const struct pen_schedule *s, uint32_t id,
                       const char *what)
{
  const struct pen_task *t = &s->tasks[id];
  return pen_error_set(PEN_ESCHEDULE,
                       "schedule: task %u (%s on %s, block %d, micro-batch "
                       "%d): %s",
                       id, pen_task_name(t->kind), pen_lane_name(t->lane),
                       (int)t->block, (int)t->micro, what);
}

static int bad_use(const struct pen_schedule *s, const struct pen_layout *l,
                   uint32_t id, const struct pen_access *a, const char *what)
{
  const struct pen_task *t = &s->tasks[id];
  return pen_error_set(PEN_ESCHEDULE,
                       "schedule: task %u (%s on %s, block %d, micro-batch "
                       "%d) and slot %u (%s, generation %u): %s",
                       id, pen_task_name(t->kind), pen_lane_name(t->lane),
                       (int)t->block, (int)t->micro, a->slot,
                       l->slots[a->slot].purpose, a->generation, what);
}

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

static void merge(uint32_t into[PEN_LANES], const uint32_t from[PEN_LANES])
{
  for (int lane = 0; lane < PEN_LANES; lane++)
    if (from[lane] > into[lane])
      into[lane] = from[lane];
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
    merge(known, pen_lane_is_wide(t->lane) ? c->known[previous]
                                           : c->after[previous]);
  for (int lane = 0; lane < PEN_LANES; lane++)
    if (t->wait[lane])
      merge(known, c->after[c->by_ticket[lane][t->wait[lane] - 1]]);
  memcpy(after, known, sizeof c->after[id]);
  if (previous != PEN_NONE)
    merge(after, c->after[previous]);
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

bool pen_check_is_certain(const struct pen_task *t, enum pen_guard decision)
{
  return t->guard == PEN_GUARD_ALWAYS || t->guard == decision ||
         (t->guard == PEN_GUARD_APPLY && decision == PEN_GUARD_REDO);
}

/* Can the task run, whatever is routed? */
static bool possible(const struct pen_task *t, enum pen_guard decision)
{
  return pen_check_is_certain(t, decision) || t->guard == PEN_GUARD_ROUTED;
}

/* Does `writer` certainly run where `reader` does?  ROUTED is the same for an
 * expert throughout its group. */
static bool runs_with(const struct pen_task *writer,
                      const struct pen_task *reader, enum pen_guard decision)
{
  return pen_check_is_certain(writer, decision) ||
         (writer->guard == PEN_GUARD_ROUTED &&
          reader->guard == PEN_GUARD_ROUTED && writer->block == reader->block &&
          writer->group == reader->group);
}

/* A slot's story so far, in the order of the schedule. */
struct story {
  uint32_t generation;
  uint32_t before[PEN_LANES];  /* last uses of earlier generations */
  uint32_t writers[PEN_LANES]; /* of this generation */
  uint32_t uses[PEN_LANES];    /* of this generation, writers too */
  uint32_t first_writer;       /* access number; PEN_NONE: none yet */
  enum pen_lane lane;          /* of the writers so far, where it is one lane */
  bool in_order;               /* it is, and one that works in order */
  bool filled;                 /* by a certain writer, or carried in */
  bool whole;                  /* all of it: carried in, or changed in place */
  uint32_t routed;             /* task that fills it if its expert is routed to;
                                  PEN_NONE: none */
};

static bool is_done(const uint32_t known[PEN_LANES],
                    const uint32_t tickets[PEN_LANES])
{
  for (int lane = 0; lane < PEN_LANES; lane++)
    if (tickets[lane] > known[lane])
      return false;
  return true;
}

static void next_generation(struct story *y, uint32_t generation)
{
  merge(y->before, y->uses);
  memset(y->writers, 0, sizeof y->writers);
  memset(y->uses, 0, sizeof y->uses);
  y->first_writer = PEN_NONE;
  y->routed = PEN_NONE;
  y->generation = generation;
}

static void note(uint32_t tickets[PEN_LANES], const struct pen_task *t)
{
  if (t->ticket > tickets[t->lane])
    tickets[t->lane] = t->ticket;
}

/* Do the writers of this generation that run with the reader cover what it
 * reads?  Grows the covered prefix until nothing adds to it. */
static bool covers(const struct pen_check *c, const struct pen_schedule *s,
                   const struct story *y, const struct pen_task *reader,
                   const struct pen_access *a, enum pen_guard decision)
{
  uint64_t covered = a->offset, end = a->offset + a->bytes;
  for (bool moved = true; moved && covered < end;) {
    moved = false;
    for (uint32_t i = y->first_writer; i != PEN_NONE; i = c->next[i]) {
      const struct pen_access *w = &s->accesses[i];
      if (w->generation != y->generation)
        break;
      if (w->mode == PEN_ACCESS_READ ||
          !runs_with(&s->tasks[c->owner[i]], reader, decision))
        continue;
      if (w->offset <= covered && w->offset + w->bytes > covered) {
        covered = w->offset + w->bytes;
        moved = true;
      }
    }
  }
  return covered >= end;
}

static int check_read(struct pen_check *c, const struct pen_layout *l,
                      const struct pen_schedule *s, struct story *y,
                      uint32_t id, const struct pen_access *a,
                      enum pen_guard decision)
{
  bool home = l->slots[a->slot].home;
  const struct pen_task *t = &s->tasks[id];
  if (!y->filled && (y->routed == PEN_NONE ||
                     !runs_with(&s->tasks[y->routed], t, decision)))
    return bad_use(s, l, id, a, "reads what nothing filled");
  if (!is_done(c->known[id], y->writers))
    return bad_use(s, l, id, a, "reads before the fill is certainly done");
  if (a->mode == PEN_ACCESS_READ && !home && !y->whole &&
      !covers(c, s, y, t, a, decision))
    return bad_use(s, l, id, a, "reads bytes that nothing filled");
  return 0;
}

/* Writers of the same bytes of one generation must follow one another, unless
 * the guards let only one of them run. */
static int check_siblings(struct pen_check *c, const struct pen_layout *l,
                          const struct pen_schedule *s, const struct story *y,
                          uint32_t number, enum pen_guard decision)
{
  const struct pen_access *a = &s->accesses[number];
  for (uint32_t i = y->first_writer; i != PEN_NONE && i != number;
       i = c->next[i]) {
    const struct pen_access *w = &s->accesses[i];
    const struct pen_task *t = &s->tasks[c->owner[i]];
    if (w->mode == PEN_ACCESS_READ || !possible(t, decision) ||
        c->owner[i] == c->owner[number])
      continue;
    bool overlap = w->offset < a->offset + a->bytes &&
                   a->offset < w->offset + w->bytes;
    if (overlap && c->known[c->owner[number]][t->lane] < t->ticket)
      return bad_use(s, l, c->owner[number], a,
                     "fills bytes that another task may be filling");
  }
  return 0;
}

static int check_use(struct pen_check *c, const struct pen_layout *l,
                     const struct pen_schedule *s, struct story *y,
                     uint32_t number, enum pen_guard decision)
{
  const struct pen_access *a = &s->accesses[number];
  uint32_t id = c->owner[number];
  const struct pen_task *t = &s->tasks[id];
  bool on = possible(t, decision), in_place = a->mode == PEN_ACCESS_MODIFY;
  int rc = 0;
  if (a->generation < y->generation)
    return bad_use(s, l, id, a, "uses content that is already gone");
  if (a->generation > y->generation + 1 ||
      (a->generation > y->generation && a->mode == PEN_ACCESS_READ))
    return bad_use(s, l, id, a, "uses content that nothing makes");
  bool fresh = a->generation > y->generation;
  if (fresh && in_place && on)
    rc = check_read(c, l, s, y, id, a, decision);
  if (rc < 0)
    return rc;
  if (fresh) {
    /* A change in place that is left out leaves what was there. */
    next_generation(y, a->generation);
    y->whole = in_place && y->whole;
    y->filled = (in_place || l->slots[a->slot].home) && y->filled;
  }
  if (a->mode == PEN_ACCESS_READ) {
    if (on)
      rc = check_read(c, l, s, y, id, a, decision);
    note(y->uses, t);
    return rc;
  }
  if (!is_done(c->known[id], y->before))
    return bad_use(s, l, id, a, "refills it while its old content is in use");
  if (y->first_writer == PEN_NONE) {
    y->first_writer = number;
    y->lane = t->lane;
    y->in_order = !pen_lane_is_wide(t->lane);
  }
  y->in_order = y->in_order && t->lane == y->lane;
  if (on && !y->in_order)
    rc = check_siblings(c, l, s, y, number, decision);
  note(y->uses, t);
  note(y->writers, t);
  y->filled |= pen_check_is_certain(t, decision);
  y->whole |= in_place && y->filled;
  if (t->guard == PEN_GUARD_ROUTED && !in_place)
    y->routed = id;
  return rc;
}

/* A guard must be known when it is asked: its counts are among what the task
 * reads, and so checked to be filled before. */
static int check_routed(const struct pen_layout *l,
                        const struct pen_schedule *s)
{
  for (uint32_t i = 0; i < s->n_tasks; i++) {
    const struct pen_task *t = &s->tasks[i];
    bool reads = t->guard != PEN_GUARD_ROUTED;
    for (uint32_t k = 0; k < t->n_accesses && !reads; k++) {
      const struct pen_access *a = &s->accesses[t->first_access + k];
      reads = a->mode == PEN_ACCESS_READ && t->block != PEN_NONE &&
              a->slot == l->routed_by[t->block];
    }
    if (!reads)
      return pen_check_bad_task(s, i,
                                "does not read the counts its guard looks at");
  }
  return 0;
}

/* What may take its home's place must be new all over. */
static int check_shadow(const struct pen_check *c, const struct pen_layout *l,
                        const struct pen_schedule *s, const struct story *y,
                        uint32_t slot, enum pen_guard decision)
{
  struct pen_task whoever = {.guard = PEN_GUARD_ALWAYS};
  struct pen_access all = {.bytes = l->slots[slot].bytes};
  if (l->slots[slot].shadow_of == PEN_NONE || y->first_writer == PEN_NONE ||
      covers(c, s, y, &whoever, &all, decision))
    return 0;
  return bad_use(s, l, c->owner[y->first_writer],
                 &s->accesses[y->first_writer],
                 "leaves a part of a shadow as it was");
}

/* Each tile once, behind the guard that goes with what was done before. */
static int check_updates(struct pen_check *c, const struct pen_layout *l,
                         const struct pen_schedule *s,
                         const struct pen_carry *before)
{
  size_t n = 0;
  memset(c->is_updated, 0, l->n_tiles * sizeof *c->is_updated);
  for (uint32_t i = 0; i < s->n_tasks; i++) {
    const struct pen_task *t = &s->tasks[i];
    if (t->kind != PEN_TASK_UPDATE)
      continue;
    bool early = before->speculated && l->weight_shadow[t->block] != PEN_NONE;
    if (t->guard != (early ? PEN_GUARD_REDO : PEN_GUARD_APPLY))
      return pen_check_bad_task(
          s, i, "it does not depend on whether it was done early");
    if (t->tile >= l->n_tiles || c->is_updated[t->tile])
      return pen_check_bad_task(s, i, "its tile is updated twice");
    c->is_updated[t->tile] = true;
    n++;
  }
  if (n == (before->pending ? l->n_tiles : 0))
    return 0;
  return pen_error_set(PEN_ESCHEDULE, "schedule: %zu of %zu tiles are updated, "
                       "and an update is %s", n, l->n_tiles,
                       before->pending ? "pending" : "not pending");
}

static void link_uses(struct pen_check *c, const struct pen_schedule *s)
{
  for (size_t i = 0; i < c->n_slots; i++)
    c->first_use[i] = c->last_use[i] = PEN_NONE;
  for (size_t i = 0; i < s->n_tasks; i++) {
    const struct pen_task *t = &s->tasks[i];
    for (uint32_t k = 0; k < t->n_accesses; k++) {
      uint32_t number = t->first_access + k;
      uint32_t slot = s->accesses[number].slot;
      c->owner[number] = (uint32_t)i;
      c->next[number] = PEN_NONE;
      if (c->last_use[slot] == PEN_NONE)
        c->first_use[slot] = number;
      else
        c->next[c->last_use[slot]] = number;
      c->last_use[slot] = number;
    }
  }
}

static int check_slot(struct pen_check *c, const struct pen_layout *l,
                      const struct pen_schedule *s,
                      const struct pen_carry *before, uint32_t slot,
                      enum pen_guard decision)
{
  bool held = l->slots[slot].home || before->object[slot] != PEN_NONE;
  struct story y = {.generation = before->generation[slot],
                    .first_writer = PEN_NONE,
                    .routed = PEN_NONE,
                    .filled = held,
                    .whole = held};
  for (uint32_t i = c->first_use[slot]; i != PEN_NONE; i = c->next[i]) {
    int rc = check_use(c, l, s, &y, i, decision);
    if (rc < 0)
      return rc;
  }
  return check_shadow(c, l, s, &y, slot, decision);
}

int pen_check_schedule(struct pen_check *check,
                       const struct pen_layout *layout,
                       const struct pen_schedule *schedule,
                       const struct pen_carry *before)
{
  if (schedule->n_tasks > check->max_tasks ||
      schedule->n_accesses > check->max_accesses)
    return pen_error_set(PEN_ESCHEDULE,
                         "schedule of %zu tasks, room to check %zu",
                         schedule->n_tasks, check->max_tasks);
  int rc = index_tickets(check, schedule);
  if (rc == 0)
    rc = find_order(check, schedule);
  if (rc == 0)
    rc = check_routed(layout, schedule);
  if (rc == 0)
    rc = pen_check_store(check, layout, schedule, before);
  if (rc == 0)
    rc = check_updates(check, layout, schedule, before);
  if (rc < 0)
    return rc;
  link_uses(check, schedule);
  bool redo = false;
  for (size_t i = 0; i < schedule->n_tasks; i++)
    redo |= schedule->tasks[i].guard == PEN_GUARD_REDO;
  for (int d = PEN_GUARD_APPLY; d <= (redo ? PEN_GUARD_REDO : PEN_GUARD_SKIP);
       d++)
    for (uint32_t slot = 0; slot < check->n_slots; slot++) {
      rc = check_slot(check, layout, schedule, before, slot, d);
      if (rc < 0)
        return rc;
    }
  return 0;
}
