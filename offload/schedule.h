/* schedule.h: one training step as plain data: tasks on lanes, the slots they
 * read and write, and what each waits for.
 *
 * build makes it, check proves it, run executes it, trace shows it: there is no
 * second model of the step. */
#ifndef PEN_OFFLOAD_SCHEDULE_H
#define PEN_OFFLOAD_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/layout.h"
#include "offload/workload.h"

#define PEN_NONE UINT32_MAX

/* A lane is an ordered engine.  Tasks of a lane are issued in order and retired
 * in order; on a lane of width 1 each ends before the next begins, on the wide
 * ones several are in flight. */
#define PEN_LANE_LIST(X)                                                      \
  X(COMPUTE, "compute", false)                                                \
  X(UPLOAD, "upload", false)                                                  \
  X(DOWNLOAD, "download", false)                                              \
  X(UPDATE, "update", false)                                                  \
  X(READ, "read", true)                                                       \
  X(WRITE, "write", true)

enum pen_lane {
#define X(name, text, wide) PEN_LANE_##name,
  PEN_LANE_LIST(X)
#undef X
  PEN_LANES
};

/* What a task does, and the accesses it declares, in this order.  `device`
 * stands for the tier compute reads: the host itself when memory is unified. */
#define PEN_TASK_LIST(X)                                                      \
  X(GATHER, "gather")             /* r weight(host), w x(host)          */   \
  X(ROWS_AHEAD, "rows ahead")     /* r grad(part), r state, r weight    */   \
                                  /*   (part), w rows (all host)        */   \
  X(GATHER_AHEAD, "gather ahead") /* r rows(host), w x                  */   \
  X(INPUTS, "inputs")             /* w inputs(host)                     */   \
  X(FORWARD, "forward")           /* r inputs, r w, r x, w y, w work    */   \
                                  /*   [, w saved]                      */   \
  X(BACKWARD, "backward")         /* r inputs, r w, r x, m d, m grad,   */   \
                                  /*   w work [, r saved]               */   \
  X(ROUTE, "route")               /* r inputs, r w, r x, w routes,      */   \
                                  /*   w counts(part), w mix, w work    */   \
                                  /*   [, balance]                      */   \
  X(EXPERT, "expert")             /* r counts(host), r w, r routes,     */   \
                                  /*   m mix, w work                    */   \
  X(JOIN, "join")                 /* r x, r mix, w y                    */   \
  X(JOIN_BACKWARD, "join backward") /* r inputs, r w, r x, w mix, w work */  \
  X(EXPERT_BACKWARD, "expert backward") /* r counts(host), r w,         */   \
                                  /*   r routes, r d, m mix, m grad,    */   \
                                  /*   w work                           */   \
  X(ROUTE_BACKWARD, "route backward") /* r inputs, r w, r x, r routes,  */   \
                                  /*   m mix, m d, m grad, w work       */   \
                                  /*   [, r balance]                    */   \
  X(HEAD_BEGIN, "head begin")     /* w stats                            */   \
  X(HEAD_FORWARD, "head forward") /* r inputs, r w, r x, m stats,       */   \
                                  /*   w work [, w saved]               */   \
  X(HEAD_LOSS, "head loss")       /* r inputs, r stats, w results(part) */   \
                                  /*   [, r balance]                    */   \
  X(HEAD_BACKWARD, "head backward") /* r inputs, r w, r x, r stats,     */   \
                                  /*   m dx, m grad, w work [, r saved] */   \
  X(HEAD_END, "head end")         /* r dx, w d                          */   \
  X(HEAD_LOGITS, "logits")        /* r inputs, r w, r x, w logits, w work */ \
  X(SCATTER, "scatter")           /* r d(host), m sums of rows(host)    */   \
  X(ZERO, "zero")                 /* w slot                             */   \
  X(FINISH, "finish")             /* r grad, w stored, w results(part)x2*/   \
  X(KEEP_ROWS, "keep rows")       /* r grad, w stored, w kept (host)    */   \
  X(FINISH_ROWS, "finish rows")   /* r sums of rows, w or m stored,     */   \
                                  /*   w results x2 [, m kept]  (host)  */   \
  X(COPY, "copy")                 /* r from, w to: upload or download   */   \
                                  /*   [, r counts(host)]               */   \
  X(READ, "read")                 /* r nvme, w host [, r counts(host)]  */   \
  X(WRITE, "write")               /* r host, w nvme                     */   \
  X(READ_TILE, "read tile")       /* w host: state from the store       */   \
  X(WRITE_TILE, "write tile")     /* r host: state to the store         */   \
  X(WRITE_HALVES, "write halves") /* r weight(host): behind the heads   */   \
                                  /*   that are in the store            */   \
  X(WRITE_ASIDE, "write aside")   /* the same, for a later commit to    */   \
                                  /*   find or not                      */   \
  X(UPDATE, "update")             /* r grad, m state, w weight          */   \
  X(SPECULATE, "speculate")       /* r grad, m ring or w shadow of      */   \
                                  /*   state, w weight [, r old state]  */   \
                                  /*   [, r old weight]                 */   \
  X(DECIDE, "decide")             /* r results(host) in two parts       */   \
  X(COMMIT, "commit")             /* -                                  */   \
  X(SAVE_TILE, "save tile")       /* r state(host) [, r weight(host)]   */   \
  X(SAVE_BLOCK, "save block")     /* r weight(host)                     */

