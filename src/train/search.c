/* search.c: coordinate descent over what changes a step's time but no number.
 *
 * Each candidate is a real layout and a real schedule, simulated.  Main thread,
 * at start.  Disadvantage: choices are changed one by one, so two that help only
 * together are not found. */
#include "src/train/search.h"

#include "base/error.h"

#define TURNS_MAX 3
#define VALUES_MAX 8

/* One choice: its values, and how a wish takes one. */
struct choice {
  bool (*is_free)(const struct pen_search_problem *p);
  size_t (*values)(const struct pen_search_problem *p,
                   size_t values[VALUES_MAX]);
  void (*set)(struct pen_fit_wish *wish, size_t value);
};

/* ---- the choices ---- */

static bool group_is_free(const struct pen_search_problem *p)
{
  return p->free_group && p->shape.n_micros > 1;
}

/* 1, 2, 4 ... and all. */
static size_t group_values(const struct pen_search_problem *p,
                           size_t values[VALUES_MAX])
{
  size_t n = 0;
  for (size_t g = 1; g < p->shape.n_micros && n + 1 < VALUES_MAX; g *= 2)
    values[n++] = g;
  values[n++] = p->shape.n_micros;
  return n;
}

static void set_group(struct pen_fit_wish *wish, size_t value)
{
  wish->group_size = value;
}

static bool recompute_is_free(const struct pen_search_problem *p)
{
  return p->free_recompute;
}

/* None, quarters, all. */
static size_t recompute_values(const struct pen_search_problem *p,
                               size_t values[VALUES_MAX])
{
  size_t n_body = p->workload->body_end - p->workload->body_begin, n = 0;
  for (size_t quarter = 0; quarter <= 4; quarter++) {
    size_t blocks = n_body * quarter / 4;
    if (n == 0 || values[n - 1] != blocks)
      values[n++] = blocks;
  }
  return n;
}

static void set_recompute(struct pen_fit_wish *wish, size_t value)
{
  wish->recompute_blocks = value;
}

static bool weight_slots_are_free(const struct pen_search_problem *p)
{
  return p->free_weight_slots;
}

static size_t weight_slot_values(const struct pen_search_problem *p,
                                 size_t values[VALUES_MAX])
{
  static const size_t all[] = {2, 3, 4, 6};
  (void)p;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    values[i] = all[i];
  return sizeof all / sizeof *all;
}

static void set_weight_slots(struct pen_fit_wish *wish, size_t value)
{
  wish->weight_slots = value;
}

static bool tile_slots_are_free(const struct pen_search_problem *p)
{
  return p->free_tile_slots;
}

static size_t tile_slot_values(const struct pen_search_problem *p,
                               size_t values[VALUES_MAX])
{
  static const size_t all[] = {3, 4, 6, 8, 12};
  (void)p;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    values[i] = all[i];
  return sizeof all / sizeof *all;
}

static void set_tile_slots(struct pen_fit_wish *wish, size_t value)
{
  wish->tile_slots = value;
}

/* Where the device has room for state, that room may be worth more to
 * activations. */
static bool state_is_free(const struct pen_search_problem *p)
{
  return p->free_state;
}

static size_t state_values(const struct pen_search_problem *p,
                           size_t values[VALUES_MAX])
{
  (void)p;
  values[0] = PEN_FIT_AUTO;
  values[1] = PEN_FIT_HOST;
  return 2;
}

static void set_state(struct pen_fit_wish *wish, size_t value)
{
  wish->state = (enum pen_fit_place)value;
}

static bool speculative_is_free(const struct pen_search_problem *p)
{
  return p->free_speculative;
}

/* None, quarters, all. */
static size_t speculative_values(const struct pen_search_problem *p,
                                 size_t values[VALUES_MAX])
{
  size_t n_blocks = p->workload->n_blocks, n = 0;
  for (size_t quarter = 0; quarter <= 4; quarter++) {
    size_t blocks = n_blocks * quarter / 4;
    if (n == 0 || values[n - 1] != blocks)
      values[n++] = blocks;
  }
  return n;
}

