/* search_choice.c: the values that a search tries of each choice, as tables.
 *
 * Pure.  Disadvantage: they are few, and the same for every model and machine. */
#include "src/train/search_choice.h"

#include <string.h>

static size_t list(const size_t *all, size_t n, size_t values[PEN_SEARCH_VALUES_MAX])
{
  memcpy(values, all, n * sizeof *all);
  return n;
}
#define LIST(values, ...)                                                     \
  list((const size_t[]){__VA_ARGS__},                                        \
       sizeof(size_t[]){__VA_ARGS__} / sizeof(size_t), values)

static void add_value(size_t value, size_t values[PEN_SEARCH_VALUES_MAX], size_t *n)
{
  for (size_t i = 0; i < *n; i++)
    if (values[i] == value)
      return;
  if (*n < PEN_SEARCH_VALUES_MAX)
    values[(*n)++] = value;
}

/* `first`, twice that, four times ... and the last; `by_rule` among them stands
 * for the rule. */
static size_t doublings(size_t first, size_t last, size_t by_rule,
                        size_t values[PEN_SEARCH_VALUES_MAX])
{
  size_t n = 0;
  add_value(PEN_SEARCH_BY_RULE, values, &n);
  for (size_t v = first; v < last && n + 1 < PEN_SEARCH_VALUES_MAX; v *= 2)
    if (v != by_rule)
      add_value(v, values, &n);
  if (last != by_rule)
    add_value(last, values, &n);
  return n;
}

static size_t quarters(size_t of, size_t values[PEN_SEARCH_VALUES_MAX])
{
  size_t n = 0;
  for (size_t quarter = 0; quarter <= 4; quarter++)
    add_value(of * quarter / 4, values, &n);
  return n;
}

/* None, quarters, all; and near the best so far. */
static size_t shares(size_t of, size_t best, size_t values[PEN_SEARCH_VALUES_MAX])
{
  size_t n = quarters(of, values);
  for (size_t part = 8; part <= 16; part *= 2) {
    size_t some = of / part;
    if (best >= some)
      add_value(best - some, values, &n);
    if (best + some <= of)
      add_value(best + some, values, &n);
  }
  return n;
}

size_t pen_search_values(const struct pen_search_problem *p,
                         const struct pen_fit_wish *rule,
                         const struct pen_search_point *at,
                         const struct pen_placement *placement,
                         enum pen_search_choice choice,
                         size_t values[PEN_SEARCH_VALUES_MAX])
{
  const struct pen_search_free *f = &p->free;
  const struct pen_demand_options *d = &p->simulate.demand;
  const struct pen_workload *w = p->workload;
  size_t early = at->value[PEN_SEARCH_EARLY];
  switch (choice) {
  case PEN_SEARCH_STATE: /* its room may be worth more to activations */
    return f->state ? LIST(values, PEN_SEARCH_BY_RULE, PEN_FIT_HOST) : 0;
  case PEN_SEARCH_STATE_BLOCKS: /* where it is on drives, early updates need no
                                   shadow in RAM */
    return f->early && f->state_blocks && placement->state_host_bytes != PEN_ALL_BYTES
               ? LIST(values, PEN_SEARCH_BY_RULE, 0, 1, w->n_blocks / 4,
                      w->n_blocks / 2)
               : 0;
  case PEN_SEARCH_ACTIVATIONS: /* and theirs to weights */
    return f->activations ? LIST(values, PEN_SEARCH_BY_RULE, PEN_FIT_HOST) : 0;
  case PEN_SEARCH_WEIGHTS: /* there they need not come down when they are made early */
    return f->weights ? LIST(values, PEN_SEARCH_BY_RULE, PEN_FIT_HOST) : 0;
  case PEN_SEARCH_RECOMPUTE:
    return f->recompute ? shares(w->body_end - w->body_begin,
                                 placement->recompute_blocks, values)
                        : 0;
  case PEN_SEARCH_GROUP:
    return f->group && p->shape.n_micros > 1
               ? doublings(1, p->shape.n_micros, 0, values)
               : 0;
  case PEN_SEARCH_GRADIENTS: /* compact state may be worth its room more than they are */
    return f->gradients ? LIST(values, PEN_SEARCH_BY_RULE, PEN_FIT_NVME) : 0;
  case PEN_SEARCH_TILE:
    return f->tile ? doublings(p->tile_least, p->tile_most,
                               rule->tile_elems, values)
                   : 0;
  case PEN_SEARCH_WEIGHT_SLOTS:
    return f->weight_slots ? LIST(values, PEN_SEARCH_BY_RULE, 2, 4, 6) : 0;
  case PEN_SEARCH_GRADIENT_SLOTS:
    return f->gradient_slots ? LIST(values, PEN_SEARCH_BY_RULE, 1, 3) : 0;
  case PEN_SEARCH_TILE_SLOTS:
    return f->tile_slots ? LIST(values, PEN_SEARCH_BY_RULE, 3, 6, 8, 12) : 0;
  case PEN_SEARCH_THREADS:
    return f->threads ? doublings(1, d->threads, d->threads, values) : 0;
  case PEN_SEARCH_UPDATE_THREADS:
    return f->update_threads
               ? doublings(1, d->update_threads, d->update_threads, values)
               : 0;
  default: /* blocks that are updated during backward; by the rule none */
    return f->early ? shares(w->n_blocks,
                             early == PEN_SEARCH_BY_RULE ? 0 : early, values)
                    : 0;
  }
}