enum pen_task_kind {
#define X(name, text) PEN_TASK_##name,
  PEN_TASK_LIST(X)
#undef X
  PEN_TASK_KINDS
};

/* Decided once per step by the global norm, ROUTED by the router of the block
 * that an expert belongs to; a task whose guard is off only completes its
 * ticket.  The decision is one of APPLY, SKIP and REDO. */
enum pen_guard {
  PEN_GUARD_ALWAYS,
  PEN_GUARD_APPLY, /* the pending update is finite: apply it (REDO too) */
  PEN_GUARD_SKIP,  /* it is not: the old state and weights stay */
  PEN_GUARD_REDO,  /* it is, but not what was done during backward: do it again
                      from the old state; APPLY alone: what was done stands */
  PEN_GUARD_ROUTED, /* the group's micro-batches send something to this expert,
                       the task's block: its counts, which the task reads, are
                       not all 0 */
  PEN_GUARDS
};

enum pen_access_mode {
  PEN_ACCESS_READ,   /* of `generation`, whole once every writer of it is done */
  PEN_ACCESS_WRITE,  /* fills (part of) `generation`, blind to what was there */
  PEN_ACCESS_MODIFY, /* reads generation - 1 in place and makes `generation` */
};

/* One use of a slot.  A slot's generation grows by one each time its content
 * is replaced. */
struct pen_access {
  uint32_t slot;
  uint32_t generation;
  enum pen_access_mode mode;
  uint64_t offset; /* bytes within the slot */
  uint64_t bytes;
};

/* What a task asks of each resource. */
struct pen_cost {
  double flops;        /* of products */
  double rows;         /* tokens that these multiply at once */
  double vector_flops; /* of multiply-adds outside of them */
  double pass_elems;   /* elements that operations pass over */
  uint64_t link_bytes;
  uint64_t nvme_bytes;
  /* What it reads and writes of RAM and of the device's own memory, from its
   * accesses.  A call's working memory does not count: it stays in caches, or
   * is part of what a measured rate of products includes. */
  uint64_t dram_read_bytes, dram_written_bytes;
  uint64_t device_read_bytes, device_written_bytes;
  uint64_t update_elems; /* parameters that AdamW updates */
};

struct pen_task {
  enum pen_task_kind kind;
  enum pen_lane lane;
  enum pen_guard guard;
  uint32_t block; /* PEN_NONE where not of one block */
  uint32_t micro; /* within the step */
  uint32_t tile;
  uint32_t group;
  uint32_t first_access, n_accesses; /* in schedule->accesses */
  uint32_t ticket; /* 1, 2, 3 ... on its lane */
  /* Starts only once lane l has retired ticket wait[l] (0: no wait). */
  uint32_t wait[PEN_LANES];
  struct pen_cost cost;
};

