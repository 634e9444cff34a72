/* search.c: coordinate descent over what changes a step's time but no number.
 *
 * A point is fitted first, which asks for bytes alone; most points come to a
 * placement that others came to before, and are known.  A new one is a real
 * layout and a real schedule, simulated for as long as it may still be the
 * fastest.  The size of groups decides what memory is left for all else, so in
 * the end the search begins once more from the rule with the size that was found,
 * which else followed from other choices.  Main thread, at start.  Disadvantage:
 * choices are changed one by one, so two that help only together are not found. */
#include "src/train/search.h"

#include <string.h>

#include "base/error.h"

#define TURNS_MAX 3
#define VALUES_MAX 12
#define TRIED_MAX 256

enum { STATE, ACTIVATIONS, RECOMPUTE, GROUP, GRADIENTS, TILE, WEIGHT_SLOTS,
       GRADIENT_SLOTS, TILE_SLOTS, THREADS, UPDATE_THREADS, EARLY, CHOICES };

#define BY_RULE (SIZE_MAX - 1) /* a choice that is left to it */

/* A candidate: the value of each choice. */
struct point {
  size_t value[CHOICES];
};

/* What is simulated: equal ones come of many points. */
struct candidate {
  struct pen_placement placement;
  size_t threads, update_threads;
  double seconds; /* of its step; 0: there is none */
  double enough_s; /* seconds as long are a lower bound; 0: they are exact */
};

struct search {
  const struct pen_search_problem *p;
  const struct pen_fit_wish *rule;
  struct point at; /* the best so far, and what it comes to */
  struct candidate best;
  struct candidate tried[TRIED_MAX];
  size_t n_simulated;
  double rule_seconds;  /* of the rule's step; 0: it does not fit, and */
  struct pen_error why; /* this is said of it */
};

/* ---- the values of each choice ---- */

static size_t list(const size_t *all, size_t n, size_t values[VALUES_MAX])
{
  memcpy(values, all, n * sizeof *all);
  return n;
}
#define LIST(values, ...)                                                     \
  list((const size_t[]){__VA_ARGS__},                                        \
       sizeof(size_t[]){__VA_ARGS__} / sizeof(size_t), values)

static void add_value(size_t value, size_t values[VALUES_MAX], size_t *n)
{
  for (size_t i = 0; i < *n; i++)
    if (values[i] == value)
      return;
  if (*n < VALUES_MAX)
    values[(*n)++] = value;
}

/* `first`, twice that, four times ... and the last; `by_rule` among them stands
 * for the rule. */
static size_t doublings(size_t first, size_t last, size_t by_rule,
                        size_t values[VALUES_MAX])
{
  size_t n = 0;
  add_value(BY_RULE, values, &n);
  for (size_t v = first; v < last && n + 1 < VALUES_MAX; v *= 2)
    if (v != by_rule)
      add_value(v, values, &n);
  if (last != by_rule)
    add_value(last, values, &n);
  return n;
}

static size_t quarters(size_t of, size_t values[VALUES_MAX])
{
  size_t n = 0;
  for (size_t quarter = 0; quarter <= 4; quarter++)
    add_value(of * quarter / 4, values, &n);
  return n;
}

/* None, quarters, all; and near the best so far. */
static size_t shares(size_t of, size_t best, size_t values[VALUES_MAX])
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

static size_t recompute_values(const struct search *s,
                               size_t values[VALUES_MAX])
{
  const struct pen_workload *w = s->p->workload;
  return shares(w->body_end - w->body_begin,
                s->best.placement.recompute_blocks, values);
}

/* By the rule none is. */
static size_t early_values(const struct search *s, size_t values[VALUES_MAX])
{
  size_t best = s->at.value[EARLY];
  return shares(s->p->workload->n_blocks, best == BY_RULE ? 0 : best, values);
}

