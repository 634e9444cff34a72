/* build_part.h: what the builder's files share.  For offload/build*.c only. */
#ifndef PEN_OFFLOAD_BUILD_PART_H
#define PEN_OFFLOAD_BUILD_PART_H

#include "offload/emit.h"

/* Micro-batches that pass a block together. */
struct pen_build_span {
  size_t first, count; /* micro-batches of a group, or a part of them */
  size_t slot;         /* of the first, among the slots of a group */
};

/* The j-th of them, within the step. */
static inline uint32_t pen_build_micro(struct pen_build_span g, size_t j)
{
  return (uint32_t)(g.first + j);
}

/* Of `bytes` of the embedding's rows, which lie anywhere in it: each of its blocks
 * is taken to hold an equal part. */
static inline uint64_t pen_build_rows_part(const struct pen_emit *e,
                                           uint64_t bytes)
{
  return bytes / (e->w->rows_end - e->w->rows_begin);
}

/* What a block's arithmetic for one micro-batch costs a task. */
enum pen_build_work {
  PEN_WORK_FORWARD,
  PEN_WORK_BACKWARD,
  PEN_WORK_AGAIN, /* forward, then backward */
};
void pen_build_work(struct pen_emit *e, uint32_t task, size_t block,
                    enum pen_build_work work);

/* A block's weights as the last decided update makes them: before its first
 * use. */
void pen_build_update(struct pen_emit *e, size_t block);

/* The newest task reads a block's weights in `slot`, and has the workspace. */
void pen_build_read_weight(struct pen_emit *e, size_t block, uint32_t slot);
void pen_build_use_work(struct pen_emit *e);

/* The newest task adds to a block's gradient. */
void pen_build_modify_sum(struct pen_emit *e, size_t block, uint32_t sum);
/* After a block's last micro-batch of a group: carries its sum on, or finishes
 * it, but for what comes to the embedding's rows. */
void pen_build_close_sum(struct pen_emit *e, size_t block, uint32_t sum,
                         bool last_group);
/* A block of the embedding, once the gradients of all its rows are summed. */
void pen_build_finish_rows(struct pen_emit *e, size_t block);

/* The rows of a group's tokens, and the gradients that come back to them; before
 * the first, the sum of these is 0 (build_rows.c). */
void pen_build_gather(struct pen_emit *e, struct pen_build_span g);
void pen_build_scatter(struct pen_emit *e, struct pen_build_span g);

/* A body block with experts, and these (build_experts.c). */
bool pen_build_has_experts(const struct pen_emit *e, size_t body);
void pen_build_experts_forward(struct pen_emit *e, struct pen_build_span g,
                               size_t body);
void pen_build_experts_backward(struct pen_emit *e, struct pen_build_span g,
                                size_t body, bool last_group);

#endif