/* The builder's working memory: who used each slot, as the last ticket per
 * lane. */
struct pen_slot_use {
  uint32_t before[PEN_LANES];  /* of earlier generations */
  uint32_t writers[PEN_LANES]; /* of this generation */
  uint32_t readers[PEN_LANES];
  uint32_t pins; /* a ring does not hand out a pinned slot */
};

struct pen_schedule {
  struct pen_task *tasks; /* in an order in which they could run one by one */
  size_t n_tasks, max_tasks;
  struct pen_access *accesses;
  size_t n_accesses, max_accesses;
  uint32_t n_tickets[PEN_LANES];
  struct pen_slot_use *uses; /* [n_slots] */
  bool *updated;             /* [n_blocks] */
  uint32_t *written;         /* [n_tiles] tickets of writes to the store */
  bool may_grow; /* while planning; a run's schedule is fixed in size */
};

enum pen_step_kind {
  PEN_STEP_TRAIN,  /* forward, backward, decide */
  PEN_STEP_EVAL,   /* forward and loss */
  PEN_STEP_LOGITS, /* forward and logits */
  PEN_STEP_DRAIN,  /* apply what is pending, no forward */
};

/* What this one step is. */
struct pen_shape {
  enum pen_step_kind kind;
  size_t n_micros; /* 1 .. workload->n_micros_max; 0 for DRAIN */
  double n_tokens; /* of the step, for costs */
  bool save;       /* DRAIN: hand every tile in RAM and every block's weights
                      to the save hooks */
  bool speculates; /* TRAIN: update blocks that have shadows during backward */
  bool skips;      /* what is pending is discarded.  The same tasks; what the step
                      leaves is not the same */
};

/* What crosses a step's border. */
struct pen_carry {
  bool pending; /* gradients wait for their update */
  bool speculated; /* and the blocks with shadows have had it, if it stands */
  bool halves_due; /* tiles lie in the store without their halves, which the next
                      commit has to find there */
  /* Per slot: */
  uint32_t *generation;
  uint32_t *object; /* what a ring slot still holds; PEN_NONE: nothing */
  uint32_t *turn;   /* of a ring, at its first slot: whose turn is next */
  size_t n_slots;
};

int pen_carry_init(struct pen_carry *carry, const struct pen_layout *layout);
void pen_carry_done(struct pen_carry *carry);
void pen_carry_copy(struct pen_carry *to, const struct pen_carry *from);

/* An empty schedule for this layout that grows (may_grow), or has room for
 * exactly `tasks` and `accesses`. */
int pen_schedule_init(struct pen_schedule *schedule,
                      const struct pen_workload *workload,
                      const struct pen_layout *layout, size_t tasks,
                      size_t accesses, bool may_grow);
void pen_schedule_done(struct pen_schedule *schedule);

/* Lays out one step.  Pure: the same arguments give the same tasks.  carry is
 * what the last step left and becomes what this one leaves.  Allocates only in
 * a schedule that may grow.  commits: a COMMIT ends the updates (a store is
 * there and commits each step, or the shape saves). */
int pen_schedule_build(const struct pen_workload *workload,
                       const struct pen_layout *layout,
                       const struct pen_shape *shape, bool commits,
                       struct pen_carry *carry, struct pen_schedule *schedule);

/* Bytes and operations of all its tasks, guards on, but for what is done again and
 * for what is written only where an update is skipped. */
struct pen_cost pen_schedule_cost(const struct pen_schedule *schedule);
/* Bytes its tasks put on drives, without the same; or what is done again alone. */
uint64_t pen_schedule_nvme_written(const struct pen_schedule *schedule,
                                   bool redone);

const char *pen_lane_name(enum pen_lane lane);
bool pen_lane_is_wide(enum pen_lane lane);
const char *pen_task_name(enum pen_task_kind kind);
/* Bytes between RAM and a drive: a wide lane has several in flight, and nothing
 * else beside what is not one. */
bool pen_task_is_transfer(const struct pen_task *task);

#endif
