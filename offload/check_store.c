/* check_store.c: the part of the proof that is about tiles in the store, whose
 * extents are no slots.
 *
 * Main thread.  Disadvantage: which bytes of a tile are there is known by halves
 * and the rest, not by range. */
#include <string.h>

#include "offload/check_part.h"

static bool writes_whole(const struct pen_layout *l, const struct pen_task *t)
{
  return t->cost.nvme_bytes == pen_layout_image_bytes(l, &l->tiles[t->tile]);
}

/* What a commit vouches for must be on the drives before it starts. */
static int check_commits(const struct pen_check *c,
                         const struct pen_schedule *s)
{
  for (uint32_t i = 0; i < s->n_tasks; i++)
    if (s->tasks[i].kind == PEN_TASK_COMMIT &&
        c->known[i][PEN_LANE_WRITE] < s->tasks[i].ticket - 1)
      return pen_check_bad_task(s, i,
                                "commits before every write is certainly done");
  return 0;
}

/* What may come to be a tile must be new all over, with its halves. */
static int check_aside(const struct pen_layout *l, const struct pen_schedule *s)
{
  size_t n = 0;
  uint32_t any = PEN_NONE;
  for (uint32_t i = 0; i < s->n_tasks; i++) {
    const struct pen_task *t = &s->tasks[i];
    n += t->kind == PEN_TASK_WRITE_ASIDE && writes_whole(l, t);
    if (s->tasks[i].kind == PEN_TASK_SPECULATE)
      any = i;
  }
  if (any == PEN_NONE || n == l->n_speculative_store_tiles)
    return 0;
  return pen_check_bad_task(
      s, any, "not every tile of the store is written aside, whole");
}

/* Extents of a store are no slots: whoever reads a tile waits for its write. */
static int check_tiles(struct pen_check *c, const struct pen_layout *l,
                       const struct pen_schedule *s)
{
  memset(c->written, 0, l->n_tiles * sizeof *c->written);
  for (uint32_t i = 0; i < s->n_tasks; i++) {
    const struct pen_task *t = &s->tasks[i];
    if (t->kind == PEN_TASK_WRITE_TILE || t->kind == PEN_TASK_WRITE_HALVES)
      c->written[t->tile] = t->ticket;
    if (t->kind == PEN_TASK_READ_TILE &&
        c->known[i][PEN_LANE_WRITE] < c->written[t->tile])
      return pen_check_bad_task(
          s, i, "reads a tile before its write is certainly done");
  }
  return 0;
}

/* A tile that a commit names has its halves: those with which it was written, or
 * which came later.  These come behind a head that no commit has yet: a kill must
 * find what was committed as it was. */
static int check_halves(struct pen_check *c, const struct pen_layout *l,
                        const struct pen_schedule *s,
                        const struct pen_carry *before, enum pen_guard decision)
{
  bool stands = before->speculated && decision == PEN_GUARD_APPLY;
  for (size_t i = 0; i < l->n_tiles; i++) {
    const struct pen_tile *tile = &l->tiles[i];
    bool was_aside = stands && l->weight_shadow[tile->block] != PEN_NONE;
    c->is_whole[i] = !before->halves_due || tile->state_home != PEN_NONE ||
                     !pen_layout_half_is_weight(l, tile) || was_aside;
    c->is_open[i] = before->halves_due || was_aside;
  }
  for (uint32_t i = 0; i < s->n_tasks; i++) {
    const struct pen_task *t = &s->tasks[i];
    if (!pen_check_is_certain(t, decision))
      continue;
    if (t->kind == PEN_TASK_WRITE_HALVES && !c->is_open[t->tile])
      return pen_check_bad_task(
          s, i, "adds halves to a tile that a commit has as it is");
    if (t->kind == PEN_TASK_WRITE_TILE) {
      c->is_whole[t->tile] = writes_whole(l, t);
      c->is_open[t->tile] = true;
    }
    if (t->kind == PEN_TASK_WRITE_HALVES)
      c->is_whole[t->tile] = true;
    for (size_t k = 0; t->kind == PEN_TASK_COMMIT && k < l->n_tiles; k++) {
      if (!c->is_whole[k])
        return pen_check_bad_task(
            s, i, "commits a tile whose halves are not in the store");
      c->is_open[k] = false;
    }
  }
  return 0;
}

int pen_check_store(struct pen_check *check, const struct pen_layout *layout,
                    const struct pen_schedule *schedule,
                    const struct pen_carry *before)
{
  int rc = check_commits(check, schedule);
  if (rc == 0)
    rc = check_tiles(check, layout, schedule);
  if (rc == 0)
    rc = check_aside(layout, schedule);
  for (int d = PEN_GUARD_APPLY; rc == 0 && d <= PEN_GUARD_REDO; d++)
    rc = check_halves(check, layout, schedule, before, (enum pen_guard)d);
  return rc;
}
