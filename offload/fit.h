/* fit.h: a simple rule that finds a placement within the memory there is. */
#ifndef PEN_OFFLOAD_FIT_H
#define PEN_OFFLOAD_FIT_H

#include "offload/layout.h"

/* Where a kind of bytes shall live. */
enum pen_fit_place {
  PEN_FIT_AUTO,   /* as close as it fits */
  PEN_FIT_DEVICE, /* all on the device (the host, when unified) */
  PEN_FIT_HOST,   /* all in RAM */
  PEN_FIT_NVME,   /* all on NVMe */
};

#define PEN_FIT_RECOMPUTE_AUTO SIZE_MAX

struct pen_fit_wish {
  bool unified, inference;
  enum pen_fit_place weights, gradients, state, activations;
  uint64_t state_host_most; /* bytes that RAM has at most of AUTO state; 0: as
                               many as fit */
  size_t group_size;       /* 0: auto */
  size_t recompute_blocks; /* PEN_FIT_RECOMPUTE_AUTO: none if that fits */
  size_t recompute_head_blocks; /* AUTO: as few as fit */
  size_t speculative_blocks; /* as in a placement */
  bool updates_in_place;
  size_t tile_elems;
  size_t weight_slots, gradient_slots, tile_slots, activation_slots; /* 0: 3, 2,
                           4 (inference: 1; where drives have state and memory is
                           left: 9) and 4, or fewer if that fits */
};

struct pen_fit_limits {
  uint64_t device_bytes; /* of the layout's slots; ignored when unified */
  uint64_t host_bytes;
  uint64_t host_taken_bytes; /* of host_bytes, by what is no slot */
  bool has_nvme;         /* drives were offered */
};

/* Tries, in this order until the slots fit: everything as close as wished; state
 * off the device, block by block, with its gradients; recompute in the head, block by block; in all blocks; activation checkpoints off the device, then weights
 * off it block by block; on NVMe, if offered, state tile by tile, gradients,
 * weights block by block, activation checkpoints; all of this again with recompute
 * in all blocks before state leaves the device; and again with smaller rings.  What was wished for by name is never moved.  -PEN_ENOFIT: the text says by how many bytes in which tier,
 * and what would help; *ret_placement is then the smallest that was tried. */
int pen_fit(const struct pen_workload *workload,
            const struct pen_fit_wish *wish,
            const struct pen_fit_limits *limits,
            struct pen_placement *ret_placement);

#endif
