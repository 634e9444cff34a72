/* search.h: the fastest placement that fits, found by simulating candidates. */
#ifndef PEN_SRC_TRAIN_SEARCH_H
#define PEN_SRC_TRAIN_SEARCH_H

#include "offload/fit.h"
#include "offload/rehearse.h"

/* What the user left open; the search settles nothing else. */
struct pen_search_free {
  bool group, recompute, weight_slots, gradient_slots, tile_slots;
  /* Whether a device with memory of its own has them. */
  bool state, activations, weights;
  bool state_blocks;       /* how much of the state RAM has, beside drives */
  bool gradients;          /* whether drives have them */
  bool tile;
  bool threads, update_threads;
  bool early; /* how many blocks are updated during backward */
};

struct pen_search_problem {
  const struct pen_workload *workload;
  struct pen_simulate_options simulate; /* with the machine */
  struct pen_shape shape;               /* of a full step */
  struct pen_search_free free;
  bool commits; /* each step does, where all state is on drives */
  bool drains; /* each step's update is applied before the next begins */
  size_t tile_least, tile_most; /* elements; only doublings of the least, and
                                   the most, are tried */
  /* Fits a wish into the memory there is.  -PEN_ENOFIT; or what ends the
   * search. */
  int (*place)(void *ctx, const struct pen_fit_wish *wish,
               struct pen_placement *ret_placement);
  void *ctx;
};

struct pen_search_result {
  struct pen_fit_wish wish; /* of the fastest */
  size_t threads, update_threads;
  double seconds;           /* of its step */
  double rule_seconds;      /* as the rule alone would have it; 0: that did not
                               fit */
  size_t n_simulated;       /* placements: what the search cost */
};

/* From the rule's placement on, changes one choice at a time to the value with
 * the shortest step, in turns, until none is shorter by PEN_SEARCH_GAIN.
 * Begins again with groups of the size that was found, and from the best of a few
 * starts with groups of each size: the rule's; three quarters of the blocks early;
 * the same with all but the first block's state on drives.  Deterministic.  It costs
 * what building and simulating n_simulated steps costs, which is 20 to 60, with early
 * updates up to 240: a choice has up to 10 values, and few come to placements of
 * their own.  -PEN_ENOFIT, with the rule's text, where nothing fits. */
int pen_search(const struct pen_search_problem *problem,
               const struct pen_fit_wish *rule,
               struct pen_search_result *ret_result);

/* A share of the step: less is within what the simulator can tell.  Threads must
 * gain more, since it knows nothing of caches and of the system's scheduler. */
#define PEN_SEARCH_GAIN 0.005
#define PEN_SEARCH_GAIN_THREADS 0.03

#endif
