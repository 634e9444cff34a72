/* placement.h: everything that decides where bytes live and when they move, and
 * that can never change a number. */
#ifndef PEN_OFFLOAD_PLACEMENT_H
#define PEN_OFFLOAD_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pen_tier { PEN_TIER_DEVICE, PEN_TIER_HOST, PEN_TIER_NVME, PEN_TIERS };

#define PEN_ALL_BYTES UINT64_MAX

/* Each kind of bytes fills its device budget first, then its host budget, and
 * the rest goes to NVMe, in units of a block (weights, gradients), a tile
 * (state; a block's on the device) or a micro-batch's activation. */
struct pen_placement {
  bool unified;   /* the device is the host: an upload is a pointer */
  bool inference; /* forward only: no gradients, no state */

  uint64_t weights_device_bytes, weights_host_bytes;
  uint64_t gradients_host_bytes;
  uint64_t state_host_bytes;
  /* Of a device of its own, for state, waiting gradients and gradient sums of
   * whole blocks whose weights it keeps: it updates these itself. */
  uint64_t state_device_bytes;
  uint64_t activations_device_bytes, activations_host_bytes;

  size_t group_size;       /* micro-batches through a block before the next */
  size_t recompute_blocks; /* body blocks, from the first, that recompute their
                              forward in backward */
  size_t recompute_head_blocks; /* head blocks, from the first, that do so.
                                   Where others keep theirs, a micro-batch
                                   passes the head both ways before the next
                                   one does: one of each is enough */
  size_t speculative_blocks; /* that are updated during backward, out of place,
                                before the norm is known; spread evenly over
                                those that can be; the rest is updated under the
                                next forward */
  bool updates_in_place;   /* tiles in the store have no free extent: blocks with
                              one cannot be updated out of place */
  size_t tile_elems;       /* multiple of PEN_NORM_CHUNK_ELEMS */
  size_t weight_slots, gradient_slots, tile_slots, activation_slots;
};

const char *pen_tier_name(enum pen_tier tier);

#endif
