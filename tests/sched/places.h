/* places.h: random placements, for tests that say: none of this may matter. */
#ifndef PEN_TESTS_SCHED_PLACES_H
#define PEN_TESTS_SCHED_PLACES_H

#include "base/rng.h"
#include "offload/layout.h"

/* The seed of this test run: PEN_SEED or a fixed one; printed. */
uint64_t places_seed(void);

/* A random mix of tiers, rings, groups, tiles and recompute of both kinds; n: which one. */
struct pen_placement places_random(uint64_t seed, uint64_t n);

/* Everything in RAM, one memory: the placement all others are compared with. */
struct pen_placement places_plain(void);

#endif
