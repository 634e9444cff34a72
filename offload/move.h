/* move.h: brings a block's bytes to where a task needs them, and back home,
 * whichever tiers lie between.  The builder's verbs of placement. */
#ifndef PEN_OFFLOAD_MOVE_H
#define PEN_OFFLOAD_MOVE_H

#include "offload/emit.h"

/* Each fetch returns a slot that may be read until the next fetch of its kind,
 * or longer while pinned; transfers are left out where a ring still holds the
 * object. */

/* A block's weights, readable by compute / by the host. */
uint32_t pen_move_weight(struct pen_emit *e, size_t block);
uint32_t pen_move_weight_host(struct pen_emit *e, size_t block);
/* An expert's weights, fetched only if one of the group's n_micros is routed to
 * it; after their last use in this pass they are given up. */
uint32_t pen_move_expert(struct pen_emit *e, size_t block, size_t n_micros);
void pen_move_expert_done(struct pen_emit *e, size_t block);
/* The newest task reads what its guard ROUTED looks at. */
void pen_move_read_counts(struct pen_emit *e, size_t block, size_t n_micros);
/* The bytes of a block's weights, for pen_emit_read_part. */
uint64_t pen_move_weight_bytes(const struct pen_emit *e, size_t block);
uint64_t pen_move_sum_bytes(const struct pen_emit *e, size_t block);

/* The input of body block `body` (from body_begin) for the j-th micro-batch of
 * the group: a slot to fill, then its way home; later, back again. */
uint32_t pen_move_act_begin(struct pen_emit *e, size_t body, size_t j);
void pen_move_act_end(struct pen_emit *e, size_t body, size_t j,
                      uint32_t slot, uint32_t micro);
uint32_t pen_move_act(struct pen_emit *e, size_t body, size_t j,
                      uint32_t micro);

/* The fp32 sum of a block's gradient: zeroed in the first group, else fetched;
 * then carried to where it waits, or brought to RAM. */
uint32_t pen_move_sum_begin(struct pen_emit *e, size_t block, bool first);
void pen_move_sum_keep(struct pen_emit *e, size_t block, uint32_t slot);
uint32_t pen_move_sum_host(struct pen_emit *e, size_t block, uint32_t slot);

/* A slot for a block's stored gradient, made on the device or on the host, and
 * its way home.  Returns where it lies for the update: RAM if it passes there. */
uint32_t pen_move_grad_begin(struct pen_emit *e, size_t block, bool on_host);
uint32_t pen_move_grad_end(struct pen_emit *e, size_t block, uint32_t slot);

/* Applies the pending update to a block's tiles: state in, AdamW, state and
 * weights out; of a block that was updated early, only if that does not stand.
 * (move_update.c) */
void pen_move_update(struct pen_emit *e, size_t block);
/* Completes a block's tiles in the store with their halves, where these are its
 * weights in RAM and steps before may have left them out. */
void pen_move_halves(struct pen_emit *e, size_t block, enum pen_guard guard);
/* The update that will be pending, out of place, as if nothing were clipped, of
 * a block whose whole gradient lies in `grad`. */
void pen_move_speculate(struct pen_emit *e, size_t block, uint32_t grad);

/* A tile's state in RAM, for a tile that has a slot. */
uint32_t pen_move_state_host(struct pen_emit *e, uint32_t tile);

#endif
