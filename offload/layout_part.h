/* layout_part.h: what the files that make slots share.  For offload/layout_*.c
 * only. */
#ifndef PEN_OFFLOAD_LAYOUT_PART_H
#define PEN_OFFLOAD_LAYOUT_PART_H

#include "offload/layout.h"

/* What is left of each tier for one kind of bytes. */
struct pen_layout_budget {
  uint64_t device, host;
};

/* A block's tiles: how many, those with a home in RAM, and what these take. */
struct pen_layout_state {
  size_t n_tiles, n_in_ram;
  uint64_t ram_bytes;
};

struct pen_layout_maker {
  struct pen_layout *l;
  const struct pen_workload *w;
  bool outline; /* no tiles, and of their slots the bytes alone */
  size_t max_slots;
  struct pen_layout_state *states; /* [n_blocks] */
};

/* A new slot; PEN_NONE, and no slot, of 0 bytes. */
uint32_t pen_layout_add_slot(struct pen_layout_maker *m, const char *purpose,
                             enum pen_tier tier, bool home, size_t bytes);
struct pen_ring pen_layout_add_ring(struct pen_layout_maker *m,
                                    const char *purpose, enum pen_tier tier,
                                    size_t count, size_t bytes);

/* Update workers go through arrays of `bytes`, or through the state of `elems`
 * elements, in these slots; first PEN_NONE: there are none. */
void pen_layout_mark_arrays(struct pen_layout_maker *m, uint32_t first,
                            size_t count, size_t bytes);
void pen_layout_mark_state(struct pen_layout_maker *m, uint32_t first,
                           size_t count, size_t elems);

/* The nearest tier that has room, taken from the budget. */
enum pen_tier pen_layout_take(struct pen_layout_budget *budget,
                              bool device_allowed, size_t bytes);

static inline size_t pen_layout_max(size_t a, size_t b) { return a > b ? a : b; }

/* What passes forward and backward (layout_compute.c). */
void pen_layout_place_weights(struct pen_layout_maker *m);
void pen_layout_place_activations(struct pen_layout_maker *m);
void pen_layout_place_experts(struct pen_layout_maker *m);
void pen_layout_place_results(struct pen_layout_maker *m); /* numbers in a slot */
void pen_layout_place_working(struct pen_layout_maker *m);

/* Gradients, their sums, optimizer state: what inference has none of, but for
 * the numbers of tiles (layout_training.c). */
void pen_layout_place_gradients(struct pen_layout_maker *m);
void pen_layout_place_state(struct pen_layout_maker *m);
/* Last: shadows of what is placed. */
void pen_layout_place_shadows(struct pen_layout_maker *m);

#endif
