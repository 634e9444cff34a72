/* check_slots.c: the part of the proof that is about what lies in slots: walks each
 * one's uses in the order of the schedule, for every decision of the guards.
 *
 * Main thread. */
#include <string.h>

#include "offload/check_part.h"

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
  pen_check_merge(y->before, y->uses);
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
    return pen_check_bad_use(s, l, id, a, "reads what nothing filled");
  if (!is_done(c->known[id], y->writers))
    return pen_check_bad_use(s, l, id, a, "reads before the fill is certainly done");
  if (a->mode == PEN_ACCESS_READ && !home && !y->whole &&
      !covers(c, s, y, t, a, decision))
    return pen_check_bad_use(s, l, id, a, "reads bytes that nothing filled");
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
      return pen_check_bad_use(s, l, c->owner[number], a,
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
    return pen_check_bad_use(s, l, id, a, "uses content that is already gone");
  if (a->generation > y->generation + 1 ||
      (a->generation > y->generation && a->mode == PEN_ACCESS_READ))
    return pen_check_bad_use(s, l, id, a, "uses content that nothing makes");
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
    return pen_check_bad_use(s, l, id, a, "refills it while its old content is in use");
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
  return pen_check_bad_use(s, l, c->owner[y->first_writer],
                 &s->accesses[y->first_writer],
                 "leaves a part of a shadow as it was");
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

int pen_check_slots(struct pen_check *check, const struct pen_layout *layout,
                    const struct pen_schedule *schedule,
                    const struct pen_carry *before)
{
  bool redo = false;
  link_uses(check, schedule);
  for (size_t i = 0; i < schedule->n_tasks; i++)
    redo |= schedule->tasks[i].guard == PEN_GUARD_REDO;
  for (int d = PEN_GUARD_APPLY; d <= (redo ? PEN_GUARD_REDO : PEN_GUARD_SKIP);
       d++)
    for (uint32_t slot = 0; slot < check->n_slots; slot++) {
      int rc = check_slot(check, layout, schedule, before, slot, d);
      if (rc < 0)
        return rc;
    }
  return 0;
}
