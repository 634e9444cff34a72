/* layout.h: placement to slots: every buffer of a run, in which tier it lies,
 * and what it is for. */
#ifndef PEN_OFFLOAD_LAYOUT_H
#define PEN_OFFLOAD_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/placement.h"
#include "offload/workload.h"

#define PEN_SLOT_ALIGN ((size_t)4096)

static inline size_t pen_slot_aligned(size_t bytes)
{
  return (bytes + PEN_SLOT_ALIGN - 1) / PEN_SLOT_ALIGN * PEN_SLOT_ALIGN;
}

struct pen_slot {
  const char *purpose;  /* static text: "weights", "gradient ring" ... */
  enum pen_tier tier;
  bool home;       /* content outlives steps; else a ring or working slot */
  size_t bytes;    /* multiple of PEN_SLOT_ALIGN */
  uint64_t offset; /* within its tier's arena (nvme: the store's scratch) */
  /* What update workers go through by element: the arrays of so many elements'
   * state, or arrays of so many bytes one after the other; both 0: nothing. */
  size_t state_elems;
  size_t array_bytes;
  uint32_t shadow_of; /* home that changes places with this slot when an update
                         that filled it stands; PEN_NONE: of none */
};

/* `count` equal slots used in turn, numbered from `first`. */
struct pen_ring {
  uint32_t first;
  uint32_t count;
};

/* The unit of optimizer streaming: elements [begin, begin + elems) of a block. */
struct pen_tile {
  uint32_t block;
  size_t begin;
  size_t elems;
  uint32_t state_home; /* slot of its state in RAM, or on the device that keeps
                          its block's gradient; PEN_NONE: in the store */
  uint32_t store_tile; /* number in the store; PEN_NONE: in a slot */
  uint32_t state_shadow; /* of state_home; PEN_NONE: none */
};

struct pen_layout {
  struct pen_placement placement; /* as given, group size clamped */
  enum pen_tier compute_tier;     /* PEN_TIER_HOST when unified */
  const struct pen_state_format *state; /* the workload's */

  struct pen_slot *slots;
  size_t n_slots;
  struct pen_tile *tiles; /* by block, then by element */
  size_t n_tiles;
  uint32_t *block_tiles;  /* [n_blocks + 1]: first tile of each block */
  size_t n_store_tiles;
  size_t tile_bytes;      /* of a whole tile's image, below */
  size_t n_speculative, n_could_speculate; /* blocks updated during backward;
                                              those that could be */
  size_t n_speculative_store_tiles; /* of them, written aside */

  /* Slot numbers, PEN_NONE where there is none. */
  uint32_t *weight_home;  /* [n_blocks] any tier */
  uint32_t *weight_shadow; /* [n_blocks] its tier; PEN_NONE: not speculative */
  uint32_t *grad_home;    /* [n_blocks] any tier: the waiting gradient */
  uint32_t *partial_home; /* [n_blocks] host or device: fp32 sum between groups */
  uint32_t *act_home;     /* [n_body * group] inputs of body blocks */
  uint32_t *saved;        /* [n_body * group] what backward need not recompute */
  uint32_t *head_saved;   /* [n_blocks] the same of the head's blocks, for one
                             micro-batch at a time */
  uint32_t *routes;      /* [n_body * group] of blocks with experts */
  uint32_t *counts, *counts_host; /* [n_body] of the group's micro-batches, one
                                     after the other; the same where compute
                                     reads the host */
  uint32_t *routed_by;     /* [n_blocks] of an expert: the counts in RAM that
                              say whether anything is routed to it */
  uint32_t *mix, *balance; /* [group] */
  uint32_t *head_in, *d, *dhead, *stats; /* [group] */
  uint32_t *rows_x; /* [group] host end of the gathered rows */
  uint32_t rows_sums; /* host: fp32 gradients of the step's embedding rows ... */
  uint32_t rows_kept; /* ... and those rows' gradients as the head's */
  bool rows_wait; /* the head's gradients wait for those, whole, in RAM */
  uint32_t *inputs, *inputs_host; /* [group] of each micro-batch; the same where
                                     compute reads the host */
  size_t *sumsq_at; /* [n_blocks + 1] bytes within the results: each block's
                       sums of squares, then the end */
  uint32_t tables; /* PEN_NONE where compute reads the workload's own */
  uint32_t kept;   /* the compute lane's own, from step to step */
  uint32_t work, logits, logits_host;
  uint32_t results_device, results_host;

  struct pen_ring weight_host, weight_device;
  struct pen_ring act_host, act_device;
  struct pen_ring grad_sum;               /* fp32, compute tier */
  struct pen_ring grad_device, grad_host; /* stored gradient on its way */
  struct pen_ring tile_state, tile_grad;
  struct pen_ring rows_d; /* host end of the embedding's gradient rows */
  struct pen_ring sum_host; /* and of the gradients of head blocks with rows */

  uint64_t tier_bytes[PEN_TIERS]; /* sums over slots */
};

/* Makes the slots.  -PEN_EUSAGE: a placement that cannot be (a ring of no
 * slots, a tile that is no multiple of PEN_NORM_CHUNK_ELEMS), with the option
 * named.  Caller owns what is in *ret_layout; done accepts half-built ones. */
int pen_layout_init(struct pen_layout *ret_layout,
                    const struct pen_workload *workload,
                    const struct pen_placement *placement);
void pen_layout_done(struct pen_layout *layout);

/* The same without tiles and their slots, in a fraction of the time: all the bytes
 * are right, and which tier each block's weights and gradients lie in. */
int pen_layout_outline(struct pen_layout *ret_layout,
                       const struct pen_workload *workload,
                       const struct pen_placement *placement);

/* A tile's state lies in its slot as arrays, then on a page of their own the
 * halves of its masters, where the format has some: the tile's image, which is
 * what goes to the store.  Where the block's weights have their home in RAM, they
 * are the halves: a home of state in RAM then has arrays alone, and from the
 * store they alone are read. */
size_t pen_layout_state_bytes(const struct pen_layout *layout,
                              const struct pen_tile *tile); /* of arrays */
size_t pen_layout_half_offset(const struct pen_layout *layout,
                              const struct pen_tile *tile);
size_t pen_layout_image_bytes(const struct pen_layout *layout,
                              const struct pen_tile *tile);
bool pen_layout_half_is_weight(const struct pen_layout *layout,
                               const struct pen_tile *tile);

/* Bytes of the array that begins at byte `at` of a slot: of the last one to the
 * slot's end. */
size_t pen_layout_array_bytes(const struct pen_layout *layout,
                              const struct pen_slot *slot, size_t at);

/* Is anything kept between the head's two passes? */
bool pen_layout_keeps_head(const struct pen_layout *layout,
                           const struct pen_workload *workload);

/* The results slots: losses per micro-batch, then non-finite counts per block,
 * then chunk sums of squares of all blocks. */
size_t pen_layout_loss_offset(size_t micro);
size_t pen_layout_nonfinite_offset(const struct pen_workload *workload,
                                   size_t block);
size_t pen_layout_sumsq_offset(const struct pen_layout *layout, size_t block);
size_t pen_layout_sumsq_chunks(const struct pen_workload *workload,
                               size_t block);

/* Of one micro-batch in the counts of a block with experts. */
size_t pen_layout_counts_bytes(const struct pen_workload *workload,
                               size_t block);

#endif