static void set_speculative(struct pen_fit_wish *wish, size_t value)
{
  wish->speculative_blocks = value;
}

static const struct choice choices[] = {
    {state_is_free, state_values, set_state},
    {recompute_is_free, recompute_values, set_recompute},
    {group_is_free, group_values, set_group},
    {weight_slots_are_free, weight_slot_values, set_weight_slots},
    {tile_slots_are_free, tile_slot_values, set_tile_slots},
    {speculative_is_free, speculative_values, set_speculative},
};

/* ---- the search ---- */

/* *ret_seconds 0: does not fit. */
static int try_wish(const struct pen_search_problem *p,
                    const struct pen_fit_wish *wish,
                    struct pen_search_result *found, double *ret_seconds)
{
  struct pen_layout layout;
  struct pen_run_plan plan;
  struct pen_rehearsal rehearsal;
  struct pen_simulate_result step;
  int rc = p->place(p->ctx, wish, &layout, &plan);
  *ret_seconds = 0;
  found->n_tried++;
  if (rc < 0)
    return rc;
  found->n_fitting++;
  rc = pen_rehearsal_open(&rehearsal, p->workload, &layout, &plan, &p->shape,
                          false, p->drains);
  if (rc == 0)
    rc = pen_rehearsal_run(&rehearsal, &p->simulate, NULL, &step);
  if (rc == 0)
    *ret_seconds = step.seconds;
  pen_rehearsal_close(&rehearsal);
  pen_layout_done(&layout);
  return rc;
}

/* The best value of one choice; true where it is better than what was. */
static int improve(const struct pen_search_problem *p, const struct choice *c,
                   struct pen_search_result *found, bool *ret_better)
{
  size_t values[VALUES_MAX], n = c->values(p, values);
  struct pen_fit_wish best = found->wish;
  double seconds = found->seconds;
  for (size_t i = 0; i < n; i++) {
    struct pen_fit_wish wish = found->wish;
    double its_seconds;
    c->set(&wish, values[i]);
    int rc = try_wish(p, &wish, found, &its_seconds);
    if (rc == -PEN_ENOFIT)
      pen_error_clear();
    else if (rc < 0)
      return rc;
    else if (seconds == 0 || its_seconds < seconds * (1 - PEN_SEARCH_GAIN)) {
      best = wish;
      seconds = its_seconds;
    }
  }
  *ret_better |= found->seconds == 0 ? seconds > 0 : seconds < found->seconds;
  found->wish = best;
  found->seconds = seconds;
  return 0;
}

static int take_turns(const struct pen_search_problem *p,
                      struct pen_search_result *found)
{
  bool better = true;
  int rc = 0;
  for (int turn = 0; rc == 0 && better && turn < TURNS_MAX; turn++) {
    better = false;
    for (size_t i = 0; rc == 0 && i < sizeof choices / sizeof *choices; i++)
      if (choices[i].is_free(p))
        rc = improve(p, &choices[i], found, &better);
  }
  return rc;
}

int pen_search(const struct pen_search_problem *problem,
               const struct pen_fit_wish *rule,
               struct pen_search_result *ret_result)
{
  struct pen_search_result found = {.wish = *rule};
  struct pen_error why = {0};
  int rc = try_wish(problem, rule, &found, &found.seconds);
  if (rc < 0 && rc != -PEN_ENOFIT)
    return rc;
  if (rc < 0)
    pen_error_take(&why);
  found.rule_seconds = found.seconds;
  int first = rc;
  rc = take_turns(problem, &found);
  if (rc == 0 && found.seconds == 0) {
    pen_error_put(&why);
    return first;
  }
  if (rc == 0)
    *ret_result = found;
  return rc;
}
