/* places.c: placements drawn by (seed, number). */
#include "tests/sched/places.h"

#include "tests/test.h"

uint64_t places_seed(void) { return test_seed(20261130); }

struct pen_placement places_plain(void)
{
  return (struct pen_placement){.unified = true,
                                .weights_host_bytes = PEN_ALL_BYTES,
                                .gradients_host_bytes = PEN_ALL_BYTES,
                                .state_host_bytes = PEN_ALL_BYTES,
                                .activations_host_bytes = PEN_ALL_BYTES,
                                .group_size = 1,
                                .recompute_head_blocks = SIZE_MAX,
                                .tile_elems = 4 * PEN_NORM_CHUNK_ELEMS,
                                .weight_slots = 2,
                                .gradient_slots = 2,
                                .tile_slots = 2,
                                .activation_slots = 3};
}

struct pen_placement places_random(uint64_t seed, uint64_t n)
{
  uint64_t draw = 0;
#define DRAW(bound) pen_rng_below(seed, n, draw++, (bound))
  /* Nothing, some, or all of what there is. */
#define BUDGET(some) (DRAW(3) == 0 ? 0 : DRAW(2) ? PEN_ALL_BYTES : DRAW(some))
  struct pen_placement p = {.unified = DRAW(2)};
  p.weights_device_bytes = BUDGET(1 << 20);
  p.weights_host_bytes = BUDGET(1 << 20);
  p.gradients_host_bytes = BUDGET(1 << 20);
  p.state_host_bytes = BUDGET(3 << 20);
  p.state_device_bytes = BUDGET(6 << 20);
  p.activations_device_bytes = BUDGET(64 << 10);
  p.activations_host_bytes = BUDGET(64 << 10);
  p.group_size = DRAW(6);
  p.recompute_blocks = DRAW(6);
  p.recompute_head_blocks = DRAW(5);
  p.tile_elems = (1 + DRAW(3)) * PEN_NORM_CHUNK_ELEMS;
  p.weight_slots = 1 + DRAW(3);
  p.gradient_slots = 1 + DRAW(3);
  p.tile_slots = 1 + DRAW(4);
  p.activation_slots = 2 + DRAW(3);
  p.speculative_blocks = DRAW(3) == 0 ? 0 : DRAW(2) ? SIZE_MAX : DRAW(12);
  return p;
#undef DRAW
#undef BUDGET
}
