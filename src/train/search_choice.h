/* search_choice.h: what a search may choose, and which values of it are tried. */
#ifndef PEN_SRC_TRAIN_SEARCH_CHOICE_H
#define PEN_SRC_TRAIN_SEARCH_CHOICE_H

#include "src/train/search.h"

#define PEN_SEARCH_VALUES_MAX 12
#define PEN_SEARCH_BY_RULE (SIZE_MAX - 1) /* a choice that is left to it */

/* In the order in which they take turns. */
enum pen_search_choice {
  PEN_SEARCH_STATE,
  PEN_SEARCH_STATE_BLOCKS, /* the first so many in RAM at most */
  PEN_SEARCH_ACTIVATIONS,
  PEN_SEARCH_WEIGHTS,
  PEN_SEARCH_RECOMPUTE,
  PEN_SEARCH_GROUP,
  PEN_SEARCH_GRADIENTS,
  PEN_SEARCH_TILE,
  PEN_SEARCH_WEIGHT_SLOTS,
  PEN_SEARCH_GRADIENT_SLOTS,
  PEN_SEARCH_TILE_SLOTS,
  PEN_SEARCH_THREADS,
  PEN_SEARCH_UPDATE_THREADS,
  PEN_SEARCH_EARLY,
  PEN_SEARCH_CHOICES
};

/* A candidate: the value of each choice. */
struct pen_search_point {
  size_t value[PEN_SEARCH_CHOICES];
};

struct pen_search_point pen_search_by_rule(void);

/* The values of one choice that are worth trying from a point on that has this
 * placement; their number, 0 where it is settled. */
size_t pen_search_values(const struct pen_search_problem *problem,
                         const struct pen_fit_wish *rule,
                         const struct pen_search_point *at,
                         const struct pen_placement *placement,
                         enum pen_search_choice choice,
                         size_t ret_values[PEN_SEARCH_VALUES_MAX]);

/* The wish and the threads that a point stands for. */
struct pen_search_result
pen_search_result_of(const struct pen_search_problem *problem,
                     const struct pen_fit_wish *rule,
                     const struct pen_search_point *point);

#endif