/* State of the first n blocks, where it lies in RAM whole. */
static uint64_t state_bytes(const struct pen_workload *w, size_t tile_elems, size_t n)
{
  uint64_t sum = 0;
  for (size_t b = 0; b < n; b++) {
    size_t elems = w->blocks[b].elems;
    sum += pen_state_bytes(w->state, elems) + pen_state_half_bytes(w->state, elems) +
           (elems / tile_elems + 1) * PEN_SLOT_ALIGN;
  }
  return sum;
}

static void set(struct pen_search_result *c, const struct pen_workload *workload,
                int choice, size_t value)
{
  struct pen_fit_wish *w = &c->wish;
  switch (choice) {
  case PEN_SEARCH_STATE:
    w->state = (enum pen_fit_place)value;
    break;
  case PEN_SEARCH_STATE_BLOCKS:
    if (value)
      w->state_host_most = state_bytes(workload, w->tile_elems, value);
    else
      w->state = PEN_FIT_NVME;
    break;
  case PEN_SEARCH_ACTIVATIONS:
    w->activations = (enum pen_fit_place)value;
    break;
  case PEN_SEARCH_WEIGHTS:
    w->weights = (enum pen_fit_place)value;
    break;
  case PEN_SEARCH_RECOMPUTE:
    w->recompute_blocks = value;
    break;
  case PEN_SEARCH_GROUP:
    w->group_size = value;
    break;
  case PEN_SEARCH_GRADIENTS:
    w->gradients = (enum pen_fit_place)value;
    break;
  case PEN_SEARCH_TILE:
    w->tile_elems = value;
    break;
  case PEN_SEARCH_WEIGHT_SLOTS:
    w->weight_slots = value;
    break;
  case PEN_SEARCH_GRADIENT_SLOTS:
    w->gradient_slots = value;
    break;
  case PEN_SEARCH_TILE_SLOTS:
    w->tile_slots = value;
    break;
  case PEN_SEARCH_THREADS:
    c->threads = value;
    break;
  case PEN_SEARCH_UPDATE_THREADS:
    c->update_threads = value;
    break;
  default:
    w->speculative_blocks = value;
  }
}

struct pen_search_result
pen_search_result_of(const struct pen_search_problem *problem,
                     const struct pen_fit_wish *rule,
                     const struct pen_search_point *point)
{
  struct pen_search_result c = {
      .wish = *rule,
      .threads = problem->simulate.demand.threads,
      .update_threads = problem->simulate.demand.update_threads};
  for (int choice = 0; choice < PEN_SEARCH_CHOICES; choice++)
    if (point->value[choice] != PEN_SEARCH_BY_RULE)
      set(&c, problem->workload, choice, point->value[choice]);
  return c;
}

struct pen_search_point pen_search_by_rule(void)
{
  struct pen_search_point point;
  for (int choice = 0; choice < PEN_SEARCH_CHOICES; choice++)
    point.value[choice] = PEN_SEARCH_BY_RULE;
  return point;
}