static size_t values_of(const struct search *s, int choice,
                        size_t values[VALUES_MAX])
{
  const struct pen_search_problem *p = s->p;
  const struct pen_search_free *f = &p->free;
  const struct pen_demand_options *d = &p->simulate.demand;
  switch (choice) {
  case STATE: /* its room may be worth more to activations */
    return f->state ? LIST(values, BY_RULE, PEN_FIT_HOST) : 0;
  case ACTIVATIONS: /* and theirs to weights */
    return f->activations ? LIST(values, BY_RULE, PEN_FIT_HOST) : 0;
  case RECOMPUTE:
    return f->recompute ? recompute_values(s, values) : 0;
  case GROUP:
    return f->group && p->shape.n_micros > 1
               ? doublings(1, p->shape.n_micros, 0, values)
               : 0;
  case GRADIENTS: /* compact state may be worth its room more than they are */
    return f->gradients ? LIST(values, BY_RULE, PEN_FIT_NVME) : 0;
  case TILE:
    return f->tile ? doublings(p->tile_least, p->tile_most,
                               s->rule->tile_elems, values)
                   : 0;
  case WEIGHT_SLOTS:
    return f->weight_slots ? LIST(values, BY_RULE, 2, 4, 6) : 0;
  case GRADIENT_SLOTS:
    return f->gradient_slots ? LIST(values, BY_RULE, 1, 3) : 0;
  case TILE_SLOTS:
    return f->tile_slots ? LIST(values, BY_RULE, 3, 6, 8, 12) : 0;
  case THREADS:
    return f->threads ? doublings(1, d->threads, d->threads, values) : 0;
  case UPDATE_THREADS:
    return f->update_threads
               ? doublings(1, d->update_threads, d->update_threads, values)
               : 0;
  default: /* blocks that are updated during backward */
    return f->early ? early_values(s, values) : 0;
  }
}

static void set(struct pen_search_result *c, int choice, size_t value)
{
  struct pen_fit_wish *w = &c->wish;
  switch (choice) {
  case STATE:
    w->state = (enum pen_fit_place)value;
    break;
  case ACTIVATIONS:
    w->activations = (enum pen_fit_place)value;
    break;
  case RECOMPUTE:
    w->recompute_blocks = value;
    break;
  case GROUP:
    w->group_size = value;
    break;
  case GRADIENTS:
    w->gradients = (enum pen_fit_place)value;
    break;
  case TILE:
    w->tile_elems = value;
    break;
  case WEIGHT_SLOTS:
    w->weight_slots = value;
    break;
  case GRADIENT_SLOTS:
    w->gradient_slots = value;
    break;
  case TILE_SLOTS:
    w->tile_slots = value;
    break;
  case THREADS:
    c->threads = value;
    break;
  case UPDATE_THREADS:
    c->update_threads = value;
    break;
  default:
    w->speculative_blocks = value;
  }
}

/* What a point stands for. */
static struct pen_search_result result_of(const struct search *s,
                                          const struct point *point)
{
  struct pen_search_result c = {
      .wish = *s->rule,
      .threads = s->p->simulate.demand.threads,
      .update_threads = s->p->simulate.demand.update_threads};
  for (int choice = 0; choice < CHOICES; choice++)
    if (point->value[choice] != BY_RULE)
      set(&c, choice, point->value[choice]);
  return c;
}

static double gain_of(int choice)
{
  return choice == THREADS || choice == UPDATE_THREADS
             ? PEN_SEARCH_GAIN_THREADS
             : PEN_SEARCH_GAIN;
}

/* ---- one candidate ---- */

static int simulate(const struct pen_search_problem *p,
                    const struct pen_layout *layout, struct candidate *c)
{
  struct pen_simulate_options options = p->simulate;
  struct pen_rehearsal rehearsal;
  struct pen_simulate_result step;
  options.demand.threads = c->threads;
  options.demand.update_threads = c->update_threads;
  options.enough_s = c->enough_s;
  bool commits = p->commits && layout->n_store_tiles > 0 &&
                 layout->n_store_tiles == layout->n_tiles;
  int rc = pen_rehearsal_open(&rehearsal, p->workload, layout, &p->shape,
                              commits, p->drains ? PEN_REHEARSAL_DRAINED
                                                 : PEN_REHEARSAL_CARRIED);
  if (rc == 0)
    rc = pen_rehearsal_run(&rehearsal, &options, NULL, &step);
  if (rc == 0)
    c->seconds = step.seconds;
  pen_rehearsal_close(&rehearsal);
  return rc;
}

/* Bytes between members that differ would cost a simulation, no more. */
static bool is_same(const struct candidate *a, const struct candidate *b)
{
  return memcmp(&a->placement, &b->placement, sizeof a->placement) == 0 &&
         a->threads == b->threads && a->update_threads == b->update_threads;
}

