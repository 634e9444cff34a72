/* demands.c: a hash table from a task's cost to its demand.
 *
 * What pen_demand_of reads of a task is its key.  One thread.  Disadvantage: kinds
 * of tasks that cost the same have a demand each. */
#include "offload/demands.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

int pen_demands_init(struct pen_demands *demands, size_t max_tasks)
{
  struct pen_demands d = {.max = 64, .table_size = 64};
  while (d.table_size < 2 * max_tasks)
    d.table_size *= 2;
  d.all = malloc(d.max * sizeof *d.all);
  d.first = malloc(d.max * sizeof *d.first);
  d.table = malloc(d.table_size * sizeof *d.table);
  *demands = d;
  if (d.all && d.first && d.table)
    return 0;
  pen_demands_done(demands);
  return pen_error_set(PEN_ENOFIT, "no memory for the demands of %zu tasks",
                       max_tasks);
}

void pen_demands_done(struct pen_demands *demands)
{
  free(demands->all);
  free(demands->first);
  free(demands->table);
  *demands = (struct pen_demands){.n = 0};
}

void pen_demands_clear(struct pen_demands *demands)
{
  memset(demands->table, 0, demands->table_size * sizeof *demands->table);
  demands->all[PEN_DEMANDS_NONE] = (struct pen_demand){0};
  demands->n = 1;
}

static bool is_same(const struct pen_task *a, const struct pen_task *b)
{
  return a->lane == b->lane && a->kind == b->kind &&
         memcmp(&a->cost, &b->cost, sizeof a->cost) == 0;
}

static size_t hash(const struct pen_task *task)
{
  uint64_t words[sizeof task->cost / sizeof(uint64_t)];
  uint64_t h = (uint64_t)task->kind * PEN_LANES + (uint64_t)task->lane;
  memcpy(words, &task->cost, sizeof words);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    h = (h ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 32;
  }
  return (size_t)h;
}

static int grow(struct pen_demands *d)
{
  struct pen_demand *all = realloc(d->all, 2 * d->max * sizeof *all);
  const struct pen_task **first = NULL;
  if (all) {
    d->all = all;
    first = realloc(d->first, 2 * d->max * sizeof *first);
  }
  if (!first)
    return pen_error_set(PEN_ENOFIT, "no memory for %zu demands of tasks",
                         2 * d->max);
  d->first = first;
  d->max *= 2;
  return 0;
}

int pen_demands_find(struct pen_demands *demands,
                     const struct pen_demand_options *options,
                     const struct pen_task *task, uint32_t *ret_number)
{
  struct pen_demands *d = demands;
  size_t at = hash(task) % d->table_size;
  while (d->table[at] && !is_same(d->first[d->table[at]], task))
    at = (at + 1) % d->table_size;
  if (!d->table[at]) {
    int rc = d->n == d->max ? grow(d) : 0;
    if (rc == 0)
      rc = pen_demand_of(options, task, &d->all[d->n]);
    if (rc < 0)
      return rc;
    d->first[d->n] = task;
    d->table[at] = (uint32_t)d->n++;
  }
  *ret_number = d->table[at];
  return 0;
}
