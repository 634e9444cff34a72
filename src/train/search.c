/* search.c: coordinate descent over what changes a step's time but no number.
 *
 * A point is fitted first, which asks for bytes alone; most points come to a
 * placement that others came to before, and are known.  A new one is a real
 * layout and a real schedule, simulated for as long as it may still be the
 * fastest.  The size of groups decides what memory is left for all else, so in
 * the end the search begins once more from the rule with the size that was found,
 * which else followed from other choices, and from the best of a few other starts
 * with other sizes: early updates pay off only with large groups and with memory
 * left for them.  Main thread, at start.  Disadvantage: choices are changed one by
 * one, so other two that help only together are not found. */
#include "src/train/search_choice.h"

#include <string.h>

#include "base/error.h"

#define TURNS_MAX 3
#define STARTS_MAX 3
#define TRIED_MAX 512

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
  struct pen_search_point at; /* the best so far, and what it comes to */
  struct candidate best;
  struct candidate tried[TRIED_MAX];
  size_t n_simulated;
  double rule_seconds;  /* of the rule's step; 0: it does not fit, and */
  struct pen_error why; /* this is said of it */
};

static double gain_of(int choice)
{
  return choice == PEN_SEARCH_THREADS || choice == PEN_SEARCH_UPDATE_THREADS
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
static int try_point(struct search *s, const struct pen_search_point *point,
                     double enough_s, struct candidate *ret_candidate)
{
  struct pen_search_result wanted = pen_search_result_of(s->p, s->rule, point);
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

/* Goes to a point whose step is shorter by `gain`; then *ret_better. */
static int take_faster(struct search *s, const struct pen_search_point *point,
                       double gain, bool *ret_better)
{
  struct candidate c;
  double enough_s = s->best.seconds * (1 - gain);
  int rc = try_point(s, point, enough_s, &c);
  if (rc == -PEN_ENOFIT) {
    pen_error_clear();
    return 0;
  }
  if (rc == 0 && (s->best.seconds == 0 || c.seconds < enough_s)) {
    s->at = *point;
    s->best = c;
    *ret_better = true;
  }
  return rc;
}

static size_t values_of(const struct search *s, enum pen_search_choice choice,
                        size_t values[PEN_SEARCH_VALUES_MAX])
{
  return pen_search_values(s->p, s->rule, &s->at,
                           &s->best.placement, choice, values);
}

/* The best value of one choice. */
static int improve(struct search *s, int choice, bool *ret_better)
{
  size_t values[PEN_SEARCH_VALUES_MAX], n = values_of(s, choice, values);
  struct pen_search_point point = s->at;
  int rc = 0;
  for (size_t i = 0; rc == 0 && i < n; i++) {
    point.value[choice] = values[i];
    rc = take_faster(s, &point, gain_of(choice), ret_better);
  }
  return rc;
}

static int take_turns(struct search *s)
{
  bool better = true;
  int rc = 0;
  for (int turn = 0; rc == 0 && better && turn < TURNS_MAX; turn++) {
    better = false;
    for (int choice = 0; rc == 0 && choice < PEN_SEARCH_CHOICES; choice++)
      rc = improve(s, choice, &better);
  }
  return rc;
}

/* Turns from a point on; the faster of where they lead and what was stays. */
static int descend(struct search *s, const struct pen_search_point *from)
{
  struct pen_search_point at = s->at;
  struct candidate best = s->best;
  s->at = *from;
  s->best = (struct candidate){.seconds = 0};
  int rc = try_point(s, from, 0, &s->best);
  if (rc == 0 || rc == -PEN_ENOFIT) {
    if (rc < 0)
      pen_error_take(&s->why);
    rc = take_turns(s);
  }
  bool better = s->best.seconds > 0 &&
                s->best.seconds < best.seconds * (1 - PEN_SEARCH_GAIN);
  if (best.seconds > 0 && !better) {
    s->at = at;
    s->best = best;
  }
  return rc;
}

/* Where else it may begin: from the rule; from many early updates; and from
 * these with what they gain by, most of the state on drives, where they need no
 * shadow in RAM, and weights in RAM, where they need not come down again. */
static size_t other_starts(const struct search *s,
                           struct pen_search_point starts[STARTS_MAX])
{
  const struct pen_search_free *f = &s->p->free;
  struct pen_search_point point = pen_search_by_rule();
  size_t n = 0;
  starts[n++] = point;
  point.value[PEN_SEARCH_EARLY] = s->p->workload->n_blocks * 3 / 4;
  if (f->early)
    starts[n++] = point;
  point.value[PEN_SEARCH_STATE_BLOCKS] = 1;
  if (f->weights)
    point.value[PEN_SEARCH_WEIGHTS] = PEN_FIT_HOST;
  if (f->early && f->state_blocks)
    starts[n++] = point;
  return n;
}

/* The best of these with groups of each size. */
static int find_start(struct search *s, struct pen_search_point *ret_start)
{
  struct pen_search_point at = s->at, starts[STARTS_MAX];
  struct candidate best = s->best;
  size_t groups[PEN_SEARCH_VALUES_MAX] = {PEN_SEARCH_BY_RULE};
  size_t n_groups = values_of(s, PEN_SEARCH_GROUP, groups);
  size_t n = other_starts(s, starts);
  bool better;
  int rc = 0;
  s->best = (struct candidate){.seconds = 0};
  for (size_t i = 0; rc == 0 && i < (n_groups ? n_groups : 1) * n; i++) {
    struct pen_search_point point = starts[i % n];
    point.value[PEN_SEARCH_GROUP] = groups[i / n];
    rc = take_faster(s, &point, PEN_SEARCH_GAIN, &better);
  }
  *ret_start = s->at;
  s->at = at;
  s->best = best;
  return rc;
}

/* Once more with groups of the size that was found, which else followed from
 * other choices, and from the best other start. */
static int begin_again(struct search *s)
{
  struct pen_search_point start = pen_search_by_rule();
  start.value[PEN_SEARCH_GROUP] = s->best.placement.group_size;
  int rc = descend(s, &start);
  if (rc == 0)
    rc = find_start(s, &start);
  return rc < 0 ? rc : descend(s, &start);
}

int pen_search(const struct pen_search_problem *problem,
               const struct pen_fit_wish *rule,
               struct pen_search_result *ret_result)
{
  struct search s = {.p = problem, .rule = rule};
  struct pen_search_point rule_point = pen_search_by_rule();
  int rc = try_point(&s, &rule_point, 0, &s.best);
  s.rule_seconds = s.best.seconds;
  s.best.seconds = 0;
  if (rc == 0 || rc == -PEN_ENOFIT)
    rc = descend(&s, &rule_point);
  if (rc == 0 && s.best.seconds > 0 &&
      (problem->free.group || problem->free.early))
    rc = begin_again(&s);
  if (rc == 0 && s.best.seconds == 0) {
    pen_error_put(&s.why);
    return -PEN_ENOFIT;
  }
  if (rc < 0)
    return rc;
  *ret_result = pen_search_result_of(problem, rule, &s.at);
  ret_result->seconds = s.best.seconds;
  ret_result->rule_seconds = s.rule_seconds;
  ret_result->n_simulated = s.n_simulated;
  return 0;
}