/* One that was simulated as far as it is wanted now. */
static const struct candidate *find_tried(const struct search *s,
                                          const struct candidate *c)
{
  for (size_t i = 0; i < s->n_simulated && i < TRIED_MAX; i++) {
    const struct candidate *t = &s->tried[i];
    bool known = t->enough_s == 0 || t->seconds < t->enough_s ||
                 (c->enough_s > 0 && t->seconds >= c->enough_s);
    if (known && is_same(t, c))
      return t;
  }
  return NULL;
}

/* Is not simulated beyond enough_s (0: to its end).  -PEN_ENOFIT. */
static int try_point(struct search *s, const struct point *point,
                     double enough_s, struct candidate *ret_candidate)
{
  struct pen_search_result wanted = result_of(s, point);
  struct candidate c = {.threads = wanted.threads,
                        .update_threads = wanted.update_threads,
                        .enough_s = enough_s};
  struct pen_layout layout;
  int rc = s->p->place(s->p->ctx, &wanted.wish, &c.placement);
  if (rc < 0)
    return rc;
  const struct candidate *known = find_tried(s, &c);
  if (known) {
    *ret_candidate = *known;
    return 0;
  }
  rc = pen_layout_init(&layout, s->p->workload, &c.placement);
  if (rc < 0)
    return rc;
  rc = simulate(s->p, &layout, &c);
  pen_layout_done(&layout);
  if (rc < 0)
    return rc;
  if (s->n_simulated < TRIED_MAX)
    s->tried[s->n_simulated] = c;
  s->n_simulated++;
  *ret_candidate = c;
  return 0;
}

/* ---- the search ---- */

/* The best value of one choice; true where it is better than what was. */
static int improve(struct search *s, int choice, bool *ret_better)
{
  size_t values[VALUES_MAX], n = values_of(s, choice, values);
  struct point from = s->at;
  for (size_t i = 0; i < n; i++) {
    struct point point = from;
    struct candidate c;
    double enough_s = s->best.seconds * (1 - gain_of(choice));
    point.value[choice] = values[i];
    int rc = try_point(s, &point, enough_s, &c);
    if (rc == -PEN_ENOFIT) {
      pen_error_clear();
      continue;
    }
    if (rc < 0)
      return rc;
    if (s->best.seconds == 0 || c.seconds < enough_s) {
      s->at = point;
      s->best = c;
      *ret_better = true;
    }
  }
  return 0;
}

static int take_turns(struct search *s)
{
  bool better = true;
  int rc = 0;
  for (int turn = 0; rc == 0 && better && turn < TURNS_MAX; turn++) {
    better = false;
    for (int choice = 0; rc == 0 && choice < CHOICES; choice++)
      rc = improve(s, choice, &better);
  }
  return rc;
}

/* From the rule on, with groups of this size.  Nothing fits: no best. */
static int descend(struct search *s, size_t group)
{
  for (int choice = 0; choice < CHOICES; choice++)
    s->at.value[choice] = choice == GROUP ? group : BY_RULE;
  s->best = (struct candidate){.seconds = 0};
  int rc = try_point(s, &s->at, 0, &s->best);
  if (rc < 0 && rc != -PEN_ENOFIT)
    return rc;
  if (rc < 0)
    pen_error_take(&s->why);
  if (group == BY_RULE)
    s->rule_seconds = s->best.seconds;
  return take_turns(s);
}

/* The faster of both stays. */
static int begin_again(struct search *s)
{
  struct point at = s->at;
  struct candidate best = s->best;
  int rc = descend(s, best.placement.group_size);
  bool better = s->best.seconds > 0 &&
                s->best.seconds < best.seconds * (1 - PEN_SEARCH_GAIN);
  if (rc == 0 && !better) {
    s->at = at;
    s->best = best;
  }
  return rc;
}

int pen_search(const struct pen_search_problem *problem,
               const struct pen_fit_wish *rule,
               struct pen_search_result *ret_result)
{
  struct search s = {.p = problem, .rule = rule};
  int rc = descend(&s, BY_RULE);
  if (rc == 0 && problem->free.group && s.best.seconds > 0)
    rc = begin_again(&s);
  if (rc == 0 && s.best.seconds == 0) {
    pen_error_put(&s.why);
    return -PEN_ENOFIT;
  }
  if (rc < 0)
    return rc;
  *ret_result = result_of(&s, &s.at);
  ret_result->seconds = s.best.seconds;
  ret_result->rule_seconds = s.rule_seconds;
  ret_result->n_simulated = s.n_simulated;
  return 0;
}
